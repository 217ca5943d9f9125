package recovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// Types are the workflow types that have a ledger: a task, and those that unwind or repeat one.
// Each can be recovered.
var Types = []string{
	protocol.AgentTaskType, protocol.RecoverType, protocol.RollbackType, protocol.RedoType, protocol.LateSweepType,
}

// GoForward are those of Types that carry out steps, and so can be rolled back.
var GoForward = []string{protocol.AgentTaskType, protocol.RedoType}

// Memos of a Recover, Rollback or Redo: the workflow id of the task that it serves in the end, that
// of the workflow that it recovers, rolls back or redoes, and which part of it.
const (
	memoTask = "UnwindTask"
	memoOf   = "UnwindOf"
	memoPart = "UnwindPart"
)

// Part says which part of a task is rolled back. The zero value means all of it.
type Part struct {
	// To is a savepoint: what was done after it is undone.
	To string
	// Step is undone, with all that depends on it.
	Step string
}

// String is the part in words; empty for the whole task.
func (p Part) String() string {
	switch {
	case p.To != "":
		return "to savepoint " + p.To
	case p.Step != "":
		return "step " + p.Step
	}
	return ""
}

// Server is where tasks run.
type Server struct {
	Client client.Client
	// Namespace is the one that Client was made for.
	Namespace string
	// DataConverter is the one that Client was made with: it writes and reads memos too. Defaults to
	// the SDK's.
	DataConverter converter.DataConverter
}

// Run is a run of a workflow, as the server describes it.
type Run struct {
	protocol.Chain
	Type   string
	Status enumspb.WorkflowExecutionStatus
	// Pause is nil unless it is paused.
	Pause *Pause
	// Unwind is the search attribute UnwindStatus. It may be empty before the run's first workflow
	// task.
	Unwind compensations.Status
	Agent  string
	Queue  string
	// Task is the workflow id of the original task, which is the run's own if it is a task.
	Task string
	// Of is the workflow id of what the run recovers, rolls back or redoes; empty for a task. Part
	// says what of it is rolled back: "to savepoint half", "step one".
	Of, Part string
	// Started is when the run started.
	Started time.Time
	// Closed is when it closed; zero while it runs.
	Closed time.Time
}

// Describe describes a run. With an empty run id it describes the last run of the workflow id.
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
		Chain: protocol.Chain{WorkflowID: id, RunID: info.GetExecution().GetRunId(), FirstRunID: info.GetFirstRunId()},
		Type:  info.GetType().GetName(), Status: info.GetStatus(), Queue: d.GetExecutionConfig().GetTaskQueue().GetName(),
		Task:  id,
		Pause: PauseOf(d),
	}
	if err := CheckStatus(id, run.Status); err != nil {
		return run, err
	}
	if err := s.readInfo(&run, info); err != nil {
		return run, err
	}
	if run.FirstRunID == "" {
		return run, fmt.Errorf(
			"the Temporal server does not tell the first run of workflow %s, by which a task is known; it is too old", id)
	}
	return run, nil
}

// readInfo reads what lists tell of a run as well as descriptions do. A memo that cannot be read is
// an error: without it, nobody would know which task the run is about.
func (s Server) readInfo(r *Run, info *workflowpb.WorkflowExecutionInfo) error {
	r.Started = info.GetStartTime().AsTime()
	if closed := info.GetCloseTime(); closed != nil {
		r.Closed = closed.AsTime()
	}
	// no codec touches them
	attributes, plain := info.GetSearchAttributes().GetIndexedFields(), converter.GetDefaultDataConverter()
	_ = decode(plain, attributes[protocol.AttributeStatus.GetName()], &r.Unwind)
	_ = decode(plain, attributes[protocol.AttributeAgent.GetName()], &r.Agent)
	memo, dc := info.GetMemo().GetFields(), cmp.Or(s.DataConverter, plain)
	err := errors.Join(decode(dc, memo[memoTask], &r.Task), decode(dc, memo[memoOf], &r.Of),
		decode(dc, memo[memoPart], &r.Part))
	if err != nil {
		return fmt.Errorf("memo of workflow %s: %w", r.WorkflowID, err)
	}
	return nil
}

// About returns the workflow that a listed one recovers, rolls back or redoes, and which part of
// it; empty where that cannot be read.
func (s Server) About(info *workflowpb.WorkflowExecutionInfo) (of, part string) {
	var r Run
	if err := s.readInfo(&r, info); err != nil {
		return "", ""
	}
	return r.Of, r.Part
}

func decode[T ~string](dc converter.DataConverter, p *commonpb.Payload, into *T) error {
	if p == nil {
		return nil
	}
	return dc.FromPayload(p, into)
}

// Alive reports whether the run has not ended. One that is paused is alive.
func (r Run) Alive() bool { return GoesOn(r.Status) }

// Dead reports whether the run has ended without unwinding, so that what it did is still there. A
// recovery that did not complete is dead too: it never learned what to undo.
func (r Run) Dead() bool {
	_, incomplete := endings[r.Status]
	return incomplete && (r.Unwind == compensations.Open || r.Unwind == "" || r.Type == protocol.RecoverType)
}

// Settled reports whether the run has ended by itself, with its report.
func (r Run) Settled() bool {
	return HasEnded(r.Status) && r.Unwind != compensations.Open && r.Unwind != ""
}

// Done reports whether the run has ended with what it did in place.
func (r Run) Done() bool {
	switch r.Unwind {
	case compensations.Committed, compensations.Partly, compensations.Redone:
		return r.Settled()
	}
	return false
}

// Refused reports whether a rollback has ended without touching anything: one that has acted
// completes, however it went.
func (r Run) Refused() bool {
	return r.Type == protocol.RollbackType && r.Settled() && r.Status != enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED
}

// Ending is the word for how an incomplete run ended, such as "terminated".
func (r Run) Ending() string { return endings[r.Status] }

// endings are the words for the ways in which a run can end without completing.
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
