package engine

import (
	"errors"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/calls"
)

// ending is why a task no longer goes forward. The parts of a task share one; it has no cause while
// the task goes on.
type ending struct {
	Cause *compensations.Cause
}

// end ends the task if there is a cause to, and it has not ended meanwhile.
func (e *ending) end(cause *compensations.Cause) {
	if e.Cause == nil {
		e.Cause = cause
	}
}

func CanceledCause() *compensations.Cause {
	return &compensations.Cause{Kind: compensations.Canceled, Text: "the task was canceled"}
}

// causeOf returns the cause of a task that ends by the error of a step.
func causeOf(s *Step) *compensations.Cause {
	cause := &compensations.Cause{Kind: compensations.Failure, Step: s.Step.ID, Text: s.reason()}
	var rejected rejection
	switch {
	case errors.As(s.err, &rejected):
		cause.Kind, cause.Text = compensations.Rejected, rejected.text
	case calls.IsType(s.err, activities.ResetRun):
		cause.Kind = compensations.WasReset
	}
	return cause
}

// kindOf returns the kind of cause of a task that ends by an error outside a step.
func kindOf(ctx workflow.Context, err error) compensations.CauseKind {
	if ctx.Err() != nil || temporal.IsCanceledError(err) {
		return compensations.Canceled
	}
	return compensations.Failure
}
