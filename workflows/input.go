package workflows

import (
	"fmt"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
)

// The workflows get their arguments raw. One that the SDK cannot decode would fail the run before its code begins, and with it the
// ledger that is in there: the run waits instead, by failing its workflow task, for a worker that can read it.

// decodeInput decodes an argument that the run cannot do without.
func decodeInput(what string, raw converter.RawValue, v any) {
	if err := readInput(raw, v); err != nil {
		panic(fmt.Sprintf("%s: this worker cannot read %s: %v; run one of the version that wrote it, with the same codec", activities.UnknownFormat, what, err))
	}
}

// readInput decodes an argument; one that was left out is nothing.
func readInput(raw converter.RawValue, v any) error {
	if raw.Payload() == nil {
		return nil
	}
	return converter.GetDefaultDataConverter().FromPayload(raw.Payload(), v)
}

// readCarry decodes what the run before has handed over; nil: this is the first run. A client can hand anything to a first run,
// and with a carry skip the compiler and its gates: only the server says that a run continues another.
func readCarry(ctx workflow.Context, raw converter.RawValue) (*Carry, error) {
	var carry *Carry
	if workflow.GetInfo(ctx).ContinuedExecutionRunID != "" {
		decodeInput("what the run before has handed to this one", raw, &carry)
		return carry, nil
	}
	var handed any
	if err := readInput(raw, &handed); err != nil || handed != nil {
		return nil, refused("second argument: it is for the runs that continue this task, and a task is started without")
	}
	return nil, nil
}
