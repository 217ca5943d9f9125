package environment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// rollback is environment.rollback.
type rollback struct{ *world }

type rollbackParams struct {
	Environment string `json:"environment" jsonschema:"the name of the environment"`
	To          string `json:"to"          jsonschema:"the id of the checkpoint to go back to: an output of environment.checkpoint, or as starter env show has it"`
	// IfDifferent goes with what has been undone before: often nothing is left to put back.
	IfDifferent bool `json:"if_different,omitempty" jsonschema:"true: the parts are compared with the checkpoint first, and where none differs nothing is stopped or put back, and nobody is asked"`
}

func (*rollback) Spec() activities.Spec {
	return activities.Spec{
		Name: "environment.rollback",
		Summary: "Puts all parts of an environment back to a checkpoint, exactly, and keeps what was there before in a " +
			"safety checkpoint.",
		Params: activities.ParamsSchema[rollbackParams](),
		Outputs: map[string]string{
			"safety": "the id of the safety checkpoint: going back to it leads forward again",
			"stages": "the stages that it has gone through, each with its status, its time, its parts and a note",
		},
		UndoParams: []string{"environment", "to"}, HostBound: true, Preflights: true, Risk: activities.High,
		Strategy: activities.Snapshot,
		Undo: "The environment goes forward to the safety checkpoint, unless somebody has changed one of its parts since. " +
			"It cannot take back what lies between the parts, such as calls of APIs.",
		Redo: "The environment is rolled back again, and what was there until then is kept in another safety checkpoint.",
	}
}

// Preflight implements activities.Preflighter.
func (a *rollback) Preflight(ctx context.Context, o activities.Outlook) error {
	programs := activities.CheckPrograms(ctx, o.Checks)
	p, err := activities.DecodeParams[rollbackParams](o.With)
	if err != nil || o.Awaits("environment") {
		return errors.Join(err, programs)
	}
	v, err := a.look(ctx, p.Environment, "")
	if err == nil && !o.Awaits("to") {
		_, err = a.target(v, p.To)
	}
	return errors.Join(err, programs)
}

// target finds the checkpoint to go back to.
func (*rollback) target(v Environment, to string) (Checkpoint, error) {
	c, there := v.find(to)
	switch {
	case !there:
		return c, activities.RefuseCurrent(key(v.Name),
			"to: environment %s has no checkpoint %q; `starter env show %s` lists them", v.Name, to, v.Name)
	case len(c.Parts) == 0:
		return c, activities.RefuseCurrent(key(v.Name), "to: no part of environment %s is in checkpoint %s", v.Name, to)
	}
	return c, nil
}

func (a *rollback) forward(ctx context.Context, e activities.Entry, s activities.Step) forward {
	return forward{
		plan: func() (activities.Change, record, error) { return a.plan(ctx, e, s) },
		ask: func(rec record) (activities.Result, error) {
			if rec.Same {
				return activities.Result{
					Summary: fmt.Sprintf("environment %s is as in checkpoint %s already", rec.Environment, rec.To),
					After:   activities.DigestOf([]byte(rec.To)),
				}, nil
			}
			done, err := a.Keeper.RollBack(ctx, rec.Environment,
				RollbackOrder{To: rec.To, Safety: rec.ID, Parts: rec.Parts, Step: rec.step()})
			return activities.Result{
				Summary: fmt.Sprintf("environment %s is as in checkpoint %s; checkpoint %s has what was there before",
					rec.Environment, rec.To, rec.ID),
				Outputs: map[string]any{"safety": rec.ID, "stages": done.Stages},
				After:   activities.DigestOf([]byte(rec.To)),
				Notes:   done.Notes,
			}, err
		},
	}
}

