package host

import (
	"context"

	"go.temporal.io/sdk/activity"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// hold keeps records of this host for the workflow that asks. A record that cannot be read is no
// reason to refuse: its undo says so, and parks.
func (b builtin) hold(ctx context.Context, r protocol.HoldRequest) (held protocol.Held, err error) {
	defer activities.Beat(ctx)()
	records := b.registry.Records()[r.World]
	if records == nil {
		return held, nil
	}
	info := activity.GetInfo(ctx)
	holder := activities.Owner{Workflow: info.WorkflowExecution.ID, Run: info.WorkflowExecution.RunID}
	masker := b.host().Masker()
	ctx = activities.WithMasker(ctx, masker)
	for _, token := range r.Tokens {
		if err := ctx.Err(); err != nil {
			return held, err
		}
		switch isHeld, err := records.Hold(ctx, token, holder); {
		case activities.TypeOf(err) == activities.DamagedRecord:
		case err != nil && ctx.Err() == nil:
			return held, worldError(err, masker)
		case err != nil:
			return held, ctx.Err()
		case !isHeld:
			held.Released = append(held.Released, token)
		}
	}
	return held, nil
}
