package engine

import (
	"encoding/json"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// Extension is what a session adds to a task.
type Extension interface {
	// Attend takes up its updates and queries.
	Attend(ctx workflow.Context) error
	// Begin takes up the settings of the compiled document, whose steps are in the schedule.
	Begin(ctx workflow.Context)
	// Carry adds its state to what the next run is handed, and Resume restores it.
	Carry(c *protocol.Carry)
	Resume(ctx workflow.Context, carried protocol.SessionCarry)
	// Correct tells it the parameters that a person has given to a step, and TakeBack a part that was
	// undone as it has asked.
	Correct(step string, with json.RawMessage)
	TakeBack(r *Rollback)
	// View is what the state shows of it, and Remarks are what the report says.
	View() *protocol.SessionView
	Remarks() []string
}
