package tasks

import (
	"context"
	"slices"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// Progress is what the server knows of a running task and its workflow does not.
type Progress struct {
	// Lines are the last ones that each step that is being planned, run or undone has reported.
	Lines map[string][]string
	// AwaitedHosts are hosts whose workers have yet to take what was given to them, in order.
	AwaitedHosts []string
	// Retried are the activities of which an attempt has failed, those that were scheduled first
	// before the others.
	Retried []protocol.Trouble
}

// Progress asks the server how far the steps of a task have come, what is retried, and which hosts
// are waited for.
func (c *Client) Progress(ctx context.Context, id string) (Progress, error) {
	d, err := c.DescribeWorkflowExecution(ctx, id, "")
	if err != nil {
		return Progress{}, err
	}
	p := Progress{Lines: map[string][]string{}, AwaitedHosts: awaitedHosts(d)}
	for _, a := range d.GetPendingActivities() {
		var told activities.Progress
		if a.GetState() == enumspb.PENDING_ACTIVITY_STATE_STARTED && a.GetHeartbeatDetails() != nil &&
			c.DataConverter().FromPayloads(a.GetHeartbeatDetails(), &told) == nil && told.Step != "" {
			p.Lines[told.Step] = told.Lines
		}
	}
	p.Retried, err = c.retried(ctx, d)
	return p, err
}

// AwaitedHosts asks the server which hosts a task waits for: see Progress.AwaitedHosts.
func (c *Client) AwaitedHosts(ctx context.Context, id string) ([]string, error) {
	d, err := c.DescribeWorkflowExecution(ctx, id, "")
	return awaitedHosts(d), err
}

func awaitedHosts(d *workflowservice.DescribeWorkflowExecutionResponse) (awaited []string) {
	queue, served := d.GetExecutionConfig().GetTaskQueue().GetName(), map[string]bool{}
	for _, a := range d.GetPendingActivities() {
		host, onHost := task.HostOf(a.GetActivityOptions().GetTaskQueue().GetName(), queue)
		served[host] = served[host] || a.GetState() == enumspb.PENDING_ACTIVITY_STATE_STARTED
		if onHost && isUntaken(a) {
			awaited = append(awaited, host)
		}
	}
	awaited = slices.DeleteFunc(awaited, func(host string) bool { return served[host] })
	slices.Sort(awaited)
	return slices.Compact(awaited)
}

// retried are the pending activities that have failed. What they do stands in the history only,
// where the newest events come first: an activity that fails before its first heartbeat has told
// nothing of itself.
func (c *Client) retried(ctx context.Context,
	d *workflowservice.DescribeWorkflowExecutionResponse) (all []protocol.Trouble, err error) {
	failed := map[string]*workflowpb.PendingActivityInfo{}
	for _, a := range d.GetPendingActivities() {
		if a.GetLastFailure() != nil {
			failed[a.GetActivityId()] = a
		}
	}
	page := &workflowservice.GetWorkflowExecutionHistoryReverseRequest{
		Namespace: c.Namespace, Execution: d.GetWorkflowExecutionInfo().GetExecution(),
	}
	for more := true; more && len(failed) > 0; more = len(page.NextPageToken) > 0 {
		answer, err := c.WorkflowService().GetWorkflowExecutionHistoryReverse(ctx, page)
		if err != nil {
			return nil, err
		}
		for _, event := range answer.GetHistory().GetEvents() {
			scheduled := event.GetActivityTaskScheduledEventAttributes()
			a := failed[scheduled.GetActivityId()]
			if a == nil {
				continue
			}
			delete(failed, a.GetActivityId())
			t := protocol.Trouble{
				What: scheduled.GetActivityType().GetName(), Attempt: int(a.GetAttempt()),
				Reason: failureReason(a.GetLastFailure(), limitsOf(scheduled)), Since: event.GetEventTime().AsTime(),
			}
			if summary := event.GetUserMetadata().GetSummary(); summary != nil {
				if err := c.DataConverter().FromPayload(summary, &t.What); err != nil {
					return nil, err
				}
			}
			t.Step = c.stepOf(scheduled.GetInput())
			all = append(all, t)
		}
		page.NextPageToken = answer.GetNextPageToken()
	}
	slices.Reverse(all)
	return all, nil
}

// stepOf is the step that the argument of an activity is about: that of a Forward, a Backward or an
// Entry; empty if it is about none.
func (c *Client) stepOf(argument *commonpb.Payloads) string {
	var call struct{ Entry activities.Entry }
	if c.DataConverter().FromPayloads(argument, &call) == nil && call.Entry.Step != "" {
		return call.Entry.Step
	}
	var e activities.Entry
	if c.DataConverter().FromPayloads(argument, &e) != nil {
		return ""
	}
	return e.Step
}

// takenWithin is how soon a worker that has room takes an activity, or sooner.
const takenWithin = time.Second

// isUntaken says that an activity has been on its queue for longer than a worker with room leaves
// it there. One that waits for its next attempt has been taken before.
func isUntaken(a *workflowpb.PendingActivityInfo) bool {
	return a.GetState() == enumspb.PENDING_ACTIVITY_STATE_SCHEDULED && a.GetCurrentRetryInterval() == nil &&
		time.Since(a.GetScheduledTime().AsTime()) > takenWithin
}

// neededHosts says which hosts are waited for.
func neededHosts(hosts []string) string {
	return "it needs a worker of host " + strings.Join(hosts, ", ")
}

// AddTo adds the progress to a state.
func (p Progress) AddTo(s *protocol.State) {
	s.AwaitedHosts = p.AwaitedHosts
	for _, t := range p.Retried {
		if i := slices.IndexFunc(s.Troubles, func(o protocol.Trouble) bool { return o.What == t.What }); i >= 0 {
			s.Troubles[i].Step, s.Troubles[i].Attempt, s.Troubles[i].Reason = t.Step, t.Attempt, t.Reason
			continue
		}
		s.Troubles = append(s.Troubles, t)
	}
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
func StepsUnderWay(s protocol.State) map[string]bool {
	all := map[string]bool{}
	for _, v := range s.Steps {
		if v.State == protocol.Planning || v.State == protocol.Running {
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
