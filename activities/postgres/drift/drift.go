// Package drift is the error that ends an undo which has found the work of others.
package drift

import (
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
)

// Error is drift that an undo has found.
type Error struct{ Drift activities.Drift }

func (d Error) Error() string { return "drift" }

// Undone is what the undo reports.
func (d Error) Undone() activities.Undone {
	first, _, _ := strings.Cut(d.Drift.Diff, "\n")
	return activities.Undone{Outcome: activities.Drifted, Observed: first, Drift: &d.Drift}
}

// New is drift with a digest of these parts, or else of what a person is shown.
func New(diff string, digest ...[]byte) Error {
	if len(digest) == 0 {
		digest = [][]byte{[]byte(diff)}
	}
	return Error{activities.Drift{Diff: diff, Digest: activities.DigestOf(digest...)}}
}
