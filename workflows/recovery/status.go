package recovery

import (
	"fmt"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
)

// The statuses of executions that go on, and of those that have ended. A newer server may have
// others: nobody can know which of the two they mean, so nothing is done about an execution that
// has one.
var (
	goingOn = []enumspb.WorkflowExecutionStatus{
		enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED,
	}
	ended = []enumspb.WorkflowExecutionStatus{
		enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, enumspb.WORKFLOW_EXECUTION_STATUS_FAILED,
		enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED,
		enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED, enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW,
		enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT,
	}
)

// GoesOn reports whether an execution of that status has not ended.
func GoesOn(s enumspb.WorkflowExecutionStatus) bool { return slices.Contains(goingOn, s) }

// HasEnded reports whether an execution of that status has ended.
func HasEnded(s enumspb.WorkflowExecutionStatus) bool { return slices.Contains(ended, s) }

// IsOpen is the condition of a visibility query for executions that have not ended. It names those
// that have, as a server refuses a status that it does not know.
const IsOpen = "ExecutionStatus NOT IN ('Completed', 'Failed', 'Canceled', 'Terminated', 'ContinuedAsNew', 'TimedOut')"

// CheckStatus refuses a status of which it is not known whether the execution goes on.
func CheckStatus(id string, s enumspb.WorkflowExecutionStatus) error {
	if GoesOn(s) || HasEnded(s) {
		return nil
	}
	return fmt.Errorf("workflow %s has the %s, so whether it goes on is not known: use a newer version of Unwind", id,
		DescribeUnknown(s))
}

// DescribeUnknown names a status that this version does not know.
func DescribeUnknown(s enumspb.WorkflowExecutionStatus) string {
	return fmt.Sprintf("unknown status %s", s)
}

// Pause is when, by whom and why an execution was paused. It takes no decision until it is
// unpaused.
type Pause struct {
	Since time.Time `json:"since"`
	Who   string    `json:"who,omitempty"`
	Why   string    `json:"why,omitempty"`
}

// PauseOf returns the pause of an execution; nil if it is not paused.
func PauseOf(d *workflowservice.DescribeWorkflowExecutionResponse) *Pause {
	if d.GetWorkflowExecutionInfo().GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED {
		return nil
	}
	info := d.GetWorkflowExtendedInfo().GetPauseInfo()
	return &Pause{Since: info.GetPausedTime().AsTime(), Who: info.GetIdentity(), Why: info.GetReason()}
}

// String says in words that an execution is paused.
func (p Pause) String() string {
	var b strings.Builder
	b.WriteString("paused since " + p.Since.UTC().Format(time.RFC3339))
	if p.Who != "" {
		b.WriteString(" by " + p.Who)
	}
	if p.Why != "" {
		b.WriteString(" (" + p.Why + ")")
	}
	return b.String()
}
