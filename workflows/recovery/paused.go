package recovery

import (
	"context"
	"errors"
	"fmt"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
)

// Paused adds up for how long a run, and those of its chain before it, were paused since then. It
// reads their histories backwards, so that it need not read what was before.
func (s Server) Paused(ctx context.Context, id, runID string, since time.Time) (time.Duration, error) {
	p := pauses{since: since, until: time.Now()} //nolint:forbidigo // a client's clock, not a workflow's
	for run := runID; run != "" && !p.over; {
		before, err := s.addPauses(ctx, id, run, &p)
		// past the retention of the namespace
		if _, gone := errors.AsType[*serviceerror.NotFound](err); gone && run != runID {
			break
		}
		if err != nil {
			return 0, fmt.Errorf("history of workflow %s: %w", id, err)
		}
		run = before
	}
	return p.sum, nil
}

// addPauses reads the history of one run backwards, and returns the run that it was continued from.
func (s Server) addPauses(ctx context.Context, id, runID string, p *pauses) (before string, err error) {
	request := &workflowservice.GetWorkflowExecutionHistoryReverseRequest{
		Namespace: s.Namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: id, RunId: runID},
	}
	for {
		page, err := s.Client.WorkflowService().GetWorkflowExecutionHistoryReverse(ctx, request)
		if err != nil {
			return "", err
		}
		for _, e := range page.GetHistory().GetEvents() {
			if p.add(e); p.over {
				return "", nil
			}
			before = e.GetWorkflowExecutionStartedEventAttributes().GetContinuedExecutionRunId()
		}
		if request.NextPageToken = page.GetNextPageToken(); len(request.NextPageToken) == 0 {
			return before, nil
		}
	}
}

// pauses adds up pauses from events that come last first.
type pauses struct {
	since, until time.Time // until is when the pause ended that is being read, or now
	over         bool      // all events since then were read
	inside       bool      // an end of a pause was read, and its begin was not
	sum          time.Duration
}

func (p *pauses) add(e *historypb.HistoryEvent) {
	at := e.GetEventTime().AsTime()
	if at.Before(p.since) {
		p.over = true
		if p.inside {
			p.sum += p.until.Sub(p.since)
		}
		return
	}
	switch e.GetEventType() {
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_UNPAUSED:
		p.until, p.inside = at, true
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_PAUSED:
		p.sum += p.until.Sub(at)
		p.until, p.inside = at, false
	}
}
