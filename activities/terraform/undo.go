package terraform

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/activities/terraform/record"
	"github.com/seed-62bf7108/unwind/activities/terraform/run"
	"github.com/seed-62bf7108/unwind/activities/terraform/salvage"
	"github.com/seed-62bf7108/unwind/activities/terraform/state"
	"github.com/seed-62bf7108/unwind/activities/terraform/stream"
	"github.com/seed-62bf7108/unwind/activities/terraform/workspace"
)

// Undo undoes the step. Final outcomes are stored; after any other it may be tried again.
func (a *applyAction) Undo(ctx context.Context, e activities.Entry, d activities.Decision) (_ activities.Undone,
	err error) {
	t, err := a.token(e)
	if err != nil {
		return activities.Undone{}, err
	}
	defer clearLate(t, &err)
	kept, isOver, err := t.BeginUndo()
	if isOver || err != nil {
		return kept, err
	}
	point.Reach("terraform.undo:fenced")
	turn, settled, err := run.TakeTurn(ctx, t)
	if err != nil {
		return activities.Undone{}, err
	}
	if settled {
		_, err := t.Read(journal.Outcome, &kept)
		return kept, err
	}
	defer turn.Release()
	point.Reach("terraform.undo:turn")
	began := time.Now()
	last, err := run.AwaitAll(ctx, t, a.Ending, run.Interrupting)
	if err != nil {
		return activities.Undone{}, err
	}
	undone, err := a.takeBack(ctx, e, d, t, turn.N, last != nil)
	if err != nil {
		return undone, run.AsOvertaken(err)
	}
	undone.Took = time.Since(began).Round(time.Millisecond)
	if !undone.Outcome.Settles() {
		return undone, nil
	}
	if err := run.CheckFence(t, turn.N); err != nil && !run.IsSettled(t) {
		return activities.Undone{}, run.AsOvertaken(err)
	}
	// If two calls get here at once, both report what the first has written.
	if _, err := t.Create(journal.Outcome, &undone); err != nil {
		return activities.Undone{}, err
	}
	point.Reach("terraform.undo:settled")
	return undone, nil
}

// clearLate removes what a step and its undos leave in plain text once an undo is done. Every call
// does so when it ends: the one that reached the outcome may have died before it could, and a late
// one may have written more since.
func clearLate(t *journal.Token, err *error) {
	if run.IsSettled(t) {
		*err = errors.Join(*err, removePlainText(t), workspace.Remove(t, "undo-*"),
			os.RemoveAll(workspace.ObservationsFolder(t)))
	}
}

// takeBack decides whether there is anything to undo, and undoes it.
func (a *applyAction) takeBack(ctx context.Context, e activities.Entry, d activities.Decision, t *journal.Token,
	turn int, acted bool) (activities.Undone, error) {
	r, c, found, err := a.records.Read(ctx, t)
	if err != nil {
		return activities.Undone{}, err
	}
	if !found {
		if err := t.CheckNotLost(d.Done || acted, record.DocLeft); err != nil {
			return activities.Undone{}, err
		}
		return activities.Undone{Outcome: activities.Nothing, Observed: "the step had not begun, and no longer can"}, nil
	}
	objects := func() (activities.Undone, error) { return a.takeBackObjects(ctx, e, d, t, r, c, turn, acted) }
	if r.Checkpoint == "" {
		return objects()
	}
	return a.takeBackFiles(t, r, c, d, turn, objects)
}

// takeBackObjects undoes what the step has done to objects.
func (a *applyAction) takeBackObjects(ctx context.Context, e activities.Entry, d activities.Decision, t *journal.Token,
	r record.Record, c record.Contents, turn int, acted bool) (activities.Undone, error) {
	switch {
	case r.Back == record.Nowhere:
		return activities.Undone{Outcome: activities.Nothing, Observed: "the step had nothing to change"}, nil
	case !acted:
		if err := t.CheckNotLost(d.Done, record.DocLeft); err != nil {
			return activities.Undone{}, err
		}
		return activities.Undone{Outcome: activities.Nothing, Observed: "terraform was never started, and no longer can be"},
			nil
	}
	if err := a.checkInstalled(); err != nil {
		return activities.Undone{}, err
	}
	unsaved, err := salvage.MoveUnsaved(t)
	if err != nil {
		return activities.Undone{}, err
	}
	ws, err := a.openWorkspace(ctx, e, fmt.Sprintf("undo-%03d", turn), c.Forward.Settled(), turn)
	if err != nil {
		return activities.Undone{}, err
	}
	before, err := state.ParseHidden(ctx, c.State)
	if err != nil {
		return activities.Undone{}, err
	}
	u := &undo{applyAction: a, entry: e, decision: d, record: r, contents: c, ws: ws, before: before}
	return u.undoStep(ctx, unsaved)
}

