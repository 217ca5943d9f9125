package replace

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/manifest"
	"github.com/seed-62bf7108/unwind/activities/container/target"
	"github.com/seed-62bf7108/unwind/activities/docker/aside"
	"github.com/seed-62bf7108/unwind/activities/docker/blueprint"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// stepRecord is what Apply captures before anything happens.
type stepRecord struct {
	journal.Owned
	replacement

	Want   activities.Digest `json:"want,omitempty"`
	Ignore []string          `json:"ignore,omitempty"`
	// After is the token of the step that was at work in the container before.
	After string `json:"after,omitempty"`
}

// Documents of a token. Each container that a forward starts is named in one before it is; an undo
// that writes it first, with no id, keeps it from ever being started.
const (
	newDoc   = "new"
	trialDoc = "trial"
	triedDoc = "tried"
	asideDoc = "aside"
	backDoc  = "back"
)

// reference names a container in a document; empty: none may be started.
type reference struct {
	ID string `json:"id,omitempty"`
}

// swap is one call of Apply.
type swap struct {
	*Action
	entry activities.Entry
	step  activities.Step
	token *journal.Token
	rec   stepRecord
}

func (a *Action) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (activities.Result, error) {
	p, err := decode(s)
	if err != nil {
		return activities.Result{}, err
	}
	t, err := a.Store.Open(ctx, e)
	if err != nil {
		return activities.Result{}, err
	}
	unlock, err := t.Lock(ctx)
	if err != nil {
		return activities.Result{}, err
	}
	defer unlock()
	if err := t.CheckOpen(); err != nil {
		return activities.Result{}, err
	}
	if done, found, err := target.ReadCompletion(t); found || err != nil {
		return target.Answer(done, err)
	}
	w := &swap{Action: a, entry: e, step: s, token: t}
	if err := w.capture(ctx, p, want); err != nil {
		return activities.Result{}, err
	}
	done, err := w.run(ctx)
	if err != nil { // what an undo has taken away fails in many ways
		return activities.Result{}, errors.Join(t.CheckOpen(), err)
	}
	return done.Answer()
}

func (w *swap) capture(ctx context.Context, p params, want activities.Digest) error {
	found, err := w.token.Read(journal.Record, &w.rec)
	if found || err != nil {
		return err
	}
	r, err := w.locate(ctx, p)
	if err == nil {
		err = activities.Judge(ctx, r.weigh())
	}
	if err != nil {
		return err
	}
	if err := w.token.Make(); err != nil {
		return err
	}
	before, waited, err := w.Leases.Take(ctx, p.Container, r.Old.ID, w.entry)
	if err == nil && waited {
		r, err = w.locate(ctx, p)
	}
	if err != nil {
		return err
	}
	if want != "" && want != r.digest() {
		return activities.Errorf(activities.StaleApproval, "the image, or container %s, is not what was approved",
			p.Container)
	}
	w.rec = stepRecord{Owned: journal.Own(ctx, w.entry), replacement: r, Want: want, Ignore: p.ignored(), After: before}
	point.Reach("container.replace:captured")
	if err := w.token.CheckOpen(); err != nil {
		return err
	}
	_, err = w.token.Create(journal.Record, &w.rec)
	point.Reach("container.replace:recorded")
	return err
}

// run makes the new container, tries the image beside the old one, and lets the two change places.
func (w *swap) run(ctx context.Context) (target.Completion, error) {
	fresh, err := w.make(ctx, newDoc, blueprint.CopyFrom(w.rec.Old, w.rec.Image, w.defaults(ctx)))
	if err != nil {
		return target.Completion{}, err
	}
	failure, err := w.try(ctx)
	if err != nil {
		return target.Completion{}, err
	}
	if err := w.sweep(ctx, w.entry.Token, fresh); err != nil { // what calls have left that were cut short
		return target.Completion{}, err
	}
	if failure != nil {
		return w.finish(target.Completion{Container: fresh, Failure: failure})
	}
	if failure, err = w.change(ctx, fresh); err != nil {
		return target.Completion{}, err
	}
	if failure == nil {
		if failure, err = w.check(ctx, fresh, activities.Live); err != nil {
			return target.Completion{}, err
		}
	}
	after, err := manifest.Take(ctx, w.Engine, fresh, w.rec.Ignore)
	if err != nil {
		return target.Completion{}, err
	}
	digest, err := after.Save(w.token.Dir(), target.AfterFile)
	if err != nil {
		return target.Completion{}, err
	}
	name := engine.NameOf(w.rec.Old)
	return w.finish(target.Completion{Container: fresh, After: digest, Running: true, Failure: failure,
		Result: activities.Result{
			Summary: fmt.Sprintf("replaced %s: %s is kept, stopped, as %s (not to be pruned: the undo needs it)", name,
				w.rec.Old.ID[:12], aside.NameFor(w.entry.Token)),
			Outputs: map[string]any{"container": fresh, "replaced": w.rec.Old.ID, "image": w.rec.Image},
			After:   digest,
		}})
}

func (w *swap) finish(done target.Completion) (target.Completion, error) {
	if err := w.token.CheckOpen(); err != nil {
		return done, err
	}
	_, err := w.token.Create(journal.Applied, &done)
	point.Reach("container.replace:applied")
	return done, err
}

// check runs the step's checks of a kind in a container.
func (w *swap) check(ctx context.Context, in string, when activities.When) (*activities.Error, error) {
	return target.Scene{Engine: w.Engine, Container: in}.Check(ctx, w.step.Checks, when, activities.Staged)
}
