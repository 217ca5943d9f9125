package environments

import (
	"errors"
	"slices"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/environment"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// What steps of tasks ask. An undo of a step first closes the token in its journal, and then waits
// until nothing that the step has asked is under way here. Since one operation at a time is, and each
// asks the journal after it has begun, what a forward has asked is either over by then or refused: see
// AdmitActivity.

// admit refuses what a step asks too late. It is called between begin and end.
func (k *keeper) admit(ctx workflow.Context, s *environment.Step, undoing bool) error {
	if s == nil {
		return nil
	}
	err := k.call(ctx, k.home, "ask the journal about step "+s.ID, environment.AdmitActivity,
		environment.AdmitRequest{Token: s.Token, Undoing: undoing}, nil)
	if refused, is := errors.AsType[*temporal.ApplicationError](err); is {
		return protocol.RefuseRequestf(refused.Type(), "%s", refused.Message())
	}
	return err
}

// need keeps a checkpoint until a step lets go of it.
func (k *keeper) need(ctx workflow.Context, c environment.Stored, s environment.Step) error {
	if slices.Contains(c.NeededBy, s) {
		return nil
	}
	c.NeededBy = append(slices.Clone(c.NeededBy), s)
	return k.update(ctx, "keep checkpoint "+c.ID+" for the undo of step "+s.ID, environment.KeepActivity, c)
}

// letGo ends what a step needs checkpoints for.
func (k *keeper) letGo(ctx workflow.Context, token string) error {
	end, err := k.begin(ctx, "let go of what a step needed", "")
	if err != nil {
		return err
	}
	defer end()
	isOf := func(s environment.Step) bool { return s.Token == token }
	for _, c := range slices.Clone(k.stored) {
		if !slices.ContainsFunc(c.NeededBy, isOf) {
			continue
		}
		c.NeededBy = slices.DeleteFunc(slices.Clone(c.NeededBy), isOf)
		if err := k.update(ctx, "let go of checkpoint "+c.ID, environment.KeepActivity, c); err != nil {
			return err
		}
	}
	return nil
}

// refuseKept refuses to delete what has to stay.
func refuseKept(c environment.Checkpoint) error {
	switch {
	case c.Pinned:
		return protocol.RefuseRequestf(environment.Pinned, "checkpoint %s is pinned: unpin it first", c.ID)
	case len(c.NeededBy) > 0:
		first := c.NeededBy[0]
		return protocol.RefuseRequestf(environment.Pinned, "checkpoint %s is needed by step %s of task %s%s: it can be "+
			"deleted once their records are released; or give it up all the same: starter env unpin %s %s", c.ID, first.ID,
			first.Task, moreSteps(len(c.NeededBy)-1), c.Environment, c.ID)
	}
	return nil
}

func moreSteps(n int) string {
	if n == 0 {
		return ""
	}
	return " and " + activities.CountOf(n, "more step")
}
