package tasks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
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

// torn tells the error of a query that the worker answered from a history which the server had cut
// within a workflow task: it sends such a one when the query meets the completion of that task. The
// next query sees the whole of it. Code that does not fit the history fails with the same words, at
// each query.
func torn(err error) bool {
	var failed *serviceerror.QueryFailed
	return errors.As(err, &failed) && strings.Contains(failed.Message, "[TMPRL1100]")
}

// dropped tells the error of a query that a worker has taken and not answered, because it was
// stopped. The next query goes to another worker, or to none.
func dropped(err error) bool {
	var canceled *serviceerror.Canceled
	return errors.As(err, &canceled)
}

// silentError is the error of a query that nobody answers.
type silentError struct {
	failing bool   // there are workers, but they fail to run the task
	paused  string // why and until when the task is paused; empty if it is not
}

func (e silentError) Error() string {
	if e.paused != "" {
		return e.paused
	}
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
	case silent.failing, silent.paused != "":
		return silent.Error(), true
	}
	return NoWorker(t), true
}

// QueryState asks the task's worker for the state.
func (c *Client) QueryState(ctx context.Context, id, runID string) (protocol.State, error) {
	return query[protocol.State](ctx, c, id, runID, protocol.QueryState)
}

// QueryStep asks for all about one step: a state has only the first of many gates and parks.
func (c *Client) QueryStep(ctx context.Context, t Run, step string) (protocol.StepNow, error) {
	return query[protocol.StepNow](ctx, c, t.ID, t.RunID, protocol.QueryStep, step)
}

func query[T any](ctx context.Context, c *Client, id, runID, name string, arguments ...any) (T, error) {
	limited, cancel := context.WithTimeout(ctx, c.silenceLimit())
	defer cancel()
	var answer T
	v, err := c.QueryWorkflow(limited, id, runID, name, arguments...)
	for (torn(err) || dropped(err)) && limited.Err() == nil {
		pause(limited, queryAgain)
		v, err = c.QueryWorkflow(limited, id, runID, name, arguments...)
	}
	switch {
	case err == nil:
		return answer, v.Get(&answer)
	case ctx.Err() != nil:
		return answer, ctx.Err()
	case torn(err):
		return answer, silentError{failing: true}
	}
	if rejected, is := errors.AsType[*temporal.QueryRejectedError](err); is &&
		recovery.GoesOn(rejected.QueryRejected().GetStatus()) {
		return answer, c.silentPause(ctx, id)
	}
	var slow *serviceerror.DeadlineExceeded
	var busy *serviceerror.WorkflowNotReady
	var nobody *serviceerror.FailedPrecondition
	if limited.Err() != nil || errors.As(err, &slow) || errors.As(err, &busy) || errors.As(err, &nobody) {
		return answer, silentError{failing: strings.Contains(err.Error(), "failed state")}
	}
	return answer, fmt.Errorf("%s of task %s: %w", name, id, err)
}

// silentPause is the error of a query to a task that was paused when it was asked.
func (c *Client) silentPause(ctx context.Context, id string) error {
	run, err := c.Recoveries().Describe(ctx, id, "")
	switch {
	case err != nil:
		return err
	case run.Pause == nil:
		return silentError{paused: "it was paused a moment ago"}
	}
	return silentError{paused: fmt.Sprintf("it is %s; to let it go on: %s", run.Pause, c.UnpauseCommand(id))}
}

func NoWorker(t Run) string {
	return fmt.Sprintf("no worker answers on queue %s; start one with `worker` or `starter dev`", t.Queue)
}
