package mcpserver

import (
	"context"
	"errors"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/declared"
)

// readAction calls tools that change nothing. It keeps no record.
type readAction struct{ *world }

func (*readAction) Spec() activities.Spec {
	return activities.Spec{
		Name: string(reads), Summary: "Calls a tool of an MCP server that only reads.",
		Params: activities.ParamsSchema[params](), Outputs: outputs,
		UndoParams: []string{"server", "tool", "arguments"}, Digested: []string{"arguments"},
		Keys: []activities.Key{{Prefix: "mcp:", Param: "server"}}, HostBound: true, ReadOnly: true, Risk: activities.Low,
		Strategy: activities.NoUndo, Undo: "it changes nothing.",
	}
}

func (r *readAction) begin(e activities.Entry) (*oneCall, error) {
	return (&action{r.world, reads}).begin(e)
}

// prepare connects, and checks that the tool only reads.
func (r *readAction) prepare(ctx context.Context, s activities.Step) (*connection, params, activities.Change, error) {
	p, err := decodeCall(s)
	if err != nil {
		return nil, p, activities.Change{}, err
	}
	c, err := r.connect(ctx, p.Server)
	var listed listedTool
	if err == nil {
		listed, err = r.checkClass(ctx, c, reads, p.Server, p.Tool)
	}
	if err != nil {
		return nil, p, activities.Change{}, err
	}
	change := (&prepared{declared.Call{Tool: p.Tool, Arguments: p.Arguments}, c, p.Server, listed}).change()
	change.Strategy, change.Undo, change.Risk, change.Facts, change.Unchanged = activities.NoUndo, "it changes nothing",
		activities.Low, nil, true
	return c, p, change, nil
}

// Plan touches nothing.
func (r *readAction) Plan(ctx context.Context, e activities.Entry, s activities.Step) (activities.Change, error) {
	if _, err := r.begin(e); err != nil {
		return activities.Change{}, err
	}
	_, _, change, err := r.prepare(ctx, s)
	return change, err
}

// Apply calls the tool.
func (r *readAction) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (activities.Result, error) {
	var none activities.Result
	o, err := r.begin(e)
	if err != nil {
		return none, err
	}
	if err := o.token.CheckOpen(); err != nil {
		return none, err
	}
	c, p, change, err := r.prepare(ctx, s)
	if err != nil {
		return none, err
	}
	if want != "" && want != change.Digest {
		return none,
			activities.Errorf(activities.StaleApproval,
				"the call, or the tool as its server lists it, is not what was approved; plan and approve it again")
	}
	o.reach("ready")
	a, err := c.call(ctx, e.Token, p.Tool, p.Arguments)
	if unfit, is := errors.AsType[unfitError](err); is {
		return none, activities.Errorf(activities.Unsuccessful, "%s of server %s: %v", p.Tool, p.Server, unfit)
	} else if err != nil {
		return none, err
	}
	o.reach("called")
	said := a.read()
	if err := failureOf(said, p.Server, p.Tool); err != nil {
		return none, err
	}
	result := resultOf(p.Server, declared.Call{Tool: p.Tool}, said, nil)
	return result, activities.RunChecks(ctx, s.Checks, activities.Live, activities.Live, scene{result})
}

// Undo only fences.
func (r *readAction) Undo(_ context.Context, e activities.Entry, _ activities.Decision) (undone activities.Undone,
	err error) {
	o, err := r.begin(e)
	if err != nil {
		return undone, err
	}
	if undone, isOver, err := o.token.BeginUndo(); isOver || err != nil {
		return undone, err
	}
	return o.settle(activities.Undone{Outcome: activities.Nothing, Observed: "it only reads"})
}

// Observe says that nothing was changed.
func (r *readAction) Observe(_ context.Context, e activities.Entry) (activities.Observation, error) {
	_, err := r.begin(e)
	return activities.Observation{State: activities.Unseen, Detail: "it only reads"}, err
}

// Release leaves the tombstone.
func (r *readAction) Release(_ context.Context, e activities.Entry) error {
	o, err := r.begin(e)
	if err != nil {
		return err
	}
	return o.release()
}
