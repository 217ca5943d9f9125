package planning

import (
	"encoding/json"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/calls"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// ValidateTask has the workers that would run a task look at each of its steps, and touches
// nothing.
func ValidateTask(ctx workflow.Context, doc json.RawMessage) (protocol.Validation, error) {
	compiled, err := calls.Compile(ctx, doc)
	if err != nil {
		return protocol.Validation{}, err
	}
	v := protocol.Validation{Name: compiled.Name, Steps: len(compiled.Steps)}
	for _, s := range compiled.Steps {
		if len(s.References()) > 0 && len(v.Later) < activities.MaxItems {
			v.Later = append(v.Later, s.ID)
		}
	}
	seen, err := calls.Preflight(ctx, compiled)
	v.Refusals, v.Unseen = seen.Refusals, seen.Unseen
	v.Fit()
	return v, err
}
