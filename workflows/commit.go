package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

// commitBatch bounds the tokens of one activity.
const commitBatch = 1000

// commit makes what the task has done durable where its world wants to be told so, before the task closes. Where it fails, or
// the task is canceled meanwhile, the task is to unwind: that is its cause then.
func (t *agentTask) commit(ctx workflow.Context) bool {
	err := t.commitEntries(ctx, t.saga.Entries())
	if err != nil {
		t.cause = &compensations.Cause{Kind: kindOf(ctx, err), Text: "what the task did could not be made durable: " + compensations.Reason(err)}
	}
	return err == nil
}

// commitPivot makes all durable that a step which is done puts out of reach of an unwinding. No cancellation keeps it from that.
func (t *agentTask) commitPivot(ctx workflow.Context, s *stepRun) {
	if !s.step.Pivot {
		return
	}
	var passed []activities.Entry
	for _, e := range t.saga.Entries() {
		if e.Seq <= s.seq {
			passed = append(passed, e)
		}
	}
	t.commitAnyway(ctx, passed)
}

// commitAnyway makes durable what stands of entries, whatever ends the task meanwhile.
func (t *agentTask) commitAnyway(ctx workflow.Context, entries []activities.Entry) {
	calm, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	if err := t.commitEntries(calm, entries); err != nil {
		t.notes = append(t.notes, "a restart may hide what stands: it could not be made durable: "+compensations.Reason(err))
	}
}

// commitEntries tells each action of each place once, in the order of the ledger. Where no worker is there, it waits.
func (t *agentTask) commitEntries(ctx workflow.Context, entries []activities.Entry) error {
	type target struct {
		action string
		place  activities.Place
	}
	var order []target
	tokens := map[target][]string{}
	for _, e := range entries {
		if !e.Commits {
			continue
		}
		at := target{e.Action, e.Place}
		if tokens[at] == nil {
			order = append(order, at)
		}
		tokens[at] = append(tokens[at], e.Token)
	}
	for _, at := range order {
		for left := tokens[at]; len(left) > 0; left = left[min(commitBatch, len(left)):] {
			batch := left[:min(commitBatch, len(left))]
			done, err := commitAt(ctx, at.action, activities.Commitment{Place: at.place, Tokens: batch})
			if err != nil {
				return err
			}
			t.notes = append(t.notes, done.Notes...)
		}
	}
	return nil
}

// commitAt runs one commit. A worker that stops costs no attempt.
func commitAt(ctx workflow.Context, action string, c activities.Commitment) (done activities.Committed, err error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: c.Place.Queue, StartToCloseTimeout: activities.DefaultUndoAttempt, HeartbeatTimeout: activities.DefaultUndoHeartbeat,
		WaitForCancellation: true, Summary: fmt.Sprintf("make durable what %d steps did", len(c.Tokens)),
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute},
	})
	for {
		err = workflow.ExecuteActivity(ctx, action+activities.CommitSuffix, c).Get(ctx, &done)
		if !isType(err, activities.WorkerStopping) || ctx.Err() != nil {
			return done, err
		}
	}
}
