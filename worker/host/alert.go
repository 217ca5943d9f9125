package host

import (
	"context"
	"errors"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"

	"github.com/seed-62bf7108/unwind/worker/notices"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// alerted counts alerts by their state, whether there is a channel or not.
const alerted = "unwind_alerts"

// alert hands what needs a person to the channels that are told of it. Each has a workflow of its
// own, so that nobody waits for one that is away.
func (b builtin) alert(ctx context.Context, alerts []protocol.Alert) error {
	if activity.GetInfo(ctx).Attempt == 1 {
		for _, a := range alerts {
			activity.GetMetricsHandler(ctx).WithTags(map[string]string{"state": string(a.State)}).Counter(alerted).Inc(1)
		}
	}
	told := map[string][]protocol.Waiting{}
	for _, a := range alerts {
		for _, channel := range notices.Takers(b.config.Notices, a) {
			told[channel] = append(told[channel], protocol.Waiting{Alert: a})
		}
	}
	var problems []error
	for channel, waiting := range told {
		problems = append(problems, b.hand(ctx, channel, waiting))
	}
	return errors.Join(problems...)
}

// hand hands to a channel what waits.
func (b builtin) hand(ctx context.Context, channel string, all []protocol.Waiting) error {
	id := protocol.NoticesID(b.config.Queue, channel)
	_, err := b.server.Client.SignalWithStartWorkflow(ctx, id, protocol.SignalWaiting, all,
		client.StartWorkflowOptions{TaskQueue: b.config.Queue}, protocol.NoticesType, protocol.Notices{Channel: channel})
	return err
}
