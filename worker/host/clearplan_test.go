package host_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/terraform"
	"github.com/seed-62bf7108/unwind/activities/terraform/terraformtest"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// unplanned is an action whose plan ends only with its workflow.
type unplanned struct{ slow }

func (u unplanned) Plan(ctx context.Context, _ activities.Entry, _ activities.Step) (activities.Change, error) {
	u.calls <- 1
	<-ctx.Done()
	return activities.Change{}, ctx.Err()
}

// planning serves Terraform, and an action whose plan does not end. The plan of a task of both gets
// as far as the second.
func planning(t *testing.T) (s *stage, plan client.WorkflowRun) {
	terraformtest.Require(t)
	root, u := t.TempDir(), unplanned{slow{calls: make(chan int, 10)}}
	require.NoError(t,
		os.WriteFile(filepath.Join(root, "main.tf"), []byte(`resource "terraform_data" "a" { input = "x" }`), 0o600))
	s = serve(t,
		host.Config{Worlds: []activities.Settings{&terraform.Settings{Roots: []string{root}}}, Heartbeat: time.Second},
		host.Options{Worlds: []activities.World{{
			Name: "slow", Actions: []activities.Action{u}, Journal: func(context.Context) (string, error) { return "j", nil },
		}}})
	plan, err := s.Client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: s.Name()},
		protocol.PlanTaskType, map[string]any{
			"name": "plan", "steps": []any{
				map[string]any{"id": "infra", "uses": "terraform.apply", "with": map[string]any{"dir": root}},
				map[string]any{"id": "long", "uses": "slow.work"},
			},
		})
	require.NoError(t, err)
	<-u.calls
	return s, plan
}

// planned is what is kept in the journal of Terraform, but for tombstones.
func (s *stage) planned() (kept []string) {
	tokens, err := filepath.Glob(filepath.Join(s.state, "terraform", "journal", "tokens", "*", "*"))
	require.NoError(s, err)
	for _, path := range tokens {
		if name := filepath.Base(path); !slices.Contains([]string{"fate", "released", "lock"}, name) &&
			!strings.HasPrefix(name, "hold-") {
			kept = append(kept, name)
		}
	}
	return kept
}

func TestThePlanOfAWorkflowThatWasTerminatedIsCleared(t *testing.T) {
	s, plan := planning(t)
	require.NotEmpty(t, s.planned(), "the plan that an apply would take")
	for _, refused := range []string{plan.GetID(), "no-such-plan"} {
		_, err := s.FindPlan(t.Context(), refused, "")
		require.Error(t, err)
	}
	alive := protocol.Chain{WorkflowID: plan.GetID(), RunID: plan.GetRunID(), FirstRunID: plan.GetRunID()}
	forged, err := s.Client.ExecuteWorkflow(t.Context(),
		client.StartWorkflowOptions{ID: protocol.ClearPlanID(alive), TaskQueue: s.Name()},
		protocol.ClearPlanType, alive)
	require.NoError(t, err)
	require.ErrorContains(t, forged.Get(t.Context(), nil), "is still planning")
	require.NotEmpty(t, s.planned())
	require.NoError(t, s.Client.TerminateWorkflow(t.Context(), plan.GetID(), "", "a test"))

	var swept protocol.SweepResult
	require.Eventually(t, func() bool { // visibility follows
		swept = call[protocol.SweepResult](s, protocol.SweepType)
		require.Empty(t, swept.Problems)
		return len(swept.Clearing) > 0
	}, waitFor, tick)
	require.Equal(t, protocol.SweepResult{Clearing: []string{fmt.Sprintf("clear-%s-%s", plan.GetID(), plan.GetRunID())}},
		swept)
	require.NoError(t, s.Client.GetWorkflow(t.Context(), swept.Clearing[0], "").Get(t.Context(), nil))
	require.Empty(t, s.planned())
	require.Equal(t, protocol.SweepResult{}, call[protocol.SweepResult](s, protocol.SweepType),
		"what is cleared is left alone")
}

func TestAPlanThatHasEndedByItselfIsNoSweeps(t *testing.T) {
	s, plan := planning(t)
	require.NoError(t, s.Client.CancelWorkflow(t.Context(), plan.GetID(), ""))
	require.Error(t, plan.Get(t.Context(), nil))
	require.Empty(t, s.planned(), "it has cleared it itself")
	_, err := s.FindPlan(t.Context(), plan.GetID(), "")
	require.Equal(t, recovery.Ended, recovery.WhyOf(err), "%v", err)
}
