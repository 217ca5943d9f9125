package container

// ReadScript says that a command line changes nothing, as far as its text tells.
func ReadScript(script string) bool {
	_, ok := readScript(script)
	return ok
}
