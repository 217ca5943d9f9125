package tasks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"

	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// Run is what the Temporal server knows of a task without asking a worker.
type Run struct {
	ID, RunID string
	// Type is the workflow type: of a task, or of its recovery, rollback or redo.
	Type    string
	Name    string
	Agent   string
	Queue   string
	Status  enumspb.WorkflowExecutionStatus
	Started time.Time
	Ended   time.Time       // zero while it runs
	Pause   *recovery.Pause // nil unless it is paused
}

// Closed says that the task has ended. One that is paused has not.
func (t Run) Closed() bool { return recovery.HasEnded(t.Status) }

// CheckTakesDecisions refuses a decision about a task that has ended, or is paused.
func (c *Client) CheckTakesDecisions(ctx context.Context, t Run) error {
	switch {
	case t.Closed():
		return c.closedError(ctx, t)
	case t.Pause != nil:
		return usage.Errorf("task %s is %s: nothing was sent, because it takes no decision; to let it go on: %s", t.ID,
			t.Pause, c.UnpauseCommand(t.ID))
	}
	return nil
}

// UnpauseCommand is the temporal CLI's command line that lets a paused task go on.
func (s Server) UnpauseCommand(id string) string {
	return fmt.Sprintf("temporal workflow unpause --address %s --namespace %s --workflow-id %s",
		terminal.ShellQuote(s.Address), terminal.ShellQuote(s.Namespace), terminal.ShellQuote(id))
}

// Describe finds a task by its id.
func (c *Client) Describe(ctx context.Context, id string) (Run, error) {
	d, err := c.DescribeWorkflow(ctx, id, "")
	var missing *serviceerror.NotFound
	switch {
	case errors.As(err, &missing):
		return Run{}, usage.Errorf("there is no task %q in namespace %s of %s; `starter list` shows the tasks", id,
			c.Namespace, c.Address)
	case err != nil:
		return Run{}, fmt.Errorf("task %s: %w", id, err)
	case !slices.Contains(recovery.Types, d.WorkflowType.Name):
		return Run{}, usage.Errorf("%q is a workflow of type %s, and no task; `starter list` shows the tasks", id,
			d.WorkflowType.Name)
	}
	t := Run{
		ID: id, RunID: d.WorkflowExecution.RunID, Type: d.WorkflowType.Name, Queue: d.TaskQueueName, Status: d.Status,
		Started: d.WorkflowStartTime,
	}
	if err := recovery.CheckStatus(id, t.Status); err != nil {
		return Run{}, err
	}
	t.Pause = recovery.PauseOf(d.RawResponse)
	if d.WorkflowCloseTime != nil {
		t.Ended = *d.WorkflowCloseTime
	}
	t.Name, _ = d.GetStaticSummary()
	t.Agent, _ = d.TypedSearchAttributes.GetKeyword(protocol.AttributeAgent)
	t.Name = strings.TrimSuffix(t.Name, agentSuffix(t.Agent))
	return t, nil
}
