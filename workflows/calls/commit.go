package calls

import (
	"cmp"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

// commitBatch bounds the tokens of one activity.
const commitBatch = 1000

// Committer tells worlds which steps stay, so that they make them durable: see
// activities.Committer.
type Committer struct {
	Saga     *compensations.Saga
	Troubles *Troubles
	Note     func(note string) // adds a note to the report
}

// CommitLedger makes what the task has done durable before the task closes. If that fails, or the
// task is canceled meanwhile, the task must unwind.
func (c *Committer) CommitLedger(ctx workflow.Context) error {
	return c.commitEntries(ctx, c.Saga.Entries())
}

// CommitPassed makes durable everything up to a pivot that is done: no unwinding reaches it any
// more. A cancellation does not stop it.
func (c *Committer) CommitPassed(ctx workflow.Context, pivot int) {
	var passed []activities.Entry
	for _, e := range c.Saga.Entries() {
		if e.Seq <= pivot {
			passed = append(passed, e)
		}
	}
	c.CommitRemaining(ctx, passed)
}

// CommitRemaining makes durable those of entries that are not undone, whatever ends the task
// meanwhile.
func (c *Committer) CommitRemaining(ctx workflow.Context, entries []activities.Entry) {
	calm, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	if err := c.commitEntries(calm, entries); err != nil {
		c.Note("a restart may hide what stands: it could not be made durable: " + compensations.Reason(err))
	}
}

// commitEntries tells each action at each place, in the order of the ledger, and waits where no
// worker serves the place.
func (c *Committer) commitEntries(ctx workflow.Context, entries []activities.Entry) error {
	type target struct {
		action string
		place  activities.Place
	}
	var order []target
	tokens, waits := map[target][]string{}, map[target]time.Duration{}
	for _, e := range entries {
		if !e.Commits {
			continue
		}
		at := target{e.Action, e.Place.WithoutEpochs()}
		if tokens[at] == nil {
			order = append(order, at)
			waits[at] = cmp.Or(e.Policy.HostWait, forwardWait)
		}
		tokens[at] = append(tokens[at], e.Token)
	}
	for _, at := range order {
		for left := tokens[at]; len(left) > 0; left = left[min(commitBatch, len(left)):] {
			batch := left[:min(commitBatch, len(left))]
			done, err := c.runCommit(ctx, at.action, waits[at], activities.Commitment{Place: at.place, Tokens: batch})
			if err != nil {
				return err
			}
			for _, note := range done.Notes {
				c.Note(note)
			}
		}
	}
	return nil
}

// runCommit runs one commit, for as long as it takes.
func (c *Committer) runCommit(
	ctx workflow.Context, action string, wait time.Duration, request activities.Commitment,
) (done activities.Committed, err error) {
	err = c.Troubles.persist(ctx, workflow.ActivityOptions{
		TaskQueue: request.Place.Queue, StartToCloseTimeout: activities.DefaultUndoAttempt,
		HeartbeatTimeout:    activities.DefaultUndoHeartbeat,
		WaitForCancellation: true, Summary: "make durable what " + activities.CountOf(len(request.Tokens), "step") + " did",
	}, request.Place, wait, action+activities.CommitSuffix, request, &done)
	return done, err
}
