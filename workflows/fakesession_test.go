package workflows_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// The fake world compiles sessions for real, against a catalog of one action.
func (w *world) catalog() task.Catalog {
	risk := activities.Low
	if w.risky {
		risk = activities.High
	}
	return task.Catalog{
		Specs: []activities.Spec{{
			Name: "fake.do", Risk: risk, UndoParams: w.intent, Intent: w.intent,
			Params: []byte(
				`{"type": "object", "properties": {"path": {"type": "string"}, "from": {}}, "additionalProperties": false}`),
			Keys: []activities.Key{{Prefix: "fake:", Param: "path", Path: true}}, Outputs: map[string]string{"id": "an id"},
		}},
		Host: "host", SharedQueue: w.queue(), Journals: map[string]string{"fake": "j"},
		Defaults: task.Defaults{Attempts: 1, Heartbeat: 3 * time.Second},
	}
}

func (w *world) queue() string {
	if w.taskQueue != "" {
		return w.taskQueue
	}
	return queue
}

func (w *world) compileSession(doc json.RawMessage) (task.Compiled, error) {
	parsed, err := task.Parse("task", doc)
	if err != nil {
		return task.Compiled{}, refused(err)
	}
	compiled, err := w.compileParsed(parsed)
	for i, s := range compiled.Steps {
		compiled.Steps[i].Preflights = slices.Contains(w.unnamed, s.ID)
	}
	return compiled, err
}

// refused is final, as from a real worker.
func refused(err error) error {
	return temporal.NewNonRetryableApplicationError(err.Error(), string(activities.Refused), nil)
}

func (w *world) compileParsed(parsed *task.Document) (task.Compiled, error) {
	compiled, err := task.Compile(parsed, w.catalog())
	if err != nil {
		return task.Compiled{}, refused(err)
	}
	return *compiled, nil
}

func (w *world) CompileSteps(_ context.Context, a task.Addition) (task.Compiled, error) {
	if w.compiling != nil {
		w.compiling()
	}
	parsed, err := a.Parse()
	if err != nil {
		return task.Compiled{}, refused(err)
	}
	compiled, err := w.compileParsed(parsed)
	for i := range compiled.Steps {
		s := &compiled.Steps[i]
		if t, isNamed := w.touched[s.ID]; isNamed {
			t.Step = s.ID
			compiled.Touched = append(compiled.Touched, t)
		}
		s.NamedLate = slices.Contains(w.late, s.ID)
		if slices.Contains(w.unnamed, s.ID) {
			s.Preflights, compiled.Unnamed = true, append(compiled.Unnamed, s.ID)
		}
	}
	return compiled, err
}

func (w *world) checkSteps(a task.Addition) error {
	_, err := w.CompileSteps(context.Background(), a)
	return err
}

const sessionDocument = `{"name": "live", "agent": "bot", "session": {"idle": "1h", "gone": "unwind"}, "steps": []}`

// steps makes a request of steps: each is an id, or a whole step as JSON.
func steps(all ...string) protocol.StepRequest {
	var r protocol.StepRequest
	for _, s := range all {
		if !strings.HasPrefix(s, "{") {
			s = fmt.Sprintf(`{"id": %q, "uses": "fake.do"}`, s)
		}
		r.Steps = append(r.Steps, json.RawMessage(s))
	}
	return r
}

// updated is what became of an update.
type updated struct {
	refused error // before it was accepted
	err     error
	answer  protocol.Answer
	done    bool
}

func (u *updated) Accept()          {}
func (u *updated) Reject(err error) { u.refused, u.done = err, true }
func (u *updated) Complete(success any, err error) {
	u.err, u.done = err, true
	if a, ok := success.(protocol.Answer); ok {
		u.answer = a
	}
}

// update sends an update in the test environment.
func (r *run) update(name, id string, arguments ...any) *updated {
	u := &updated{}
	r.env.UpdateWorkflow(name, id, u, arguments...)
	return u
}

// session runs a session to its end, which says what it does at each moment.
func (r *run) session() {
	r.env.ExecuteWorkflow(protocol.AgentTaskType, json.RawMessage(sessionDocument))
	require.True(r, r.env.IsWorkflowCompleted())
}

func states(a protocol.Answer) []string {
	var all []string
	for _, s := range a.Steps {
		all = append(all, s.ID+" "+string(s.State))
	}
	return all
}
