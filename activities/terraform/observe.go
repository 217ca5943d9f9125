package terraform

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/terraform/record"
	"github.com/seed-62bf7108/unwind/activities/terraform/run"
	"github.com/seed-62bf7108/unwind/activities/terraform/salvage"
	"github.com/seed-62bf7108/unwind/activities/terraform/state"
	"github.com/seed-62bf7108/unwind/activities/terraform/workspace"
)

// Observe compares the state and its objects with what the step left and with what there was
// before. It also answers for a step whose forward was lost: it waits until the terraform of that
// forward has ended, and reads its output. It changes nothing: repairs after a killed run are left
// to the next attempt or the undo.
func (a *applyAction) Observe(ctx context.Context, e activities.Entry) (activities.Observation, error) {
	t, err := a.token(e)
	if err != nil {
		return activities.Observation{}, err
	}
	r, c, found, err := a.records.Read(ctx, t)
	if err != nil {
		return activities.Observation{}, err
	}
	if !found {
		return withoutRecord(t)
	}
	if err := a.checkInstalled(); err != nil {
		return activities.Observation{}, err
	}
	last, err := a.awaitHalf(ctx, t)
	if errors.Is(err, run.ErrWorking) && ctx.Err() == nil {
		return unseenBecause("terraform is still working"), nil
	}
	if err != nil {
		return activities.Observation{}, err
	}
	if err := os.MkdirAll(filepath.Join(t.Dir(), "work"), 0o700); err != nil {
		return activities.Observation{}, err
	}
	dir, err := os.MkdirTemp(filepath.Join(t.Dir(), "work"), "observe-")
	if err != nil {
		return activities.Observation{}, err
	}
	defer os.RemoveAll(dir)
	defer os.RemoveAll(dir + ".home")
	ws, err := a.openWorkspace(ctx, e, filepath.Base(dir), c.Forward.Settled(), workspace.ObserverTurn)
	if err != nil {
		return activities.Observation{}, err
	}
	before, err := state.ParseHidden(ctx, c.State)
	if err != nil {
		return activities.Observation{}, err
	}
	seen, err := a.observe(ctx, ws, r, before, last)
	if err != nil || r.Checkpoint == "" {
		return seen, err
	}
	return observeFiles(seen, r, c)
}

// awaitHalf waits for a token's runs for at most half of the time that the call has left.
func (w *world) awaitHalf(ctx context.Context, t *journal.Token) (last *run.Finished, err error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	return run.AwaitAll(ctx, t, w.Ending, run.Patiently)
}

// observe looks from a workspace under the step's own configuration. last is the forward's last
// run.
func (a *applyAction) observe(ctx context.Context, ws *workspace.Workspace, r record.Record, before *state.State,
	last *run.Finished) (activities.Observation, error) {
	now, err := ws.PullState(ctx)
	if err != nil {
		return activities.Observation{}, err
	}
	if cleared, err := hasCleared(ws.Token); err != nil {
		return activities.Observation{}, err
	} else if !cleared && !run.IsSettled(ws.Token) {
		lost, err := a.findRegression(ctx, ws, r, now)
		if err != nil {
			return activities.Observation{}, err
		}
		if lost != nil {
			return activities.Observation{State: activities.Elsewise,
				Detail: "the state is not what became of the one that the step left", Drift: lost}, nil
		}
	}
	drift, err := a.findDrift(ctx, ws, r, now)
	if err != nil {
		return activities.Observation{}, err
	}
	_, done, err := a.records.ReadLeft(ctx, ws.Token)
	if err != nil {
		return activities.Observation{}, err
	}
	if done && drift == nil {
		return activities.Observation{State: activities.AsLeft,
			Detail: "the state and its objects are as the step left them"}, nil
	}
	undone := run.IsSettled(ws.Token)
	if !done && !undone {
		doubt, err := salvage.FindDoubt(ws, now)
		if err != nil {
			return activities.Observation{}, err
		}
		if doubt != "" {
			return unseenBecause(doubt), nil
		}
		if drift == nil && last.AppliedAll() {
			return activities.Observation{State: activities.AsLeft,
				Detail: "terraform has ended; the step has not recorded its result"}, nil
		}
	}
	if before.Same(now) {
		moved, _, err := ws.ChangedObjects(ctx)
		if err == nil && len(moved) == 0 {
			return activities.Observation{State: activities.AsBefore,
				Detail: "the state has the same resources, attributes and outputs as before the step"}, nil
		}
		return activities.Observation{State: activities.Elsewise, Detail: "objects are no longer as the state says",
			Drift: drift}, err
	}
	if drift == nil {
		return unseenBecause("the step has not finished"), nil
	}
	return activities.Observation{State: activities.Elsewise,
		Detail: "the state or its objects have changed since the step", Drift: drift}, nil
}

// withoutRecord distinguishes a step that has not begun from one whose record was released.
func withoutRecord(t *journal.Token) (activities.Observation, error) {
	fate, err := t.Fate()
	if err != nil {
		return activities.Observation{}, err
	}
	var outcome activities.Undone
	undone, err := t.Read(journal.Outcome, &outcome)
	switch {
	case err != nil:
		return activities.Observation{}, err
	case fate == journal.Releasing, undone && outcome.Outcome != activities.Nothing:
		return unseenBecause("the record was released"), nil
	}
	return activities.Observation{State: activities.AsBefore, Detail: "the step has left no record: it has not begun"}, nil
}

func unseenBecause(detail string) activities.Observation {
	return activities.Observation{State: activities.Unseen, Detail: detail}
}