// undo is one undo in progress.
type undo struct {
	*applyAction
	entry    activities.Entry
	decision activities.Decision
	record   record.Record
	contents record.Contents
	ws       *workspace.Workspace // under the step's own configuration
	before   *state.State
}

// undoStep goes through the stages of the undo; each does nothing if it was done before.
func (u *undo) undoStep(ctx context.Context, unsaved []string) (activities.Undone, error) {
	if err := salvage.PushUnsaved(ctx, u.ws, unsaved); err != nil {
		return activities.Undone{}, err
	}
	if drift, err := u.recoverState(ctx); err != nil || drift != nil {
		return driftedOutcome(drift), err
	}
	lost, err := salvage.SettleAll(ctx, u.ws)
	if err != nil {
		return activities.Undone{}, err
	}
	if lost, err = salvage.AdoptCompleted(ctx, u.ws, lost); err != nil {
		return activities.Undone{}, err
	}
	drift, err := u.checkDrift(ctx)
	if err != nil {
		return activities.Undone{}, err
	}
	if drift != nil {
		return driftedOutcome(drift), nil
	}
	point.Reach("terraform.undo:cleared")
	if err := u.forgetImported(ctx); err != nil {
		return activities.Undone{}, err
	}
	if err := u.destroyAdded(ctx); err != nil {
		return activities.Undone{}, err
	}
	if err := u.moveBack(ctx); err != nil {
		return activities.Undone{}, err
	}
	point.Reach("terraform.undo:subtracted")
	remains, drift, err := u.applyPrior(ctx)
	if err != nil {
		return activities.Undone{}, err
	}
	if drift != nil {
		return driftedOutcome(drift), nil
	}
	point.Reach("terraform.undo:back")
	now, err := u.ws.PullState(ctx)
	if err != nil {
		return activities.Undone{}, err
	}
	if err := u.removeNewFiles(ctx, now); err != nil {
		return activities.Undone{}, err
	}
	if err := u.markLeft(now); err != nil {
		return activities.Undone{}, err
	}
	point.Reach("terraform.undo:tidied")
	refused, err := u.allRefusals()
	if err != nil {
		return activities.Undone{}, err
	}
	ran, err := u.describePrograms(refused)
	if err != nil {
		return activities.Undone{}, err
	}
	v := verdict{undo: u, Undone: activities.Undone{Outcome: activities.Restored}}
	if err := v.compare(ctx, now); err != nil {
		return activities.Undone{}, err
	}
	v.addPrograms(ran)
	v.addRemains(remains, refused)
	v.addLost(lost)
	return v.told(), nil
}

// markLeft notes which state the undo has left.
func (u *undo) markLeft(now *state.State) error {
	m := record.MarkOf(now)
	if u.ws.StateFile != "" && !u.ws.HasStateFile() {
		m = record.Mark{Removed: true}
	}
	return u.writeMark(u.ws, m)
}

// allRefusals are the refusals of the step and of its undo.
func (u *undo) allRefusals() ([]string, error) {
	var l record.LeftState
	if _, err := u.ws.Token.Read(record.DocLeft, &l); err != nil {
		return nil, err
	}
	here, err := salvage.ListRefusals(u.ws)
	return append(l.Refused, here...), err
}

// describePrograms describes what programs that the step and its undo have run may have left,
// except of those that the refusals tell.
func (u *undo) describePrograms(refused []string) ([]string, error) {
	var l record.LeftState
	if _, err := u.ws.Token.Read(record.DocLeft, &l); err != nil {
		return nil, err
	}
	here, err := salvage.ListProvisionings(u.ws.Token)
	lines := salvage.DescribeProvisionings(slices.DeleteFunc(append(l.Ran, here...), func(p stream.Provisioning) bool {
		return slices.ContainsFunc(refused, func(r string) bool { return strings.HasPrefix(r, p.Address+": ") })
	}))
	for _, source := range u.record.Sources {
		lines = append(lines, source+"; what it has changed was not looked at, and may still be there")
	}
	return lines, err
}

func driftedOutcome(d *activities.Drift) activities.Undone {
	return activities.Undone{Outcome: activities.Drifted, Drift: d,
		Observed: "the state or its objects have changed since the step; nothing was touched"}
}
