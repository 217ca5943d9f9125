package environment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// checkpoint is environment.checkpoint.
type checkpoint struct{ *world }

type checkpointParams struct {
	Environment string `json:"environment"      jsonschema:"the name of the environment"`
	Notes       string `json:"notes,omitempty"  jsonschema:"what people should know about the checkpoint, at most 500 bytes"`
	Pinned      bool   `json:"pinned,omitempty" jsonschema:"true: it is kept until it is unpinned, whatever the retention says"`
}

// MaxNotes bounds the notes of a checkpoint, in bytes.
const MaxNotes = 500

func (*checkpoint) Spec() activities.Spec {
	return activities.Spec{
		Name: "environment.checkpoint",
		Summary: "Takes a checkpoint of an environment: all of its parts at one moment, while the unit that uses them is " +
			"stopped.",
		Params: activities.ParamsSchema[checkpointParams](),
		Outputs: map[string]string{
			"checkpoint": "the id of the checkpoint, for environment.rollback",
			"quiesced":   "whether the unit was stopped or paused while the parts were captured",
			"bytes":      "how many bytes the parts have",
		},
		UndoParams: []string{"environment"}, HostBound: true, Preflights: true, Risk: activities.Low,
		Strategy: activities.Compensation,
		Undo:     "The checkpoint is deleted; the parts were never changed. One that somebody else has pinned since stays.",
		Redo:     "A new checkpoint is taken, of what is there then.",
	}
}

func (a *checkpoint) check(p checkpointParams) error {
	if len(p.Notes) > MaxNotes {
		return activities.Errorf(activities.Refused, "notes: they have %s, more than %d",
			activities.CountOf(len(p.Notes), "byte"), MaxNotes)
	}
	return a.checkName(p.Environment)
}

// Preflight implements activities.Preflighter.
func (a *checkpoint) Preflight(ctx context.Context, o activities.Outlook) error {
	p, err := activities.DecodeParams[checkpointParams](o.With)
	if err != nil || o.Awaits("environment") {
		return errors.Join(err, activities.CheckPrograms(ctx, o.Checks))
	}
	if err = a.check(p); err == nil {
		_, err = a.look(ctx, p.Environment, "")
	}
	return errors.Join(err, activities.CheckPrograms(ctx, o.Checks))
}

func (a *checkpoint) forward(ctx context.Context, e activities.Entry, s activities.Step) forward {
	return forward{
		plan: func() (activities.Change, record, error) { return a.plan(ctx, e, s) },
		ask: func(rec record) (activities.Result, error) {
			made, err := a.Keeper.Checkpoint(ctx, rec.Environment,
				CheckpointOrder{ID: rec.ID, Notes: rec.Notes, Pinned: rec.Pinned, Step: rec.step()})
			return activities.Result{
				Summary: fmt.Sprintf("checkpoint %s of environment %s: %s, %s", made.ID, rec.Environment,
					activities.CountOf(len(made.Parts), "part"), activities.CountOf(made.Bytes, "byte")),
				Outputs: map[string]any{"checkpoint": made.ID, "quiesced": made.Quiesced, "bytes": made.Bytes},
				After:   activities.DigestOf([]byte(made.ID)),
			}, err
		},
	}
}

func (a *checkpoint) plan(ctx context.Context, e activities.Entry, s activities.Step) (activities.Change, record,
	error) {
	p, err := activities.DecodeParams[checkpointParams](s.With)
	if err == nil {
		err = a.check(p)
	}
	if err != nil {
		return activities.Change{}, record{}, err
	}
	v, err := a.look(ctx, p.Environment, e.Place.Host)
	c := activities.Change{
		Summary: fmt.Sprintf("take a checkpoint of environment %s: %s", v.Name, namesOf(v.Parts)), Risk: activities.Low,
		Strategy: activities.Compensation, Undo: "the checkpoint is deleted", Keys: []string{key(v.Name)},
		Digest: activities.DigestOf(s.With, v.facts()),
	}
	if v.Quiesced != "" {
		c.Risk, c.Facts = activities.Medium, []string{"the unit " + v.Unit + " is " + v.Quiesced + " meanwhile"}
	}
	for _, part := range v.Parts {
		if part.Memory {
			c.Risk = activities.Medium
			c.Facts = append(c.Facts, "the machine with "+part.Resource+" stands still while its memory is written")
		}
	}
	return c, record{Environment: p.Environment, ID: idOf(e.Token, "checkpoint"), Notes: p.Notes, Pinned: p.Pinned}, err
}

// facts are what an approval covers of an environment.
func (e Environment) facts() []byte {
	parts := slices.Clone(e.Parts)
	slices.SortFunc(parts, func(a, b Part) int { return strings.Compare(a.Name, b.Name) })
	return fmt.Appendf(nil, "%q %q %q %q", e.Name, e.Unit, e.Quiesced, parts)
}

func namesOf(parts []Part) string {
	names := make([]string, len(parts))
	for i, p := range parts {
		names[i] = p.Name
	}
	return strings.Join(names, ", ")
}

