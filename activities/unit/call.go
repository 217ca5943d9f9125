package unit

import (
	"context"
	"fmt"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/isolated"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// record says how the unit was.
type record struct {
	journal.Owned

	Ran bool `json:"ran"`
	// Acts is false for a step that leaves the unit as it is.
	Acts bool `json:"acts"`
}

// call is one call, in its process.
type call struct {
	job

	token *journal.Token
	verb  verb
	name  string
	unit  subject
	// does is false for a step that is to leave the unit as it is.
	does bool
}

// do runs a job, in its process.
func do(ctx context.Context, j job) (any, error) {
	w, err := openWorld(j.Config)
	if err != nil {
		return nil, err
	}
	c := &call{job: j, verb: verbOf(j.Entry.Action)}
	if c.token, err = w.journal.Token(j.Entry.Token); err != nil {
		return nil, err
	}
	with := j.Step.With
	if len(with) == 0 {
		with = j.Entry.Params
	}
	p, does, err := paramsOf(j.Entry.Action, with)
	if err != nil {
		return nil, err
	}
	c.name, c.does, c.unit.absent, c.unit.pauses = p.Unit, does, p.Absent, c.verb.pauses
	if j.Op == isolated.Undo {
		return c.undo(ctx, w)
	}
	if err := c.findUnit(ctx, w); err != nil {
		return nil, err
	}
	switch j.Op {
	case isolated.Plan:
		return c.plan(ctx)
	case isolated.Apply:
		return c.apply(ctx)
	case isolated.Observe:
		return c.observe(ctx)
	}
	return nil, fmt.Errorf("there is no call %q", j.Op)
}

// findUnit finds the unit. What is not there cannot be started: where that may be, it is left so.
func (c *call) findUnit(ctx context.Context, w *world) (err error) {
	if c.unit.Unit, err = w.find(c.name); err != nil {
		return err
	}
	if err := c.verb.check(c.name, c.unit.Unit); err != nil || !c.unit.absent || c.unit.Container == "" {
		return err
	}
	there, err := c.unit.isThere(ctx)
	c.does = c.does && (there || !c.verb.run)
	return err
}

// reach reports the point after a side effect.
func (c *call) reach(what string) { point.Reach(c.Entry.Action + ":" + what) }

func (c *call) plan(ctx context.Context) (activities.Change, error) {
	if err := c.token.CheckOpen(); err != nil {
		return activities.Change{}, err
	}
	runs, err := c.unit.runs(ctx)
	return c.change(runs), err
}

// change is what the step would do to a unit in that state.
func (c *call) change(runs bool) activities.Change {
	change := activities.Change{
		Strategy: activities.Compensation, Risk: activities.Medium, Keys: []string{keyPrefix + c.name},
		Undo:      "nothing has to be undone: the unit " + c.verb.stateOf(runs),
		Unchanged: !c.does || runs == c.verb.run,
		Digest:    activities.DigestOf([]byte(c.Entry.Action), []byte(c.name), fmt.Append(nil, runs, c.does)),
	}
	change.Summary = fmt.Sprintf("%s the unit %s, which %s", c.verb.does, c.name, c.verb.stateOf(runs))
	if !c.does {
		change.Summary = fmt.Sprintf("leave the unit %s as it is", c.name)
	}
	if !change.Unchanged {
		change.Undo = c.verb.undo
	}
	return change
}

func (c *call) apply(ctx context.Context) (r activities.Result, err error) {
	unlock, err := c.LockToken(ctx, c.token)
	if err != nil {
		return r, err
	}
	defer unlock()
	if err := c.token.CheckOpen(); err != nil {
		return r, err
	}
	rec, err := c.begin(ctx)
	if err != nil {
		return r, err
	}
	c.reach("recorded")
	if done, err := c.token.Has(journal.Applied); err != nil {
		return r, err
	} else if !done {
		if err := c.act(ctx); err != nil {
			return r, err
		}
		c.reach("switched")
		if _, err := c.token.Create(journal.Applied, &struct{}{}); err != nil {
			return r, err
		}
	}
	c.reach("applied")
	left := c.does && c.verb.run || !c.does && rec.Ran
	return activities.Result{
		Summary: fmt.Sprintf("the unit %s %s", c.name, c.verb.stateOf(left)), Outputs: map[string]any{"ran": rec.Ran},
		After: activities.DigestOf(fmt.Append(nil, left)),
	}, nil
}

// act stops or starts the unit. What an earlier attempt has started is ended first.
func (c *call) act(ctx context.Context) error {
	if !c.does {
		return nil
	}
	isolated.KillStarted(c.Entry.Token)
	c.reach("alone")
	return c.switchTo(ctx, c.verb.run)
}

// begin reads the record, or makes it.
func (c *call) begin(ctx context.Context) (rec record, err error) {
	if found, err := c.token.Read(journal.Record, &rec); err != nil || found {
		return rec, err
	}
	runs, err := c.unit.runs(ctx)
	if err != nil {
		return rec, err
	}
	change := c.change(runs)
	if err := c.Approval.Judge(change); err != nil {
		return rec, err
	}
	if c.Want != "" && c.Want != change.Digest {
		return rec, activities.Errorf(activities.StaleApproval,
			"the unit %s is not as it was when the step was approved: it %s",
			c.name, c.verb.stateOf(runs))
	}
	rec = record{Owned: journal.Own(ctx, c.Entry), Ran: runs, Acts: c.does}
	_, err = c.token.Create(journal.Record, &rec)
	return rec, err
}

// switchTo starts or stops the unit, unless it is as it is to be.
func (c *call) switchTo(ctx context.Context, run bool) error {
	runs, err := c.unit.runs(ctx)
	if err != nil || runs == run {
		return err
	}
	return c.force(ctx, run)
}

// force starts or stops the unit, as which it may look already.
func (c *call) force(ctx context.Context, run bool) error {
	if err := c.unit.switchTo(ctx, run); err != nil {
		return fmt.Errorf("unit %s: %w", c.name, err)
	}
	runs, err := c.unit.runs(ctx)
	if err == nil && runs != run {
		err = activities.Errorf(activities.ActionFailed, "unit %s: it was to be switched, which has succeeded, and it %s",
			c.name, c.verb.stateOf(runs))
	}
	return err
}

func (c *call) undo(ctx context.Context, w *world) (u activities.Undone, err error) {
	if u, isOver, err := c.token.BeginUndo(); isOver || err != nil {
		return u, err
	}
	c.reach("closed")
	unlock, err := c.LockToken(ctx, c.token)
	if err != nil {
		return u, err
	}
	defer unlock()
	if u, isOver, err := c.token.BeginUndo(); isOver || err != nil { // by another undo meanwhile
		return u, err
	}
	var rec record
	found, err := c.token.Read(journal.Record, &rec)
	if err == nil && !found {
		err = c.token.CheckNotLost(c.Decision.Done)
	}
	if err != nil {
		return u, err
	}
	u = activities.Undone{Outcome: activities.Nothing, Observed: "the unit was neither stopped nor started"}
	if found {
		if err := c.findUnit(ctx, w); err != nil {
			return u, err
		}
		if u, isDrifted, err := c.lookForDrift(ctx, rec); isDrifted || err != nil {
			return u, err
		}
		if rec.Acts {
			err = c.goBack(ctx, rec.Ran)
		}
		if err != nil {
			return u, err
		}
		u = activities.Undone{Outcome: activities.Restored,
			Observed: fmt.Sprintf("the unit %s %s, as before", c.name, c.verb.stateOf(rec.Ran))}
	}
	_, err = c.token.Create(journal.Outcome, &u)
	c.reach("undone")
	return u, err
}

// lookForDrift finds a container that was paused, and that somebody has stopped since: nothing is
// left to resume, and only a person says that it is to be started.
func (c *call) lookForDrift(ctx context.Context, rec record) (u activities.Undone, isDrifted bool, err error) {
	if !rec.Acts || !c.unit.pauses || c.verb.run || !rec.Ran {
		return u, false, nil
	}
	isolated.KillStarted(c.Entry.Token)
	b, err := c.unit.openContainer()
	if err != nil {
		return u, false, err
	}
	rests, err := b.rests(ctx)
	if err != nil || !rests {
		return u, false, err
	}
	drift := activities.Drift{Digest: activities.DigestOf([]byte(c.name), []byte("stopped")),
		Diff: fmt.Sprintf("the unit %s has been stopped since it was paused; force starts it", c.name)}
	if c.Decision.Force == drift.Digest {
		return u, false, b.switchTo(ctx, true)
	}
	return activities.Undone{Outcome: activities.Drifted, Observed: drift.Diff, Drift: &drift}, true, nil
}

// goBack makes the unit run or not, as before, and ends what calls of this token have started: a
// command that stops it at once, one that has started it once the unit was asked to stop. It acts
// however the unit looks: what a command has asked of a service manager may still be under way.
func (c *call) goBack(ctx context.Context, ran bool) error {
	if ran == c.verb.run { // the step had nothing to do
		c.reach("fenced")
		return nil
	}
	if ran {
		isolated.KillStarted(c.Entry.Token)
	}
	if err := c.force(ctx, ran); err != nil {
		return err
	}
	if !ran {
		isolated.KillStarted(c.Entry.Token)
	}
	c.reach("fenced")
	return nil
}

func (c *call) observe(ctx context.Context) (o activities.Observation, err error) {
	var rec record
	if found, err := c.token.Read(journal.Record, &rec); err != nil || !found {
		return activities.Observation{State: activities.Unseen, Detail: "the journal has no record of the step"}, err
	}
	runs, err := c.unit.runs(ctx)
	switch {
	case err != nil:
		return o, err
	case runs == c.verb.run:
		o.State = activities.AsLeft
	default:
		o.State = activities.AsBefore
	}
	o.Detail = fmt.Sprintf("the unit %s %s", c.name, c.verb.stateOf(runs))
	return o, nil
}
