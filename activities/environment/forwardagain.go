package environment

import (
	"context"
	"fmt"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// Undo implements activities.Action: the environment goes forward again.
func (a *rollback) Undo(ctx context.Context, e activities.Entry, d activities.Decision) (u activities.Undone,
	err error) {
	t, err := a.token(e)
	if err != nil {
		return u, err
	}
	u, isOver, err := t.BeginUndo()
	if err != nil {
		return u, err
	}
	actionOf(e).reach("closed")
	var rec record
	found, err := t.Read(journal.Record, &rec)
	if err == nil && !found && !isOver {
		err = t.CheckNotLost(d.Done)
	}
	if err != nil {
		return u, err
	}
	switch {
	case isOver:
	case rec.Same:
		u = activities.Undone{Outcome: activities.Nothing, Observed: "environment " + rec.Environment +
			" was not rolled back: it was as in checkpoint " + rec.To}
	case !found:
		u = activities.Undone{Outcome: activities.Nothing, Observed: "the environment was not rolled back"}
	default:
		if u, err = a.goForward(ctx, t, rec, d); err != nil || u.Outcome == activities.Drifted {
			return u, err
		}
	}
	if _, err := t.Create(journal.Outcome, &u); err != nil {
		return u, err
	}
	actionOf(e).reach("undone")
	if found { // it is needed until the outcome is there
		err = a.Keeper.LetGo(ctx, rec.Environment, e.Token)
	}
	actionOf(e).reach("let-go")
	return u, err
}

// goForward puts the environment back to the safety checkpoint, if it was rolled back and nobody has
// changed it since.
func (a *rollback) goForward(ctx context.Context, t *journal.Token, rec record,
	d activities.Decision) (u activities.Undone, err error) {
	acted, err := a.hasActed(ctx, t, rec, d.Done)
	if err != nil {
		return u, err
	}
	if !acted {
		return activities.Undone{Outcome: activities.Nothing, Observed: "environment " + rec.Environment +
			" was not rolled back"}, nil
	}
	actionOf(rec.Entry).reach("settled")
	for {
		made, err := lastTry(t)
		if err != nil {
			return u, err
		}
		if made > 0 {
			if err = a.try(ctx, rec, made); err == nil {
				return a.verify(ctx, rec, made)
			}
			if activities.TypeOf(err) != activities.Unsuccessful {
				return u, err
			}
		}
		left, err := a.compare(ctx, rec, rec.To)
		if err != nil {
			return u, err
		}
		if drift := left.drift(); !left.same() && d.Force != drift.Digest {
			if beaten, err := a.isBeaten(t, made); err != nil || beaten {
				if err != nil {
					return u, err
				}
				continue
			}
			return activities.Undone{Outcome: activities.Drifted, Drift: drift, Observed: "environment " + rec.Environment +
				" is no longer as checkpoint " + rec.To + " has it"}, nil
		}
		if _, err := t.Create(tryName(made+1), &struct{}{}); err != nil {
			return u, err
		}
		actionOf(rec.Entry).reach("tried")
		if err := a.try(ctx, rec, made+1); err != nil {
			// all is as it was before the try, and another one may succeed
			return u, fmt.Errorf("going forward to checkpoint %s again: %w", rec.ID, retried(err))
		}
		actionOf(rec.Entry).reach("forward")
	}
}

// hasActed ends what the forward has under way, and reports whether it has rolled the environment
// back.
func (a *rollback) hasActed(ctx context.Context, t *journal.Token, rec record, isDone bool) (bool, error) {
	v, err := a.settle(ctx, rec, true)
	if err != nil {
		return false, err
	}
	if _, there := v.find(rec.ID); there {
		return true, nil
	}
	acted, err := a.Keeper.Await(ctx, rec.Environment, rec.ID)
	if err != nil {
		return false, err
	}
	applied, err := t.Has(journal.Applied)
	if err == nil && (acted || applied || isDone) {
		err = rec.lostSafety()
	}
	return false, err
}

// A try to go forward is named in the journal before it begins. They are numbered from 1.

func tryName(n int) string { return fmt.Sprintf("forward-%d", n) }

// lastTry is the number of the last one; 0: there is none.
func lastTry(t *journal.Token) (n int, err error) {
	for {
		found, err := t.Has(tryName(n + 1))
		if err != nil || !found {
			return n, err
		}
		n++
	}
}

// isBeaten reports whether another undo of the token has begun a try, or ended, since this one has
// seen made tries: what it then sees of the world may be that one's work.
func (*rollback) isBeaten(t *journal.Token, made int) (bool, error) {
	now, err := lastTry(t)
	if err != nil || now > made {
		return true, err
	}
	return t.Has(journal.Outcome)
}

// try has the keeper go forward, or tells how that has ended.
func (a *rollback) try(ctx context.Context, rec record, n int) error {
	_, err := a.Keeper.RollBack(ctx, rec.Environment, RollbackOrder{
		To: rec.ID, Safety: idOf(rec.Entry.Token, tryName(n)), Parts: rec.Parts, Step: rec.step(), Undoing: true,
	})
	return err
}

// retried is an error that a retry may cure.
func retried(err error) error {
	if activities.TypeOf(err) != activities.Unsuccessful {
		return err
	}
	return activities.Errorf(activities.ActionFailed, "%v", err)
}

// verify looks at what a try has led to.
func (a *rollback) verify(ctx context.Context, rec record, n int) (u activities.Undone, err error) {
	left, err := a.compare(ctx, rec, rec.ID)
	if err != nil {
		return u, err
	}
	u = activities.Undone{Outcome: activities.Restored, Observed: fmt.Sprintf(
		"environment %s is as in checkpoint %s again; checkpoint %s has what the rollback had left", rec.Environment, rec.ID,
		idOf(rec.Entry.Token, tryName(n)))}
	if !left.same() {
		u.Outcome, u.Losses = activities.Compensated, left.lines()
		u.Observed += "; it has changed again since"
	}
	return u, nil
}
