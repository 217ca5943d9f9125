package protocol

import (
	"github.com/seed-62bf7108/unwind/activities"
)

// OrphansRequest is the argument of Orphans: it lists the orphans of a host, or looks at one of
// them, or undoes it.
type OrphansRequest struct {
	// Queue is the task queue of the host.
	Queue string `json:"queue"`
	// Token is the orphan; empty to list them.
	Token string `json:"token,omitempty"`
	// Undo says that it is to be undone. Force is the digest of the drift that may be overwritten.
	Undo  bool              `json:"undo,omitempty"`
	Force activities.Digest `json:"force,omitempty"`
	Who   string            `json:"who,omitempty"`
	Why   string            `json:"why,omitempty"`
}

// OrphansResult is the result of Orphans.
type OrphansResult struct {
	Orphans []RecordName `json:"orphans"`
	// More counts those that are not listed.
	More int `json:"more,omitempty"`
	// Orphan is the one that was asked for.
	Orphan *Orphan `json:"orphan,omitempty"`
}

// Orphan is an open record whose workflow the server does not know, with the entry that it holds.
type Orphan struct {
	RecordName

	Action string   `json:"action"`
	Keys   []string `json:"keys,omitempty"`
	// Seen is how the world compares with what the step left, before any undo.
	Seen activities.Observation `json:"seen"`
	// Undone is what the undo came to; nil if none was asked for.
	Undone *activities.Undone `json:"undone,omitempty"`
}
