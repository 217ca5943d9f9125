package activities

// CapDrift caps a drift as the wrapper does.
func CapDrift(d Drift) Drift {
	return *capDrift(&d)
}
