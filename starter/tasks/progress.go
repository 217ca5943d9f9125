package tasks

import (
	"context"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// Progress is what the server knows of a running task and its workflow does not.
type Progress struct {
	// Lines are the last ones that each step that is being planned, run or undone has reported.
	Lines map[string][]string
	// AwaitedHosts are hosts whose workers have yet to take what was given to them, in order.
	AwaitedHosts []string
}

// Progress asks the server how far the steps of a task have come, and which hosts they wait for.
func (c *Client) Progress(ctx context.Context, id string) (Progress, error) {
	d, err := c.DescribeWorkflowExecution(ctx, id, "")
	if err != nil {
		return Progress{}, err
	}
	p := Progress{Lines: map[string][]string{}}
	queue, served := d.GetExecutionConfig().GetTaskQueue().GetName(), map[string]bool{}
	for _, a := range d.GetPendingActivities() {
		var told activities.Progress
		if a.GetState() == enumspb.PENDING_ACTIVITY_STATE_STARTED && a.GetHeartbeatDetails() != nil &&
			c.DataConverter().FromPayloads(a.GetHeartbeatDetails(), &told) == nil && told.Step != "" {
			p.Lines[told.Step] = told.Lines
		}
		host, onHost := task.HostOf(a.GetActivityOptions().GetTaskQueue().GetName(), queue)
		served[host] = served[host] || a.GetState() == enumspb.PENDING_ACTIVITY_STATE_STARTED
		if onHost && isUntaken(a) {
			p.AwaitedHosts = append(p.AwaitedHosts, host)
		}
	}
	p.AwaitedHosts = slices.DeleteFunc(p.AwaitedHosts, func(host string) bool { return served[host] })
	slices.Sort(p.AwaitedHosts)
	p.AwaitedHosts = slices.Compact(p.AwaitedHosts)
	return p, nil
}

// takenWithin is how soon a worker that has room takes an activity, or sooner.
const takenWithin = time.Second

// isUntaken says that an activity has been on its queue for longer than a worker with room leaves it there. One that waits for its next
// attempt has been taken before.
func isUntaken(a *workflowpb.PendingActivityInfo) bool {
	return a.GetState() == enumspb.PENDING_ACTIVITY_STATE_SCHEDULED && a.GetCurrentRetryInterval() == nil &&
		time.Since(a.GetScheduledTime().AsTime()) > takenWithin
}

// neededHosts says which hosts are waited for.
func (p Progress) neededHosts() string {
	return "it needs a worker of host " + strings.Join(p.AwaitedHosts, ", ")
}

// AddTo adds the progress to a state.
func (p Progress) AddTo(s *workflows.State) {
	s.AwaitedHosts = p.AwaitedHosts
	underWay := StepsUnderWay(*s)
	for i, v := range s.Steps {
		if !underWay[v.ID] {
			continue
		}
		s.Steps[i].Progress = p.Lines[v.ID]
		if v.Waiting == "" && slices.Contains(p.AwaitedHosts, v.Host) {
			s.Steps[i].Waiting = "waiting for host " + v.Host
		}
	}
}

// StepsUnderWay are the steps that are being planned, run or undone.
func StepsUnderWay(s workflows.State) map[string]bool {
	all := map[string]bool{}
	for _, v := range s.Steps {
		if v.State == workflows.Planning || v.State == workflows.Running {
			all[v.ID] = true
		}
	}
	if s.Report != nil {
		for _, u := range s.Report.Steps {
			if compensations.UndoState(u.State) == compensations.Running {
				all[u.Step] = true
			}
		}
	}
	return all
}
