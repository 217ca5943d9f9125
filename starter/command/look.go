package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// taskRun is a task as the Temporal server knows it, with no worker asked.
type taskRun struct {
	ID, RunID string
	// Type is that of a task, or of what recovers, rolls back or redoes one.
	Type    string
	Name    string
	Agent   string
	Queue   string
	Status  enumspb.WorkflowExecutionStatus
	Started time.Time
	Ended   time.Time // zero while it runs
}

func (t taskRun) closed() bool { return t.Status != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING }

// describe finds the task of that id.
func (c *connection) describe(ctx context.Context, id string) (taskRun, error) {
	d, err := c.DescribeWorkflow(ctx, id, "")
	var missing *serviceerror.NotFound
	switch {
	case errors.As(err, &missing):
		return taskRun{}, usagef("there is no task %q in namespace %s of %s; `starter list` shows the tasks", id, c.Namespace, c.Address)
	case err != nil:
		return taskRun{}, fmt.Errorf("task %s: %w", id, err)
	case !slices.Contains(recovery.Types, d.WorkflowType.Name):
		return taskRun{}, usagef("%q is a workflow of type %s, and no task; `starter list` shows the tasks", id, d.WorkflowType.Name)
	}
	t := taskRun{
		ID: id, RunID: d.WorkflowExecution.RunID, Type: d.WorkflowType.Name, Queue: d.TaskQueueName, Status: d.Status, Started: d.WorkflowStartTime,
	}
	if d.WorkflowCloseTime != nil {
		t.Ended = *d.WorkflowCloseTime
	}
	t.Name, _ = d.GetStaticSummary()
	t.Agent, _ = d.TypedSearchAttributes.GetKeyword(workflows.AttributeAgent)
	t.Name = strings.TrimSuffix(t.Name, agentSuffix(t.Agent))
	return t, nil
}

// queryLimit is how long a query may take: without a worker it is answered by nobody.
const queryLimit = 5 * time.Second

// silentError says that nobody answers for a task.
type silentError struct {
	failing bool // workers there are, but they fail to run it
}

func (e silentError) Error() string {
	if e.failing {
		return "its workers fail to run it: another version of the code, or a mistake in it; the Temporal UI shows the error"
	}
	return "no worker answers"
}

// silence says why nobody answers for a task; false where err says something else.
func silence(err error, t taskRun) (string, bool) {
	var silent silentError
	switch {
	case !errors.As(err, &silent):
		return "", false
	case silent.failing:
		return silent.Error(), true
	}
	return noWorkerFor(t), true
}

// state asks the task's worker for its state.
func (c *connection) state(ctx context.Context, id, runID string) (workflows.State, error) {
	limited, cancel := context.WithTimeout(ctx, queryLimit)
	defer cancel()
	var s workflows.State
	v, err := c.QueryWorkflow(limited, id, runID, workflows.QueryState)
	if err == nil {
		return s, v.Get(&s)
	}
	if ctx.Err() != nil {
		return s, ctx.Err()
	}
	var slow *serviceerror.DeadlineExceeded
	var busy *serviceerror.WorkflowNotReady
	var nobody *serviceerror.FailedPrecondition
	if limited.Err() != nil || errors.As(err, &slow) || errors.As(err, &busy) || errors.As(err, &nobody) {
		return s, silentError{failing: strings.Contains(err.Error(), "failed state")}
	}
	return s, fmt.Errorf("state of task %s: %w", id, err)
}

// ending is how a closed task ended.
type ending struct {
	// Report is nil where the task wrote none: it was terminated or timed out.
	Report *compensations.Report
	// Failure says in one line why it is no success; empty for a committed task.
	Failure string
}

// end waits for the end of a task, through all runs of its chain.
func (c *connection) end(ctx context.Context, id, runID string) (ending, error) {
	var report compensations.Report
	err := c.GetWorkflow(ctx, id, runID).Get(ctx, &report)
	if err == nil {
		return ending{Report: &report}, nil
	}
	if ctx.Err() != nil {
		return ending{}, ctx.Err()
	}
	var failed *temporal.ApplicationError
	var canceled *temporal.CanceledError
	var terminated *temporal.TerminatedError
	var timeout *temporal.TimeoutError
	var e ending
	switch {
	case errors.As(err, &failed):
		e.Failure = failed.Message()
		if failed.HasDetails() && failed.Details(&report) == nil && report.Status != "" {
			e.Report = &report
		}
	case errors.As(err, &canceled):
		e.Failure = "canceled"
		if canceled.HasDetails() && canceled.Details(&report) == nil && report.Status != "" {
			e.Report = &report
			e.Failure = string(report.Status) + ": canceled"
		}
	case errors.As(err, &terminated):
		e.Failure = "terminated from outside: nothing was unwound by this run; `starter recover " + quoted(id) + "` unwinds it"
	case errors.As(err, &timeout):
		e.Failure = "timed out from outside: nothing was unwound by this run; `starter recover " + quoted(id) + "` unwinds it"
	default:
		return e, fmt.Errorf("end of task %s: %w", id, err)
	}
	return e, nil
}

// closedState is the state of a closed task, from what it ended with.
func closedState(t taskRun, e ending) workflows.State {
	s := workflows.State{Task: t.ID, Name: t.Name, Agent: t.Agent, Phase: workflows.Closed, Report: e.Report, Steps: []workflows.StepView{}}
	if e.Report == nil {
		return s
	}
	s.Cause = e.Report.Cause
	for _, r := range e.Report.Steps {
		s.Steps = append(s.Steps, workflows.StepView{ID: r.Step, Uses: r.Action, State: forwardState(e.Report, r), Summary: r.Summary})
	}
	return s
}

// forwardState is how far a step of a report had come before the task unwound. The report tells it of steps that never
// came to the ledger; of others it tells the undo.
func forwardState(r *compensations.Report, s compensations.StepReport) workflows.StepState {
	if !registered(s) {
		return workflows.StepState(s.State)
	}
	if r.Cause != nil && r.Cause.Step == s.Step {
		return workflows.StepFailed
	}
	return ""
}

// current is what can be known of a task now, and where it was read: from its end, from its worker, else from its history.
func (c *connection) current(ctx context.Context, t taskRun) (workflows.State, ending, string, error) {
	if t.closed() {
		e, err := c.end(ctx, t.ID, t.RunID)
		if err != nil {
			return workflows.State{}, e, "", err
		}
		if e.Report != nil {
			return closedState(t, e), e, "", nil
		}
		s, err := c.fromHistory(ctx, t)
		return s, e, "read from the history: " + e.Failure, err
	}
	s, err := c.state(ctx, t.ID, t.RunID)
	if why, silent := silence(err, t); silent {
		s, err = c.fromHistory(ctx, t)
		return s, ending{}, "read from the history: " + why, err
	}
	return s, ending{}, "", err
}

func noWorkerFor(t taskRun) string {
	return fmt.Sprintf("no worker answers on queue %s; start one with `worker` or `starter dev`", t.Queue)
}
