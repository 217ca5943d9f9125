package terraform

import (
	"context"
	"fmt"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/terraform/record"
	"github.com/seed-62bf7108/unwind/activities/terraform/salvage"
	"github.com/seed-62bf7108/unwind/activities/terraform/state"
	"github.com/seed-62bf7108/unwind/activities/terraform/workspace"
)

// regressedError refuses to apply without a person's word.
func regressedError(dir, regression string) error {
	return activities.Errorf(activities.Refused,
		"%s: %s. What is not in it would be made again: put the right state back, or run the step "+
			"with a gate, at which somebody approves exactly this", dir, regression)
}

// expectedState is the mark of what should be there when a step is undone: what this worker left
// last, or else what the step left or found.
func (w *world) expectedState(ws *workspace.Workspace, r record.Record, left *state.State) (record.Mark, error) {
	place, err := ws.Place()
	if err != nil {
		return record.Mark{}, err
	}
	m, err := w.records.ReadMark(place)
	switch {
	case err != nil || m.Lineage != "" || m.Removed:
	case left != nil:
		m = record.MarkOf(left)
	default:
		m = record.Mark{Lineage: r.Lineage, Serial: r.Serial, Objects: len(r.Addresses)}
	}
	return m, err
}

// writeMark marks the state that this worker leaves at the place of a workspace.
func (w *world) writeMark(ws *workspace.Workspace, m record.Mark) error {
	place, err := ws.Place()
	if err != nil {
		return err
	}
	return w.records.WriteMark(place, m)
}

// findRegression compares the present state with the expected one, before a step is undone; nil
// where nothing was lost.
func (w *world) findRegression(ctx context.Context, ws *workspace.Workspace, r record.Record,
	now *state.State) (*activities.Drift, error) {
	left, _, err := w.records.ReadLeft(ctx, ws.Token)
	if err != nil {
		return nil, err
	}
	expected, err := w.expectedState(ws, r, left)
	if err != nil {
		return nil, err
	}
	text := expected.Regression(now)
	if text == "" {
		return nil, nil
	}
	if torn, err := salvage.IsTornByKill(ws, now); err != nil || torn {
		return nil, err
	}
	if left.PushableOver(now) {
		text += fmt.Sprintf(
			"\nA force puts back the state that the step left, serial %d, refreshes it, and undoes the step from there.",
			left.Serial)
	} else {
		text += "\nA force undoes the step from this state: what is not in it stays as it is. To undo more, put the " +
			"right state back first."
	}
	return &activities.Drift{Digest: activities.DigestOf([]byte(text), []byte(now.Digest())), Diff: "! " + text}, nil
}

// docAccepted says that a person has forced an undo on the state with this digest.
func docAccepted(d activities.Digest) string { return "accepted-" + d.Short() }

// hasCleared reports whether an undo of the token has begun to change things.
func hasCleared(t *journal.Token) (bool, error) {
	var at any
	return t.Read(record.DocCleared, &at)
}
