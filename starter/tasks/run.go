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

	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/workflows"
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
	Ended   time.Time // zero while it runs
}

func (t Run) Closed() bool { return t.Status != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING }

// Describe finds a task by its id.
func (c *Client) Describe(ctx context.Context, id string) (Run, error) {
	d, err := c.DescribeWorkflow(ctx, id, "")
	var missing *serviceerror.NotFound
	switch {
	case errors.As(err, &missing):
		return Run{}, usage.Errorf("there is no task %q in namespace %s of %s; `starter list` shows the tasks", id, c.Namespace, c.Address)
	case err != nil:
		return Run{}, fmt.Errorf("task %s: %w", id, err)
	case !slices.Contains(recovery.Types, d.WorkflowType.Name):
		return Run{}, usage.Errorf("%q is a workflow of type %s, and no task; `starter list` shows the tasks", id, d.WorkflowType.Name)
	}
	t := Run{
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
