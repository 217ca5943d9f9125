package sessions

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/workflows/engine"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// A session that names an environment takes a checkpoint of it for each savepoint. The checkpoint is
// an ordinary step, behind which the savepoint stands: what goes back past the savepoint also
// deletes the checkpoint. A rollback to the savepoint first undoes the steps since, each as it is
// undone best. Then another ordinary step puts the environment back where it still differs, which is
// what others have done; and the savepoint stands behind that one, so that the next rollback does not
// take it back.

// environmentWait is how long an attempt of such a step may take.
const environmentWait = "6h"

func (t *session) hasEnvironment() bool {
	return t.Compiled.Session != nil && t.Compiled.Session.Environment != ""
}

// ownStep is a step that the session itself takes.
type ownStep struct {
	Name    string         `json:"name"`
	Uses    string         `json:"uses"`
	On      string         `json:"on,omitempty"`
	Gate    task.GateMode  `json:"gate,omitempty"`
	Timeout string         `json:"timeout"`
	With    map[string]any `json:"with"`
}

// compileOwn compiles a step of the session about its environment, behind which a savepoint stands.
func (t *session) compileOwn(ctx workflow.Context, s ownStep, savepoint string) (task.Compiled, error) {
	settings := t.Compiled.Session
	s.On, s.Timeout = settings.Host, environmentWait
	s.With["environment"] = settings.Environment
	raw, _ := json.Marshal(s) // plain data
	compiled, err := t.compileSteps(ctx, []json.RawMessage{raw}, true)
	if err == nil {
		compiled.Steps[0].Marks = savepoint
	}
	return compiled, err
}

// takeCheckpoint adds the step that takes the checkpoint of a savepoint.
func (t *session) takeCheckpoint(ctx workflow.Context, q *request, savepoint string) error {
	compiled, err := t.compileOwn(ctx, ownStep{
		Name: "checkpoint of savepoint " + savepoint, Uses: "environment.checkpoint",
		With: map[string]any{"notes": fmt.Sprintf("savepoint %s of session %s", savepoint,
			workflow.GetInfo(ctx).WorkflowExecution.ID)},
	}, savepoint)
	if err == nil {
		err = t.checkSavepoint(savepoint) // another request may have begun meanwhile
	}
	if err != nil {
		return err
	}
	q.steps = t.addSteps(compiled)
	t.checkpoints[savepoint] = q.steps[0]
	return nil
}

// prepareRestore compiles the step that puts the environment back to the checkpoint of a savepoint,
// so that what cannot be is refused before anything is undone.
func (t *session) prepareRestore(ctx workflow.Context, r protocol.SessionRollback) ([]task.Step, error) {
	if r.To == "" || !t.hasEnvironment() {
		return nil, nil
	}
	s := ownStep{
		Name: "back to the checkpoint of savepoint " + r.To, Uses: "environment.rollback",
		With: map[string]any{"if_different": true,
			"to": fmt.Sprintf("${{ steps.%s.outputs.checkpoint }}", t.checkpoints[r.To])},
	}
	if t.Compiled.Session.AgentRestores {
		s.Gate = task.GateNone
	}
	compiled, err := t.compileOwn(ctx, s, r.To)
	if err == nil {
		t.used.add("step", compiled.Steps[0].ID)
	}
	return compiled.Steps, err
}

// restore adds what comes after a rollback, once it is over.
func (t *session) restore(r *engine.Rollback) {
	if len(r.Then) == 0 {
		return
	}
	ids := t.addSteps(task.Compiled{Steps: r.Then})
	if q := t.answers.requests[r.Request]; q != nil {
		q.steps = ids
	}
}

// isCheckpoint reports whether a step has taken the checkpoint of a savepoint.
func (t *session) isCheckpoint(id string) bool {
	return slices.Contains(slices.Collect(maps.Values(t.checkpoints)), id)
}

// isMade reports whether the step that a savepoint stands behind was done.
func (t *session) isMade(id string) bool {
	s := t.Schedule.ByID[id]
	return s == nil || s.View.State == protocol.Done
}

// dropCheckpoints notes which of the steps that were taken back had taken checkpoints of savepoints:
// these are no longer there.
func (t *session) dropCheckpoints(taken []protocol.TakenStep) {
	for i, s := range taken {
		for _, name := range slices.Sorted(maps.Keys(t.checkpoints)) {
			if t.checkpoints[name] == s.ID {
				taken[i].Marks = name
				delete(t.checkpoints, name)
				delete(t.Savepoints.Places, name)
			}
		}
	}
}
