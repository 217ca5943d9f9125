package environment

import (
	"context"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/internal/childenv"
	"github.com/seed-62bf7108/unwind/internal/shortlived"
)

// record says what a step asks for.
type record struct {
	journal.Owned

	Environment string `json:"environment"`
	// ID is that of the checkpoint that is taken; in a rollback, of the safety checkpoint.
	ID     string `json:"id"`
	Notes  string `json:"notes,omitempty"`
	Pinned bool   `json:"pinned,omitempty"`
	// To is the checkpoint that a rollback goes back to, and Parts are those that it puts back.
	To    string   `json:"to,omitempty"`
	Parts []string `json:"parts,omitempty"`
	// Same: nothing differed from To, so nothing was done.
	Same bool `json:"same,omitempty"`
}

// step is the step that asks.
func (r record) step() Step {
	return Step{Token: r.Entry.Token, Task: r.Owner.Workflow, ID: r.Entry.Step}
}

// forward is what differs between the forwards of the two actions.
type forward struct {
	// plan says what is about to be done, and what the record has of it.
	plan func() (activities.Change, record, error)
	// ask asks the keeper for it.
	ask func(record) (activities.Result, error)
}

// planOpen plans for a token that is open.
func (w *world) planOpen(e activities.Entry, f forward) (activities.Change, error) {
	t, err := w.token(e)
	if err == nil {
		err = t.CheckOpen()
	}
	if err != nil {
		return activities.Change{}, err
	}
	c, _, err := f.plan()
	return c, err
}

// act runs a forward.
func (w *world) act(ctx context.Context, e activities.Entry, s activities.Step, want activities.Digest,
	f forward) (r activities.Result, err error) {
	t, err := w.token(e)
	if err != nil {
		return r, err
	}
	unlock, err := t.Lock(ctx)
	if err != nil {
		return r, err
	}
	defer unlock()
	if err := t.CheckOpen(); err != nil {
		return r, err
	}
	rec, err := f.begin(ctx, e, want, t)
	if err != nil {
		return r, err
	}
	actionOf(e).reach("recorded")
	found, err := t.Read(journal.Applied, &r)
	if err != nil {
		return r, err
	}
	if !found {
		if r, err = f.ask(rec); err != nil {
			return r, err
		}
		actionOf(e).reach("asked")
		if _, err := t.Create(journal.Applied, &r); err != nil {
			return r, err
		}
	}
	actionOf(e).reach("applied")
	return r, activities.RunChecks(ctx, s.Checks, activities.Live, activities.Live, scene{})
}

// begin reads the record, or makes it.
func (f forward) begin(ctx context.Context, e activities.Entry, want activities.Digest,
	t *journal.Token) (rec record, err error) {
	if found, err := t.Read(journal.Record, &rec); err != nil || found {
		return rec, err
	}
	change, rec, err := f.plan()
	if err != nil {
		return rec, err
	}
	if err := activities.Judge(ctx, change); err != nil {
		return rec, err
	}
	if want != "" && want != change.Digest {
		return rec, activities.Errorf(activities.StaleApproval,
			"environment %s, or what is to be done to it, is not as it was when the step was approved", rec.Environment)
	}
	rec.Owned = journal.Own(ctx, e)
	_, err = t.Create(journal.Record, &rec)
	return rec, err
}

// actionName is the name of an action, before that of a point.
type actionName string

func actionOf(e activities.Entry) actionName { return actionName(e.Action) }

// reach reports the point after a side effect.
func (a actionName) reach(what string) { point.Reach(string(a) + ":" + what) }

// pause is the time between two looks at what a step has under way.
const pause = 100 * time.Millisecond

// settle waits until the step has nothing under way, which it has cancelled if it is to. What others
// have under way is waited for only by who needs a turn.
func (w *world) settle(ctx context.Context, r record, cancel bool) (Environment, error) {
	for {
		v, err := w.Keeper.Look(ctx, r.Environment)
		if err != nil || v.Doing == nil || v.Doing.ID != r.ID {
			return v, err
		}
		if cancel {
			if err := w.Keeper.Cancel(ctx, r.Environment, *v.Doing); err != nil {
				return v, err
			}
		}
		select {
		case <-ctx.Done():
			return v, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// release drops the record of a token, and lets go of the checkpoints that it needed.
func (w *world) release(ctx context.Context, e activities.Entry) error {
	t, err := w.token(e)
	if err != nil {
		return err
	}
	if _, err := t.DecideReleasing(); err != nil {
		return err
	}
	var rec record
	found, err := t.Read(journal.Record, &rec)
	if err == nil && found {
		err = w.Keeper.LetGo(ctx, rec.Environment, e.Token)
	}
	for _, name := range []string{journal.Record, journal.Applied} {
		if err == nil {
			err = t.Drop(name)
		}
	}
	if err != nil {
		return err
	}
	return t.MarkReleased()
}

// scene is what a step's checks see: nothing but what programs on the host can see.
type scene struct{}

func (scene) Target() string { return "" }

func (scene) ReadFile(context.Context, string) ([]byte, error) {
	return nil, activities.Errorf(activities.Refused, "a step on an environment has no file; check it by a command")
}

func (scene) Run(ctx context.Context, argv []string) ([]byte, error) {
	return shortlived.Output(ctx, "/", childenv.Minimal(), argv...)
}