// Plan implements activities.Action.
func (a *checkpoint) Plan(ctx context.Context, e activities.Entry, s activities.Step) (activities.Change, error) {
	return a.planOpen(e, a.forward(ctx, e, s))
}

// Apply implements activities.Action.
func (a *checkpoint) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (activities.Result, error) {
	return a.act(ctx, e, s, want, a.forward(ctx, e, s))
}

// Undo implements activities.Action.
func (a *checkpoint) Undo(ctx context.Context, e activities.Entry, d activities.Decision) (u activities.Undone,
	err error) {
	t, err := a.token(e)
	if err != nil {
		return u, err
	}
	if u, isOver, err := t.BeginUndo(); isOver || err != nil {
		return u, err
	}
	actionOf(e).reach("closed")
	var rec record
	found, err := t.Read(journal.Record, &rec)
	if err == nil && !found {
		err = t.CheckNotLost(d.Done)
	}
	if err != nil {
		return u, err
	}
	u = activities.Undone{Outcome: activities.Nothing, Observed: "no checkpoint was taken"}
	if found {
		if u, err = a.delete(ctx, t, rec, d); err != nil || u.Outcome == activities.Drifted {
			return u, err
		}
	}
	actionOf(e).reach("deleted")
	_, err = t.Create(journal.Outcome, &u)
	return u, err
}

// delete deletes the checkpoint of a step, if it is there.
func (a *checkpoint) delete(ctx context.Context, t *journal.Token, rec record,
	d activities.Decision) (u activities.Undone, err error) {
	v, err := a.settle(ctx, rec, true)
	if err != nil {
		return u, err
	}
	if _, err := a.Keeper.Await(ctx, rec.Environment, rec.ID); err != nil {
		return u, err
	}
	c, there := v.find(rec.ID)
	taken, err := t.Has(journal.Applied)
	switch {
	case err != nil:
		return u, err
	case !there && (taken || d.Done):
		return activities.Undone{Outcome: activities.Restored,
			Observed: fmt.Sprintf("environment %s has no checkpoint %s any more", rec.Environment, rec.ID)}, nil
	case !there:
		return activities.Undone{Outcome: activities.Nothing,
			Observed: fmt.Sprintf("environment %s has no checkpoint %s", rec.Environment, rec.ID)}, nil
	}
	if drift := rec.drift(c); drift != nil && d.Force != drift.Digest {
		return activities.Undone{Outcome: activities.Drifted, Drift: drift,
			Observed: fmt.Sprintf("somebody has pinned checkpoint %s since", rec.ID)}, nil
	}
	if err := a.Keeper.LetGo(ctx, rec.Environment, rec.Entry.Token); err != nil {
		return u, err
	}
	if err := a.Keeper.Delete(ctx, rec.Environment, rec.ID, c.Pinned); err != nil {
		return u, err
	}
	if v, err = a.Keeper.Look(ctx, rec.Environment); err != nil {
		return u, err
	}
	if _, there := v.find(rec.ID); there {
		return u, activities.Errorf(activities.ActionFailed, "checkpoint %s is still there", rec.ID)
	}
	return activities.Undone{Outcome: activities.Restored,
		Observed: fmt.Sprintf("checkpoint %s of environment %s is deleted", rec.ID, rec.Environment)}, nil
}

// drift is that somebody else wants to keep the checkpoint.
func (r record) drift(c Checkpoint) *activities.Drift {
	if !c.Pinned || r.Pinned {
		return nil
	}
	return &activities.Drift{Digest: activities.DigestOf([]byte(c.ID), []byte("pinned")),
		Diff: fmt.Sprintf("+ checkpoint %s is pinned: somebody has decided to keep it", c.ID)}
}

// Observe implements activities.Action.
func (a *checkpoint) Observe(ctx context.Context, e activities.Entry) (o activities.Observation, err error) {
	t, err := a.token(e)
	if err != nil {
		return o, err
	}
	var rec record
	if found, err := t.Read(journal.Record, &rec); err != nil || !found {
		return activities.Observation{State: activities.Unseen, Detail: "the journal has no record of a checkpoint"}, err
	}
	v, err := a.Keeper.Look(ctx, rec.Environment)
	if err != nil {
		return o, err
	}
	c, there := v.find(rec.ID)
	switch {
	case !there && v.Doing != nil && v.Doing.ID == rec.ID:
		return activities.Observation{State: activities.Unseen, Detail: "it is being taken"}, nil
	case !there:
		return activities.Observation{State: activities.AsBefore, Detail: "there is no checkpoint " + rec.ID}, nil
	}
	if drift := rec.drift(c); drift != nil {
		return activities.Observation{State: activities.Elsewise, Drift: drift}, nil
	}
	return activities.Observation{State: activities.AsLeft, Detail: "checkpoint " + rec.ID + " is there"}, nil
}

// Release implements activities.Action. From then on the checkpoint stays for as long as the
// retention of its environment keeps it.
func (a *checkpoint) Release(ctx context.Context, e activities.Entry) error { return a.release(ctx, e) }
