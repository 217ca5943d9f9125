package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-62bf7108/unwind/examples"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/session"
)

// scriptedAgent plays the agent of an example in its session.
type scriptedAgent struct {
	session.Session
	say     func(string)
	catchUp func() // waits until everything that has happened is shown
}

// work does all acts and finishes the session, or aborts it where one does not end as the example
// says.
func (a scriptedAgent) work(ctx context.Context, acts []examples.Act) error {
	for i, act := range acts {
		if err := a.act(ctx, fmt.Sprintf("act-%d", i+1), act); err != nil {
			err = fmt.Errorf("the agent, act %d: %w", i+1, err)
			if ctx.Err() != nil {
				return err
			}
			_, aborted := a.Abort(ctx, "abort", protocol.AbortRequest{Who: "starter demo", Why: err.Error()})
			return errors.Join(err, aborted)
		}
	}
	a.say("agent: finish")
	_, err := a.Finish(ctx, "finish")
	return err
}

// act makes one request, and waits until it is over, also where a person has to decide first.
func (a scriptedAgent) act(ctx context.Context, request string, act examples.Act) error {
	var answer protocol.Answer
	var err error
	switch {
	case act.Savepoint != "":
		a.say(fmt.Sprintf("agent: savepoint %s: %s", act.Savepoint, act.Why))
		answer, err = a.Savepoint(ctx, request, act.Savepoint)
	case act.Rollback != "":
		a.say(fmt.Sprintf("agent: rollback to %s: %s", act.Rollback, act.Why))
		answer, err = a.Rollback(ctx, request, protocol.SessionRollback{To: act.Rollback, Why: act.Why})
	default:
		a.say(fmt.Sprintf("agent: step %s: %s", act.ID(), act.Why))
		answer, err = a.Step(ctx, request, act.Step)
	}
	if err == nil && answer.Pending {
		answer, err = a.Await(ctx, request)
	}
	if err != nil {
		return err
	}
	a.catchUp()
	for _, s := range answer.Steps {
		if s.State != act.Ends {
			return fmt.Errorf("step %s is %s, not %s: %s", s.ID, s.State, act.Ends, s.Error)
		}
	}
	return nil
}
