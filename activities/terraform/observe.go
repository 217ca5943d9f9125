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

// Observe compares the state and its objects with what the step left and with what was there before. It also answers for
// a step whose forward was lost on the way: it waits until the terraform of that forward has ended, and reads what it said.
// It changes nothing: what a killed run has left to be mended is the next attempt's, or the undo's.
func (a *apply) Observe(ctx context.Context, e activities.Entry) (activities.Observation, error) {
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
	if err := a.installed(); err != nil {
		return activities.Observation{}, err
	}
	last, err := a.awaitHalf(ctx, t)
	if errors.Is(err, errWorking) && ctx.Err() == nil {
		return unseen("terraform is still working"), nil
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
	ws, err := a.workspace(ctx, e, filepath.Base(dir), c.Forward, looking)
	if err != nil {
		return activities.Observation{}, err
	}
	before, err := hidden(ctx, c.State)
	if err != nil {
		return activities.Observation{}, err
	}
	return ws.observe(ctx, r, before, last)
}

// awaitHalf waits for a token's runs for no longer than half of the time that the call has left.
func (w *world) awaitHalf(ctx context.Context, t *journal.Token) (last *over, err error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	return w.awaitAll(ctx, t, false)
}

// observe looks from a workspace under the step's own configuration. last is the forward's last run.
func (ws *workspace) observe(ctx context.Context, r record, before *state, last *over) (activities.Observation, error) {
	now, err := ws.pull(ctx)
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
		doubt, err := ws.doubt(now)
		if err != nil {
			return activities.Observation{}, err
		}
		if doubt != "" {
			return unseen(doubt), nil
		}
		if drift == nil && last.applied() {
			return activities.Observation{State: activities.AsLeft, Detail: "terraform has come to its end; the step has not written down its result"}, nil
		}
	}
	if before.same(now) {
		moved, _, err := ws.moved(ctx)
		if err == nil && len(moved) == 0 {
			return activities.Observation{State: activities.AsBefore, Detail: "the state has the same resources, attributes and outputs as before the step"}, nil
		}
		return activities.Observation{State: activities.Elsewise, Detail: "objects are no longer as the state says", Drift: drift}, err
	}
	if drift == nil {
		return unseen("the step has not come to its end"), nil
	}
	return activities.Observation{State: activities.Elsewise, Detail: "the state or its objects have changed since the step", Drift: drift}, nil
}

// doubt says what a killed run has left that only an attempt or an undo can settle; empty: nothing.
func (ws *workspace) doubt(now *state) (string, error) {
	for _, where := range []string{workDir(ws.token, filepath.Join("*", errandName)), filepath.Join(ws.token.Dir(), errandsName, "*")} {
		if unsaved, err := filepath.Glob(where); err != nil || len(unsaved) > 0 {
			return "terraform could not save its last state, which is still to be pushed", err
		}
	}
	all, err := runs(ws.token)
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
			missing, err = r.missing(objects)
		}
		if err != nil {
			return "", err
		}
		lost = append(lost, stillLost(missing, objects)...)
	}
	if unknown := unknowable(lost); len(unknown) > 0 {
		return fmt.Sprintf("terraform was killed while it made %s: whether they are there cannot be known", strings.Join(unknown, ", ")), nil
	}
	return "", nil
}

// withoutRecord tells a step that has not begun from one whose record was released.
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
		return unseen("the record was released"), nil
	}
	return activities.Observation{State: activities.AsBefore, Detail: "the step has left no record: it has not begun"}, nil
}

func unseen(detail string) activities.Observation {
	return activities.Observation{State: activities.Unseen, Detail: detail}
}
