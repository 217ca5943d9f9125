package container

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/checkpoint/layers"
	"github.com/seed-62bf7108/unwind/activities/container/manifest"
)

// MaxRuns is how often a command is run whose result is lost each time.
const MaxRuns = maxRuns

// HasSidecar says whether a sidecar can be asked by now.
func HasSidecar(exec activities.Action) bool {
	return exec.(*execAction).backends.Layers.(*layers.Backend).CanAsk()
}

// LookAfter sets when a late sweep looks for what has come late.
func LookAfter(exec activities.Action, after time.Duration) { exec.(*execAction).lateAfter = after }

// LeasePatience sets how long one waits for another step in the same container.
func LeasePatience(exec activities.Action, patience time.Duration) {
	exec.(*execAction).leases.Patience = patience
}

// HoldLease has a step be at work in a container of which nothing else is known.
func HoldLease(ctx context.Context, exec activities.Action, name, id string, e activities.Entry) error {
	x := exec.(*execAction)
	t, err := x.store.Journal.Token(e.Token)
	if err == nil {
		err = t.Make()
	}
	if err == nil {
		_, _, err = x.leases.Take(ctx, name, id, e)
	}
	return err
}

// LaterPatience sets how long an undo waits for those of later steps of other tasks.
func LaterPatience(exec activities.Action, patience time.Duration) {
	exec.(*execAction).leases.LaterPatience = patience
}

// ManifestOf is all that approvals cover of a container, a line for each path.
func ManifestOf(ctx context.Context, exec activities.Action, id string) (string, error) {
	m, err := manifest.Take(ctx, exec.(*execAction).engine, id, []string{"/tmp"})
	var lines []string
	for _, at := range m.Paths() {
		line, _ := json.Marshal(m[at])
		lines = append(lines, string(line))
	}
	return strings.Join(lines, "\n"), err
}