func (a *rollback) plan(ctx context.Context, e activities.Entry, s activities.Step) (activities.Change, record,
	error) {
	p, err := activities.DecodeParams[rollbackParams](s.With)
	if err != nil {
		return activities.Change{}, record{}, err
	}
	v, err := a.look(ctx, p.Environment, e.Place.Host)
	if err != nil {
		return activities.Change{}, record{}, err
	}
	to, err := a.target(v, p.To)
	if err != nil {
		return activities.Change{}, record{}, err
	}
	rec := record{Environment: v.Name, ID: idOf(e.Token, "safety"), To: to.ID}
	for _, part := range to.Parts {
		rec.Parts = append(rec.Parts, part.Name)
	}
	since := v.since(to.ID)
	if p.IfDifferent {
		left, err := a.compare(ctx, rec, to.ID)
		if err != nil {
			return activities.Change{}, rec, err
		}
		if rec.Same = left.same(); rec.Same {
			return activities.Change{
				Summary:  fmt.Sprintf("environment %s is as in checkpoint %s already", v.Name, to.ID),
				Strategy: activities.NoUndo, Undo: "nothing is changed", Risk: activities.Low, Unchanged: true,
				Keys: []string{key(v.Name)}, Digest: activities.DigestOf(s.With, []byte("same")),
			}, rec, nil
		}
	}
	past, err := a.goesPast(ctx, v.Name, to)
	if err != nil {
		return activities.Change{}, rec, err
	}
	return activities.Change{
		Summary: fmt.Sprintf("put environment %s back to checkpoint %s of %s: %s", v.Name, to.ID, timeOf(to),
			namesOf(to.Parts)),
		Diff: v.describe(to, since, past), Strategy: activities.Snapshot, Risk: activities.High,
		Undo:  "the environment goes forward to a safety checkpoint of what was there before",
		Facts: []string{"what anybody has changed in these parts since is there no longer; the safety checkpoint has it"},
		Keys:  []string{key(v.Name)},
		Digest: activities.DigestOf(s.With, v.facts(), fmt.Appendf(nil, "%q", to.Parts),
			[]byte(strings.Join(to.Untouched, "\n")), []byte(strings.Join(since, "\n")),
			[]byte(strings.Join(past.tasks, "\n"))),
	}, rec, nil
}

// past are the tasks whose changes a rollback takes back, and lines tell of them.
type past struct{ tasks, lines []string }

// maxPast is how many of these tasks are described.
const maxPast = 20

// goesPast finds the tasks whose changes a rollback takes back, without the one that asks for it: what
// that has done is undone with it.
func (a *rollback) goesPast(ctx context.Context, name string, to Checkpoint) (p past, err error) {
	wrote, unknown, err := a.Keeper.Wrote(ctx, name, to.ID)
	if err != nil {
		return p, err
	}
	for _, w := range wrote {
		if w.Task == activities.OwnerOf(ctx).Workflow {
			continue
		}
		line := fmt.Sprintf("- what task %s has changed is taken back: %s, last at %s", w.Task, strings.Join(w.Parts, ", "),
			w.At.UTC().Format(time.RFC3339))
		if w.Open {
			line += "; it is refused until that task has ended"
		}
		p.tasks, p.lines = append(p.tasks, w.Task), append(p.lines, line)
	}
	if more := len(p.lines) - maxPast; more > 0 {
		p.lines = append(p.lines[:maxPast], "- and the changes of "+activities.CountOf(more, "more task"))
	}
	for _, what := range unknown[:min(len(unknown), maxSince)] {
		p.lines = append(p.lines, "! "+what)
	}
	return p, nil
}

func timeOf(c Checkpoint) string { return c.Created.UTC().Format(time.RFC3339) }

// maxSince is how many newer checkpoints are named.
const maxSince = 5

// describe says what a rollback would put back, and what not.
func (e Environment) describe(to Checkpoint, since []string, p past) string {
	var b strings.Builder
	fmt.Fprintf(&b, "checkpoint %s, taken %s (%s) %s\n", to.ID, timeOf(to), to.Trigger, to.Notes)
	for _, p := range to.Parts {
		fmt.Fprintf(&b, "~ %s is put back, exactly\n", p)
	}
	for _, note := range to.Untouched {
		fmt.Fprintf(&b, "= %s\n", note)
	}
	if e.Unit != "" {
		fmt.Fprintf(&b, "! the unit %s is stopped meanwhile\n", e.Unit)
	} else {
		b.WriteString("! no unit is stopped\n")
	}
	if len(since) > 0 {
		fmt.Fprintf(&b, "! newer than that: %s", strings.Join(since[:min(len(since), maxSince)], ", "))
		if len(since) > maxSince {
			fmt.Fprintf(&b, " and %s", activities.CountOf(len(since)-maxSince, "more checkpoint"))
		}
		b.WriteByte('\n')
	}
	for _, line := range p.lines {
		b.WriteString(line + "\n")
	}
	fmt.Fprintf(&b, "what differs now: starter env diff %s %s\n", e.Name, to.ID)
	return b.String()
}

