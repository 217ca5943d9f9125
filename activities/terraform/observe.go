package terraform

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// Observe compares the state and its objects with what the step left and with what there was before. It also answers for a
// step whose forward was lost: it waits until the terraform of that forward has ended, and reads its output. It changes
// nothing: repairs after a killed run are left to the next attempt or the undo.
func (a *applyAction) Observe(ctx context.Context, e activities.Entry) (activities.Observation, error) {
	t, err := a.token(e)
	if err != nil {
		return activities.Observation{}, err
	}
	r, c, found, err := a.readRecord(ctx, t)
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
	if errors.Is(err, errWorking) && ctx.Err() == nil {
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
	ws, err := a.workspace(ctx, e, filepath.Base(dir), c.Forward, observerTurn)
	if err != nil {
		return activities.Observation{}, err
	}
	before, err := parseHidden(ctx, c.State)
	if err != nil {
		return activities.Observation{}, err
	}
	return ws.observe(ctx, r, before, last)
}

// awaitHalf waits for a token's runs for at most half of the time that the call has left.
func (w *world) awaitHalf(ctx context.Context, t *journal.Token) (last *finishedRun, err error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	return w.awaitAll(ctx, t, false)
}

// observe looks from a workspace under the step's own configuration. last is the forward's last run.
func (ws *workspace) observe(ctx context.Context, r record, before *state, last *finishedRun) (activities.Observation, error) {
	now, err := ws.pullState(ctx)
	if err != nil {
		return activities.Observation{}, err
	}
	drift, err := ws.drift(ctx, r, now)
	if err != nil {
		return activities.Observation{}, err
	}
	_, done, err := ws.readLeft(ctx, ws.token)
	if err != nil {
		return activities.Observation{}, err
	}
	if done && drift == nil {
		return activities.Observation{State: activities.AsLeft, Detail: "the state and its objects are as the step left them"}, nil
	}
	undone := isSettled(ws.token)
	if !done && !undone {
		doubt, err := ws.findDoubt(now)
		if err != nil {
			return activities.Observation{}, err
		}
		if doubt != "" {
			return unseenBecause(doubt), nil
		}
		if drift == nil && last.appliedAll() {
			return activities.Observation{State: activities.AsLeft, Detail: "terraform has ended; the step has not recorded its result"}, nil
		}
	}
	if before.same(now) {
		moved, _, err := ws.changedObjects(ctx)
		if err == nil && len(moved) == 0 {
			return activities.Observation{State: activities.AsBefore, Detail: "the state has the same resources, attributes and outputs as before the step"}, nil
		}
		return activities.Observation{State: activities.Elsewise, Detail: "objects are no longer as the state says", Drift: drift}, err
	}
	if drift == nil {
		return unseenBecause("the step has not finished"), nil
	}
	return activities.Observation{State: activities.Elsewise, Detail: "the state or its objects have changed since the step", Drift: drift}, nil
}

// findDoubt says what a killed run has left that only an attempt or an undo can settle; empty if nothing.
func (ws *workspace) findDoubt(now *state) (string, error) {
	for _, where := range []string{workDir(ws.token, filepath.Join("*", errandName)), filepath.Join(ws.token.Dir(), errandsName, "*")} {
		if unsaved, err := filepath.Glob(where); err != nil || len(unsaved) > 0 {
			return "terraform could not save its last state, which is still to be pushed", err
		}
	}
	all, err := listRuns(ws.token)
	if err != nil {
		return "", err
	}
	objects := now.managed()
	var lost []creation
	for _, r := range all {
		var s supervisorRecord
		if found, err := ws.token.Read(r.doc(docProcess), &s); err != nil {
			return "", err
		} else if !found || s.Turn != 0 {
			continue
		}
		var missing []creation
		found, err := ws.token.Read(r.doc(docSettled), &missing)
		if err == nil && !found {
			missing, err = r.missingCreations(objects)
		}
		if err != nil {
			return "", err
		}
		lost = append(lost, stillLost(missing, objects)...)
	}
	if unknown := unknowableAddresses(lost); len(unknown) > 0 {
		return fmt.Sprintf("terraform was killed while it made %s: whether they exist cannot be known", strings.Join(unknown, ", ")), nil
	}
	return "", nil
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
