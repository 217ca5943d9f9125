package tasks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/api/serviceerror"

	"github.com/seed-62bf7108/unwind/workflows"
)

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// queryAgain is the pause before a query is asked once more.
const queryAgain = 50 * time.Millisecond

// torn tells the error of a query that the worker answered from a history which the server had cut within a workflow task: it
// sends such a one when the query meets the completion of that task. The next query sees the whole of it. Code that does not
// fit the history fails with the same words, at each query.
func torn(err error) bool {
	var failed *serviceerror.QueryFailed
	return errors.As(err, &failed) && strings.Contains(failed.Message, "[TMPRL1100]")
}

// dropped tells the error of a query that a worker has taken and not answered, because it was stopped. The next query goes to another
// worker, or to none.
func dropped(err error) bool {
	var canceled *serviceerror.Canceled
	return errors.As(err, &canceled)
}

// silentError is the error of a query that nobody answers.
type silentError struct {
	failing bool // there are workers, but they fail to run the task
}

func (e silentError) Error() string {
	if e.failing {
		return "its workers fail to run it: their code has another version, or a bug; the Temporal UI shows the error"
	}
	return "no worker answers"
}

// SilenceReason says why nobody answers for a task; false if err is another error.
func SilenceReason(err error, t Run) (string, bool) {
	var silent silentError
	switch {
	case !errors.As(err, &silent):
		return "", false
	case silent.failing:
		return silent.Error(), true
	}
	return NoWorker(t), true
}

// QueryState asks the task's worker for the state.
func (c *Client) QueryState(ctx context.Context, id, runID string) (workflows.State, error) {
	limited, cancel := context.WithTimeout(ctx, c.silenceLimit())
	defer cancel()
	var s workflows.State
	v, err := c.QueryWorkflow(limited, id, runID, workflows.QueryState)
	for (torn(err) || dropped(err)) && limited.Err() == nil {
		pause(limited, queryAgain)
		v, err = c.QueryWorkflow(limited, id, runID, workflows.QueryState)
	}
	switch {
	case err == nil:
		return s, v.Get(&s)
	case ctx.Err() != nil:
		return s, ctx.Err()
	case torn(err):
		return s, silentError{failing: true}
	}
	var slow *serviceerror.DeadlineExceeded
	var busy *serviceerror.WorkflowNotReady
	var nobody *serviceerror.FailedPrecondition
	if limited.Err() != nil || errors.As(err, &slow) || errors.As(err, &busy) || errors.As(err, &nobody) {
		return s, silentError{failing: strings.Contains(err.Error(), "failed state")}
	}
	return s, fmt.Errorf("state of task %s: %w", id, err)
}

func NoWorker(t Run) string {
	return fmt.Sprintf("no worker answers on queue %s; start one with `worker` or `starter dev`", t.Queue)
}
