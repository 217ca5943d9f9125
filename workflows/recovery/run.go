package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows"
)

// Types are the workflows that have a ledger: a task, and what unwinds or repeats one. Each of them can be recovered.
var Types = []string{
	workflows.AgentTaskType, workflows.RecoverType, workflows.RollbackType, workflows.RedoType, workflows.LateSweepType,
}

// GoForward are those of Types that do steps, and so can be rolled back.
var GoForward = []string{workflows.AgentTaskType, workflows.RedoType}

// memoTask is the memo of a Recover, Rollback or Redo with the workflow id of the task that it serves in the end.
const memoTask = "UnwindTask"

// Server is where tasks run.
type Server struct {
	Client client.Client
	// Namespace is the one that Client was made for.
	Namespace string
}

// Run is a run of a workflow, as the server describes it.
type Run struct {
	workflows.Chain
	Type   string
	Status enumspb.WorkflowExecutionStatus
	// Unwind is the search attribute UnwindStatus. It is empty before the first workflow task of a run that was started without.
	Unwind compensations.Status
	Agent  string
	Queue  string
	// Task is the workflow id of the task that the run serves in the end; of a task its own.
	Task string
	// Closed is when it closed; zero while it runs.
	Closed time.Time
}

// Describe describes a run; with an empty run id the last one of that workflow id.
func (s Server) Describe(ctx context.Context, id, runID string) (Run, error) {
	d, err := s.Client.DescribeWorkflowExecution(ctx, id, runID)
	if _, missing := errors.AsType[*serviceerror.NotFound](err); missing {
		return Run{}, refusef(Unknown, id, "there is no task %q in namespace %s", id, s.Namespace)
	}
	if err != nil {
		return Run{}, fmt.Errorf("describe workflow %s: %w", id, err)
	}
	info := d.GetWorkflowExecutionInfo()
	run := Run{
		Chain: workflows.Chain{WorkflowID: id, RunID: info.GetExecution().GetRunId(), FirstRunID: info.GetFirstRunId()},
		Type:  info.GetType().GetName(), Status: info.GetStatus(), Queue: d.GetExecutionConfig().GetTaskQueue().GetName(), Task: id,
	}
	if closed := info.GetCloseTime(); closed != nil {
		run.Closed = closed.AsTime()
	}
	attributes := info.GetSearchAttributes().GetIndexedFields()
	decode(attributes[workflows.AttributeStatus.GetName()], &run.Unwind)
	decode(attributes[workflows.AttributeAgent.GetName()], &run.Agent)
	decode(info.GetMemo().GetFields()[memoTask], &run.Task)
	if run.FirstRunID == "" {
		return run, fmt.Errorf("the Temporal server does not tell the first run of workflow %s, by which a task is known; it is too old", id)
	}
	return run, nil
}

// decode reads a payload that the server indexes, or one that the starter wrote, which no codec touches.
func decode[T ~string](p *commonpb.Payload, into *T) {
	if p != nil {
		_ = converter.GetDefaultDataConverter().FromPayload(p, into)
	}
}

// Alive says that the run has not ended.
func (r Run) Alive() bool { return r.Status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING }

// Dead says that the run has ended and did not unwind: what it did is still there. A recovery that did not complete is dead too:
// it never learned what to undo.
func (r Run) Dead() bool {
	_, ended := endings[r.Status]
	return ended && (r.Unwind == compensations.Open || r.Unwind == "" || r.Type == workflows.RecoverType)
}

// Settled says that the run has ended by itself, with its report.
func (r Run) Settled() bool {
	return !r.Alive() && r.Unwind != compensations.Open && r.Unwind != ""
}

// Done says that what the run did was meant to stay.
func (r Run) Done() bool {
	switch r.Unwind {
	case compensations.Committed, compensations.Partly, compensations.Redone:
		return r.Settled()
	}
	return false
}

// Ending is the word for how a run ended that did not complete: "terminated".
func (r Run) Ending() string { return endings[r.Status] }

// endings are the ways in which a run can end without completing.
var endings = map[enumspb.WorkflowExecutionStatus]string{
	enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED: "terminated",
	enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:  "timed out",
	enumspb.WORKFLOW_EXECUTION_STATUS_FAILED:     "failed",
	enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED:   "canceled",
}

// checkType refuses a workflow that has no ledger.
func (r Run) checkType() error {
	if !slices.Contains(Types, r.Type) {
		return refusef(Foreign, r.WorkflowID, "%q is a workflow of type %s, and no task", r.WorkflowID, r.Type)
	}
	return nil
}
