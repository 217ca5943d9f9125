package tasks

import (
	"context"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows"
)

// Progress is how far steps that are being planned, run or undone have come, by their ids: the last lines of each.
type Progress map[string][]string

// Progress asks the server how far the steps of a task have come.
func (c *Client) Progress(ctx context.Context, id string) (Progress, error) {
	d, err := c.DescribeWorkflowExecution(ctx, id, "")
	if err != nil {
		return nil, err
	}
	all := Progress{}
	for _, a := range d.GetPendingActivities() {
		var p activities.Progress
		if a.GetState() == enumspb.PENDING_ACTIVITY_STATE_STARTED && a.GetHeartbeatDetails() != nil &&
			converter.GetDefaultDataConverter().FromPayloads(a.GetHeartbeatDetails(), &p) == nil && p.Step != "" {
			all[p.Step] = p.Lines
		}
	}
	return all, nil
}

// AddTo adds the progress to a state.
func (p Progress) AddTo(s *workflows.State) {
	underWay := StepsUnderWay(*s)
	for i, v := range s.Steps {
		if underWay[v.ID] {
			s.Steps[i].Progress = p[v.ID]
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
