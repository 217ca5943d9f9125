package host

import (
	"context"
	"errors"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/worker/notices"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// unsent counts attempts to send a notice that failed, by channel.
const unsent = "unwind_notices_failed"

// sendNotices does what is due of a channel's notices.
func (b builtin) sendNotices(ctx context.Context, now time.Time, n protocol.Notices) (protocol.Notices, error) {
	masker := &activities.Masker{}
	masker.Add(taskSecrets{b.config}.Values()...)
	desk := notices.Desk{Channels: b.config.Notices, Page: b.config.Page, Read: workerSecrets{b.config}.Read,
		Masker: masker, Look: b.look, Hand: b.hand}
	next := desk.Deliver(ctx, now, n)
	if next.Failures > n.Failures || next.Trouble != "" && next.Trouble != n.Trouble {
		activity.GetMetricsHandler(ctx).WithTags(map[string]string{"channel": n.Channel}).Counter(unsent).Inc(1)
		activity.GetLogger(ctx).Warn("a channel cannot be reached", "channel", n.Channel, "reason", next.Trouble)
	}
	return next, nil
}

// askLimit bounds one question to a task.
const askLimit = 5 * time.Second

// look asks a task whether something still waits. If that cannot be known, it does, with an error.
func (b builtin) look(ctx context.Context, w protocol.Waiting) (protocol.Waiting, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	var step protocol.StepNow
	value, err := b.server.Client.QueryWorkflow(ctx, w.Task, "", protocol.QueryStep, w.Step)
	if err == nil {
		err = value.Get(&step)
	}
	if _, isGone := errors.AsType[*serviceerror.NotFound](err); isGone {
		return w, false, nil
	}
	switch {
	case err != nil:
	case waitsAt(w.Alert, step):
		if step.Gate != nil {
			w.Until = step.Gate.Until // it is later if the task was paused
		}
	case w.State == protocol.Gated && protocol.IsLapse(w.Step, step.Step.Error):
		w.Lapse = step.Step.Error
		return w, true, nil
	default:
		return w, false, nil
	}
	return w, b.isOpen(ctx, w.Task), err
}

// isOpen reports whether a task has not ended, as far as that can be known: one that was terminated
// still answers that it waits.
func (b builtin) isOpen(ctx context.Context, id string) bool {
	d, err := b.server.Client.DescribeWorkflowExecution(ctx, id, "")
	if err != nil {
		return true
	}
	status := d.GetWorkflowExecutionInfo().GetStatus()
	return status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING || status == enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED
}

// waitsAt reports whether a step still waits for the decision that an alert told of.
func waitsAt(a protocol.Alert, now protocol.StepNow) bool {
	switch {
	case a.State == protocol.Gated:
		return now.Gate != nil && now.Gate.Digest == a.Digest
	case now.Park != nil && now.Park.Digest == a.Digest:
		return true
	default:
		return now.Undo != nil && now.Undo.Digest == a.Digest && now.Undo.State == string(a.State)
	}
}
