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

// committer tells worlds which steps stay, so that they make them durable: see activities.Committer.
type committer struct {
	saga *compensations.Saga
	note func(note string) // adds a note to the report
}

// commitLedger makes what the task has done durable before the task closes. If that fails, or the task is canceled meanwhile, the
// task must unwind.
func (c *committer) commitLedger(ctx workflow.Context) error {
	return c.commitEntries(ctx, c.saga.Entries())
}

// commitPassed makes durable everything up to a pivot that is done: no unwinding reaches it any more. A cancellation does not stop it.
func (c *committer) commitPassed(ctx workflow.Context, s *stepRun) {
	if !s.step.Pivot {
		return
	}
	var passed []activities.Entry
	for _, e := range c.saga.Entries() {
		if e.Seq <= s.seq {
			passed = append(passed, e)
		}
	}
	c.commitRemaining(ctx, passed)
}

// commitRemaining makes durable those of entries that are not undone, whatever ends the task meanwhile.
func (c *committer) commitRemaining(ctx workflow.Context, entries []activities.Entry) {
	calm, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	if err := c.commitEntries(calm, entries); err != nil {
		c.note("a restart may hide what stands: it could not be made durable: " + compensations.Reason(err))
	}
}

// commitEntries tells each action at each place, in the order of the ledger, and waits where no worker serves the place.
func (c *committer) commitEntries(ctx workflow.Context, entries []activities.Entry) error {
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
		at := target{e.Action, e.Place.WithoutEpochs()}
		if tokens[at] == nil {
			order = append(order, at)
		}
		tokens[at] = append(tokens[at], e.Token)
	}
	for _, at := range order {
		for left := tokens[at]; len(left) > 0; left = left[min(commitBatch, len(left)):] {
			batch := left[:min(commitBatch, len(left))]
			done, err := runCommit(ctx, at.action, activities.Commitment{Place: at.place, Tokens: batch})
			if err != nil {
				return err
			}
			for _, note := range done.Notes {
				c.note(note)
			}
		}
	}
	return nil
}

// runCommit runs one commit. A stopping worker does not use up an attempt.
func runCommit(ctx workflow.Context, action string, c activities.Commitment) (done activities.Committed, err error) {
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
