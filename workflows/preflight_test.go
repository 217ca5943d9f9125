package workflows_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// preflighted gives the actions of some steps something to look at.
func preflighted(steps []task.Step, ids ...string) []task.Step {
	for i := range steps {
		steps[i].Preflights = slices.Contains(ids, steps[i].ID)
	}
	return steps
}

// refuses answers with a refusal of a step; the texts are a message, and the key on whose state it
// depends.
func refuses(step string, texts ...string) func(protocol.PreflightRequest) (protocol.Preflight, error) {
	return func(protocol.PreflightRequest) (protocol.Preflight, error) {
		r := activities.Refusal{Step: step, Message: texts[0]}
		if len(texts) > 1 {
			r.Current = texts[1]
		}
		return protocol.Preflight{Refusals: []activities.Refusal{r}}, nil
	}
}

func TestWhatIsCertainToBeRefusedIsRefusedBeforeTheFirstStep(t *testing.T) {
	const late = "file:/srv/new"
	for name, c := range map[string]struct {
		steps     []task.Step
		preflight func(protocol.PreflightRequest) (protocol.Preflight, error)
		calls     []string
		refused   string   // part of the failure; empty: it commits
		notes     []string // parts of the report's notes
	}{
		"nothing to look at": {steps: chain("a", "b"), calls: []string{"do a", "do b"}},
		"one look for all": {steps: preflighted(chain("a", "b", "c"), "a", "c"),
			calls: []string{"preflight a c", "do a", "do b", "do c"}},
		"the last step": {
			steps: preflighted(chain("a", "b"), "b"), preflight: refuses("b", "path: it is outside"),
			calls: []string{"preflight b"}, refused: "nothing was touched: Refused: steps.b: path: it is outside",
		},
		"all of them": {
			steps: preflighted(chain("a", "b"), "a", "b"), calls: []string{"preflight a b"},
			preflight: func(protocol.PreflightRequest) (protocol.Preflight, error) {
				return protocol.Preflight{Refusals: []activities.Refusal{{Step: "b", Message: "two"}, {Step: "a", Message: "one"}}},
					nil
			},
			refused: "steps.a: one\nsteps.b: two",
		},
		"what an earlier step makes": {
			steps:     keyed(preflighted(chain("a", "b"), "b"), "a", "file:/srv/new/app.json"),
			preflight: refuses("b", "source: it is not there", late), calls: []string{"preflight b", "do a", "do b"},
		},
		"what an earlier step may make": {
			steps:     changing(preflighted(chain("a", "b"), "b"), "a", "file:"),
			preflight: refuses("b", "source: it is not there", late), calls: []string{"preflight b", "do a", "do b"},
		},
		"what only a later step makes": {
			steps:     keyed(preflighted(chain("a", "b", "c"), "b"), "c", late),
			preflight: refuses("b", "source: it is not there", late), calls: []string{"preflight b"}, refused: "steps.b: source",
		},
		"what another resource does not make": {
			steps:     keyed(preflighted(chain("a", "b"), "b"), "a", "file:/srv/newer"),
			preflight: refuses("b", "source: it is not there", late), calls: []string{"preflight b"}, refused: "steps.b: source",
		},
		"no answer": {
			steps: preflighted(chain("a", "b"), "a"), calls: []string{"preflight a", "do a", "do b"},
			preflight: func(protocol.PreflightRequest) (protocol.Preflight, error) {
				return protocol.Preflight{}, temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil)
			},
			notes: []string{"the workers did not look at 1 step from a on before the first step: timed out"},
		},
		"an error": {
			steps: preflighted(chain("a", "b"), "a"), calls: []string{"preflight a", "do a", "do b"},
			preflight: func(protocol.PreflightRequest) (protocol.Preflight, error) {
				return protocol.Preflight{}, errors.New("no such activity")
			},
			notes: []string{"no such activity; each is looked at when it runs"},
		},
		"what could not be found out": {
			steps: preflighted(chain("a", "b"), "a"), calls: []string{"preflight a", "do a", "do b"},
			preflight: func(protocol.PreflightRequest) (protocol.Preflight, error) {
				return protocol.Preflight{Unseen: []string{"step a: the engine does not answer"}}, nil
			},
			notes: []string{"not looked at before the first step: step a: the engine"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRun(t, &world{steps: c.steps, preflight: c.preflight})
			report, err := r.report()
			require.Equal(t, c.calls, r.world.calls)
			require.Len(t, report.Notes, len(c.notes))
			for i, note := range c.notes {
				require.Contains(t, report.Notes[i], note)
			}
			if c.refused == "" {
				require.NoError(t, err)
				require.Equal(t, compensations.Committed, report.Status)
				return
			}
			r.failsAs(err, protocol.TaskFailed)
			require.ErrorContains(t, err, c.refused)
			require.Empty(t, report.Steps)
		})
	}
}

func keyed(steps []task.Step, id string, keys ...string) []task.Step {
	stepByID(steps, id).Keys = keys
	return steps
}

func changing(steps []task.Step, id string, prefixes ...string) []task.Step {
	stepByID(steps, id).MayChange = prefixes
	return steps
}

// A large task is looked at in parts: each has 200 KB of checks.
func TestLooksAreBounded(t *testing.T) {
	steps := chain("a", "b", "c", "d", "e", "f")
	for i := range steps {
		steps[i].Preflights = true
		texts := slices.Repeat([]string{strings.Repeat("x", 4000)}, 50)
		steps[i].Check = []activities.Check{{Command: &activities.CommandCheck{Run: texts}}}
	}
	r := newRun(t, &world{steps: steps})
	_, err := r.report()
	require.NoError(t, err)
	var looks []string
	for _, call := range r.world.calls {
		if strings.HasPrefix(call, "preflight") {
			looks = append(looks, call)
		}
	}
	slices.Sort(looks)
	require.Equal(t, []string{"preflight a b", "preflight c d", "preflight e f"}, looks)
}

// Planning goes on where a step would be refused, and says so of that step; so does validating.
func TestPlanAndValidateSayWhatWillBeRefused(t *testing.T) {
	w := &world{steps: preflighted(chain("a", "b"), "a", "b"), preflight: refuses("b", "path: it is outside")}
	r := newRun(t, w)
	r.env.ExecuteWorkflow(protocol.PlanTaskType, json.RawMessage(`{"name": "release"}`))
	require.NoError(t, r.env.GetWorkflowError())
	var plan protocol.Plan
	require.NoError(t, r.env.GetWorkflowResult(&plan))
	require.Equal(t, []string{"preflight a b", "plan a", "release a"}, w.calls)
	require.Equal(t, "path: it is outside", plan.Steps[1].Refused)
	require.Nil(t, plan.Steps[1].Change)
	require.Empty(t, plan.Steps[0].Refused)

	w.calls = nil
	r = newRun(t, w)
	r.env.ExecuteWorkflow(protocol.ValidateTaskType, json.RawMessage(`{"name": "release"}`))
	require.NoError(t, r.env.GetWorkflowError())
	var v protocol.Validation
	require.NoError(t, r.env.GetWorkflowResult(&v))
	require.Equal(t, []string{"preflight a b"}, w.calls)
	require.Equal(t, []activities.Refusal{{Step: "b", Message: "path: it is outside"}}, v.Refusals)
}
