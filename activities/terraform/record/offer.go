package record

import "github.com/seed-62bf7108/unwind/activities"

// Offer is a plan that was shown and waits for approval: its record is ready, and the plan is in
// the workspace "forward" until a later plan replaces it.
type Offer struct {
	Record Record            `json:"record"`
	Bundle activities.Digest `json:"bundle"`
	// State is where a local backend keeps it.
	State string `json:"state,omitempty"`
	// Contents are those of the state that was planned on.
	Contents activities.Digest `json:"contents"`
}

// DocOffer names the document of an offer.
func DocOffer(d activities.Digest) string { return "offer-" + d.Short() }