// Plan implements activities.Action.
func (a *rollback) Plan(ctx context.Context, e activities.Entry, s activities.Step) (activities.Change, error) {
	return a.planOpen(e, a.forward(ctx, e, s))
}

// Apply implements activities.Action.
func (a *rollback) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (activities.Result, error) {
	return a.act(ctx, e, s, want, a.forward(ctx, e, s))
}

// Release implements activities.Action.
func (a *rollback) Release(ctx context.Context, e activities.Entry) error { return a.release(ctx, e) }

// compare compares a checkpoint with what the parts of the step are now.
func (a *rollback) compare(ctx context.Context, rec record, id string) (differences, error) {
	all, err := a.Keeper.Compare(ctx, rec.Environment, id)
	d := differences{of: rec.Environment, from: id}
	for _, name := range rec.Parts {
		i := slices.IndexFunc(all, func(each Difference) bool { return each.Part == name })
		if i < 0 {
			d.missing = append(d.missing, name)
			continue
		}
		d.digests = append(d.digests, name, all[i].Digest)
		if all[i].Changed > 0 {
			d.changed = append(d.changed, all[i])
		}
	}
	return d, err
}

// differences are those between a checkpoint and the parts that a step has put back.
type differences struct {
	of, from string
	changed  []Difference
	// missing are parts that the environment no longer has.
	missing []string
	digests []string
}

// same reports whether nothing differs but the times of folders: each undo of a step that has made a
// file leaves another one.
func (d differences) same() bool {
	return len(d.missing) == 0 && !slices.ContainsFunc(d.changed, func(c Difference) bool { return c.Changed > c.Times })
}

// lines says what differs.
func (d differences) lines() (lines []string) {
	for _, c := range d.changed {
		lines = append(lines, fmt.Sprintf("part %s: %s from checkpoint %s", c.Part,
			activities.CountOf(c.Changed, "difference"), d.from))
	}
	for _, name := range d.missing {
		lines = append(lines, fmt.Sprintf("part %s is no longer in environment %s", name, d.of))
	}
	return lines
}

func (d differences) drift() *activities.Drift {
	var b strings.Builder
	for _, line := range d.lines() {
		fmt.Fprintf(&b, "! %s\n", line)
	}
	for _, c := range d.changed {
		fmt.Fprintf(&b, "%s\n", c.Diff)
	}
	return &activities.Drift{
		Digest: activities.DigestOf([]byte(strings.Join(d.digests, "\n")), []byte(strings.Join(d.missing, "\n"))),
		Diff:   activities.HeadDiff(b.String(), activities.MaxDiff),
	}
}

// Observe implements activities.Action.
func (a *rollback) Observe(ctx context.Context, e activities.Entry) (o activities.Observation, err error) {
	t, err := a.token(e)
	if err != nil {
		return o, err
	}
	var rec record
	if found, err := t.Read(journal.Record, &rec); err != nil || !found {
		return activities.Observation{State: activities.Unseen, Detail: "the journal has no record of a rollback"}, err
	}
	if rec.Same {
		return activities.Observation{State: activities.AsLeft, Detail: "there was nothing to put back"}, nil
	}
	v, err := a.settle(ctx, rec, false)
	if err != nil {
		return o, err
	}
	if _, there := v.find(rec.ID); !there {
		if acted, err := a.Keeper.Await(ctx, rec.Environment, rec.ID); err != nil || acted {
			return activities.Observation{State: activities.Unseen, Detail: rec.lostSafety().Message}, err
		}
		return activities.Observation{State: activities.AsBefore, Detail: "the environment was not rolled back"}, nil
	}
	left, err := a.compare(ctx, rec, rec.To)
	if err != nil {
		return o, err
	}
	if left.same() {
		return activities.Observation{State: activities.AsLeft, Detail: "it is as in checkpoint " + rec.To}, nil
	}
	before, err := a.compare(ctx, rec, rec.ID)
	if err == nil && before.same() {
		return activities.Observation{State: activities.AsBefore, Detail: "it is as in checkpoint " + rec.ID}, nil
	}
	return activities.Observation{State: activities.Elsewise, Drift: left.drift()}, err
}

// lostSafety is why a rollback that has acted cannot be undone.
func (r record) lostSafety() *activities.Error {
	return activities.Errorf(activities.ActionDenied,
		"environment %s was rolled back to %s, and its safety checkpoint %s is gone: somebody has unpinned and deleted "+
			"it, or removed the environment; nothing was touched: decide what becomes of the step", r.Environment, r.To, r.ID)
}
