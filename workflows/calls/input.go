package calls

import (
	"fmt"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// The workflows take their arguments raw. An argument that the SDK cannot decode would fail the run
// before its code begins, and lose the ledger in it. Instead the run fails its workflow task, and
// so waits for a worker that can read the argument.

// DecodeInput decodes an argument that the run cannot do without.
func DecodeInput(what string, raw converter.RawValue, v any) {
	if err := ReadInput(raw, v); err != nil {
		panic(fmt.Sprintf("%s: this worker cannot read %s: %v; run one of the version that wrote it, with the same codec",
			activities.UnknownFormat, what, err))
	}
}

// ReadInput decodes an argument. It leaves v as it is if the argument was left out.
func ReadInput(raw converter.RawValue, v any) error {
	if raw.Payload() == nil {
		return nil
	}
	return converter.GetDefaultDataConverter().FromPayload(raw.Payload(), v)
}

// ReadCarry decodes what the previous run handed over; nil in the first run. A client can pass
// anything to a first run, and could bypass the compiler and its gates with a made-up carry, so
// only the server's word counts that a run continues another.
func ReadCarry(ctx workflow.Context, raw converter.RawValue) (*protocol.Carry, error) {
	var carry *protocol.Carry
	if workflow.GetInfo(ctx).ContinuedExecutionRunID != "" {
		DecodeInput("what the run before has handed to this one", raw, &carry)
		return carry, nil
	}
	var handed any
	if err := ReadInput(raw, &handed); err != nil || handed != nil {
		return nil, protocol.Refusef(
			"second argument: it is for the runs that continue this task, and a task is started without")
	}
	return nil, nil
}
