package workflows_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows"
)

// The stored histories were recorded once, by the code of their day. They are never rewritten: a change that they do not
// replay needs workflow.GetVersion, and a history of its own (record_test.go records those that are missing).
const histories = "testdata/histories"

func replay(t *testing.T, file string, task any) error {
	t.Helper()
	r := worker.NewWorkflowReplayer()
	r.RegisterWorkflowWithOptions(task, workflow.RegisterOptions{Name: workflows.AgentTaskType})
	return r.ReplayWorkflowHistoryFromJSONFile(nil, file)
}

func TestStoredHistoriesReplay(t *testing.T) {
	for _, file := range stored(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			require.NoError(t, replay(t, file, workflows.AgentTask))
		})
	}
}

// A replay that accepts anything proves nothing: workflows that decide otherwise must be told apart, for each history.
func TestOtherWorkflowsDoNotReplay(t *testing.T) {
	wrong := map[string]any{
		"schedules something first": func(ctx workflow.Context, doc json.RawMessage) (compensations.Report, error) {
			_ = workflow.Sleep(ctx, time.Second)
			return workflows.AgentTask(ctx, doc, nil)
		},
		"never listens to its compiler": func(ctx workflow.Context, _ json.RawMessage) (compensations.Report, error) {
			ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
			return compensations.Report{}, workflow.ExecuteActivity(ctx, "task.other").Get(ctx, nil)
		},
		"ends at once": func(workflow.Context, json.RawMessage) (compensations.Report, error) {
			return compensations.Report{}, nil
		},
	}
	for _, file := range stored(t) {
		for name, task := range wrong {
			t.Run(filepath.Base(file)+" "+name, func(t *testing.T) {
				require.Error(t, replay(t, file, task))
			})
		}
	}
}

// stored lists the histories; there must be one of each scenario.
func stored(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(histories, "*.json"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), len(scenarios), "histories are missing in %s: record them", histories)
	return files
}

// scenarios are the ways through the workflow that the stored histories cover. act drives the task to its end.
var scenarios = map[string]struct {
	world func() *world
	act   func(l *live)
}{
	"committed": {func() *world { return &world{steps: chain("a", "b", "c")} }, nil},
	"failed":    {func() *world { return &world{steps: chain("a", "b", "c"), do: refusing("c")} }, nil},
	"side-by-side": {func() *world {
		steps := chain("a", "b", "c")
		steps[1].Needs = nil
		steps[2].Needs = []string{"a", "b"}
		return &world{steps: steps, do: refusing("c")}
	}, nil},
	"refused": {func() *world {
		return &world{refuse: temporal.NewNonRetryableApplicationError("task:1:1: name: missing", string(activities.Refused), nil)}
	}, nil},
	"approved": {
		func() *world { return &world{steps: gated(chain("a", "b"), "b", time.Hour)} },
		func(l *live) { l.approve() },
	},
	"rejected": {
		func() *world { return &world{steps: gated(chain("a", "b"), "b", time.Hour)} },
		func(l *live) {
			g := l.until(atGate).Gates[0]
			l.signal(workflows.SignalApprove, workflows.Decision{Step: g.Step, Digest: "sha256:another"})
			l.signal(workflows.SignalReject, workflows.Decision{Step: g.Step, Digest: g.Digest, Who: "ann"})
		},
	},
	"canceled": {
		func() *world { return &world{steps: chain("a", "b"), do: hangAt("b", never)} },
		func(l *live) {
			l.called("do b", 1)
			require.NoError(l, l.client.CancelWorkflow(l.Context(), l.run.GetID(), ""))
		},
	},
	"deadline": {func() *world {
		return &world{steps: chain("a", "b"), do: hangAt("b", never), deadline: time.Second}
	}, nil},
	"parked-and-resolved": {
		func() *world {
			w := &world{steps: chain("a", "b", "c"), do: refusing("c")}
			w.undo = func(step string, n int, d activities.Decision) (activities.Undone, error) {
				switch {
				case step == "b" && d.Force == "":
					return activities.Undone{Outcome: activities.Drifted, Drift: &activities.Drift{Digest: "sha256:drift", Diff: "+x"}}, nil
				case step == "a" && n == 1:
					return activities.Undone{}, errors.New("once")
				}
				return activities.Undone{Outcome: activities.Restored}, nil
			}
			return w
		},
		func(l *live) { l.resolve(compensations.Force) },
	},
	"reset": {
		func() *world { return &world{steps: chain("a", "b", "c"), do: hangAt("c", never)} },
		func(l *live) { l.called("do c", 1); l.resetTo(1) },
	},
}

func refusing(step string) func(context.Context, string, int, activities.Forward) (activities.Result, error) {
	return func(_ context.Context, s string, _ int, _ activities.Forward) (activities.Result, error) {
		if s == step {
			return activities.Result{}, activities.Errorf(activities.CheckFailed, "no")
		}
		return activities.Result{Summary: "did it", Outputs: map[string]any{"id": 7}}, nil
	}
}
