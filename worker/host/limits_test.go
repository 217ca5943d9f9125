package host_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/testrun"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// bulk is an action that does nothing, with parameters and outputs as large as they may be.
type bulk struct {
	name       string
	preflights bool
}

// unrest is what its parameters ask for besides: how many bytes of a diff its plan shows, with how
// many it fails, and how many its undo finds to be somebody else's.
type unrest struct{ Diff, Fails, Drift int }

func (b bulk) Spec() activities.Spec {
	return activities.Spec{
		Name: b.name, Params: json.RawMessage(`{"type": "object"}`), Keys: []activities.Key{}, Preflights: b.preflights,
		UndoParams: []string{"own", "drift"}, Outputs: map[string]string{"text": "text"}, Risk: activities.Low,
		Strategy: activities.Snapshot,
	}
}

func (bulk) Plan(_ context.Context, _ activities.Entry, s activities.Step) (activities.Change, error) {
	var p unrest
	err := json.Unmarshal(s.With, &p)
	return activities.Change{Diff: noise(p.Diff), Digest: activities.DigestOf(s.With)}, err
}

func (bulk) Apply(_ context.Context, _ activities.Entry, s activities.Step, _ activities.Digest) (activities.Result,
	error) {
	var p unrest
	if err := json.Unmarshal(s.With, &p); err != nil || p.Fails > 0 {
		return activities.Result{}, errors.Join(err, activities.Errorf(activities.CheckFailed, "%s", noise(p.Fails)))
	}
	return activities.Result{Outputs: map[string]any{"text": strings.Repeat("x", 16_000)}}, nil
}

func (bulk) Undo(_ context.Context, e activities.Entry, d activities.Decision) (activities.Undone, error) {
	var p unrest
	if err := json.Unmarshal(e.Params, &p); err != nil {
		return activities.Undone{}, err
	}
	if drift := (activities.Drift{Digest: activities.DigestOf([]byte(e.Token)), Diff: noise(p.Drift)}); p.Drift > 0 &&
		d.Force != drift.Digest {
		return activities.Undone{Outcome: activities.Drifted, Drift: &drift}, nil
	}
	return activities.Undone{Outcome: activities.Restored}, nil
}

func (bulk) Observe(context.Context, activities.Entry) (activities.Observation, error) {
	return activities.Observation{State: activities.AsLeft}, nil
}

func (bulk) Release(context.Context, activities.Entry) error { return nil }

// looking is bulk with something to look at beforehand.
type looking struct{ bulk }

func (looking) Preflight(context.Context, activities.Outlook) error { return nil }

// noise is text that compresses to no less than three quarters.
func noise(n int) string {
	raw := make([]byte, n)
	_, _ = rand.Read(raw)
	return base64.StdEncoding.EncodeToString(raw)[:n]
}

// A task near any limit commits, or is refused or unwound with a reason; none hangs.
func TestATaskNearALimitEndsVisibly(t *testing.T) {
	t.Parallel()
	s := serve(t, host.Config{}, host.Options{Worlds: []activities.World{{
		Name: "bulk", Journal: func(context.Context) (string, error) { return "j", nil },
		Actions: []activities.Action{bulk{name: "bulk.add"}, looking{bulk{"bulk.look", true}}},
	}}})
	steps := func(n int, step func(i int) map[string]any) []any {
		all := make([]any, n)
		for i := range all {
			all[i] = step(i)
			all[i].(map[string]any)["id"] = fmt.Sprintf("s%d", i)
		}
		return all
	}
	wide := func(uses string) func(int) map[string]any {
		return func(int) map[string]any {
			own := []string{}
			for range 2 {
				own = append(own, noise(4000))
			}
			return map[string]any{
				"uses": uses, "needs": []any{}, "with": map[string]any{"own": own, "shared": slicesOf("${{ vars.part }}", 12)},
				"check": []any{map[string]any{"command": slicesOf("${{ vars.part }}", 4)}},
			}
		}
	}
	vars := map[string]any{"part": noise(3900), "large": noise(60_000)}
	for name, c := range map[string]struct {
		steps []any
		want  string // part of the failure; empty: it commits
	}{
		"as much at once as fits": {steps: steps(40, wide("bulk.add"))},
		"and looked at before":    {steps: steps(40, wide("bulk.look"))},
		// Together more than the 4 MB of one message.
		"all of it in the entry too": {steps: steps(40, func(int) map[string]any {
			return map[string]any{"uses": "bulk.look", "needs": []any{},
				"with": map[string]any{"own": slicesOf("${{ vars.part }}", 16)}}
		})},
		"too much for one payload": {
			steps: steps(30, func(int) map[string]any {
				return map[string]any{"uses": "bulk.add", "with": map[string]any{"own": noise(55_000)}}
			}),
			want: "bytes compressed, more than",
		},
		"too much for a step": {
			steps: steps(1, func(int) map[string]any {
				return map[string]any{"uses": "bulk.add",
					"with": map[string]any{"own": "${{ vars.large }}${{ vars.part }}${{ vars.part }}"}}
			}),
			want: "more than 65536",
		},
		"too much for the ledger": {
			steps: steps(60, func(int) map[string]any {
				return map[string]any{"uses": "bulk.add", "with": map[string]any{"own": noise(20_000)}}
			}),
			want: "the ledger of this task has",
		},
		"too many outputs for a step": {
			steps: steps(6, func(i int) map[string]any {
				text := ""
				for j := range i {
					text += fmt.Sprintf("${{ steps.s%d.outputs.text }}", j)
				}
				return map[string]any{"uses": "bulk.look", "with": map[string]any{"text": text}}
			}),
			want: "outputs filled in, more than",
		},
		"too large checks": {
			steps: steps(1, func(int) map[string]any {
				return map[string]any{"uses": "bulk.add",
					"check": []any{map[string]any{"command": slicesOf("${{ vars.part }}", 5)}}}
			}),
			want: "with its vars filled in, more than 16384",
		},
	} {
		// one after the other: each writes megabytes, and its time would pass while the others do
		t.Run(name, func(t *testing.T) {
			report, err := s.end(s.start(map[string]any{"name": name, "vars": vars, "steps": c.steps}))
			require.NotErrorIs(t, err, context.DeadlineExceeded, "it hangs")
			if c.want == "" {
				require.NoError(t, err)
				require.Equal(t, compensations.Committed, report.Status)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}

// TestAnyTaskNearTheLimitsEndsVisibly draws tasks of which each part is somewhat smaller or larger
// than it may be.
func TestAnyTaskNearTheLimitsEndsVisibly(t *testing.T) {
	t.Parallel()
	rounds := 4
	if testrun.Deep() {
		rounds = 60
	}
	s := serve(t, host.Config{}, host.Options{Worlds: []activities.World{{
		Name: "bulk", Journal: func(context.Context) (string, error) { return "j", nil },
		Actions: []activities.Action{bulk{name: "bulk.add"}, looking{bulk{"bulk.look", true}}},
	}}})
	r := testrun.Rand(t)
	near := func(limit int) int { // hardly ever above it, since a task has many parts
		if r.IntN(200) == 0 {
			return limit + 1 + r.IntN(limit/20)
		}
		return limit - r.IntN(limit/20)
	}
	sometimes := func(do func()) {
		if r.IntN(3) == 0 {
			do()
		}
	}
	for range rounds {
		n := []int{1, 5, 40, 150}[r.IntN(4)]
		steps := make([]any, n)
		for i := range steps {
			with := map[string]any{}
			step := map[string]any{"id": fmt.Sprintf("s%d", i), "uses": []string{"bulk.add", "bulk.look"}[r.IntN(2)],
				"with": with}
			switch kind := r.IntN(3); {
			case kind == 0:
				with["shared"] = slicesOf("${{ vars.part }}", 1+r.IntN(16))
			case kind == 1 && i > 0:
				with["text"] = strings.Repeat(fmt.Sprintf("${{ steps.s%d.outputs.text }}", r.IntN(i)), 1+r.IntN(4))
			default:
				with["own"] = noise(min(near(task.MaxInline-100), near(task.MaxDocument)/n/2))
			}
			sometimes(func() { step["name"] = strings.Repeat("n", near(task.MaxName)) })
			sometimes(func() { step["needs"] = []any{} })
			if r.IntN(8) == 0 {
				step["gate"] = "ask"
				with["diff"] = near(activities.MaxDiff)
			}
			sometimes(func() { with["drift"] = near(activities.MaxDiff) })
			sometimes(func() { step["check"] = []any{map[string]any{"command": slicesOf("${{ vars.part }}", 1+r.IntN(4))}} })
			steps[i] = step
		}
		sometimes(func() {
			steps[0].(map[string]any)["check"] = slicesOf(map[string]any{"command": []string{"true"}}, near(task.MaxChecks))
		})
		fails := r.IntN(2) == 0
		if fails {
			with := steps[n-1].(map[string]any)["with"].(map[string]any)
			with["fails"] = 1 + r.IntN(3*activities.MaxDiff)
		}
		document := map[string]any{
			"name": strings.Repeat("n", near(task.MaxName)),
			"vars": map[string]any{"part": noise(near(3900)), "large": noise(near(task.MaxVars) - 3900)}, "steps": steps,
		}
		run := s.start(document)
		leave := s.attend(run.GetID())
		report, err := s.end(run)
		leave()
		require.NotErrorIs(t, err, context.DeadlineExceeded, "a task of %d steps hangs", n)
		if err == nil {
			require.False(t, fails)
			require.Equal(t, compensations.Committed, report.Status)
		}
		t.Logf("%d steps: %v", n, err)
	}
}

// attend approves and forces whatever a task asks, until leave is called.
func (s *stage) attend(id string) (leave func()) {
	ctx, cancel := context.WithCancel(s.Context())
	var attending sync.WaitGroup
	attending.Go(func() {
		for again := time.NewTicker(tick); ; {
			select {
			case <-ctx.Done():
				again.Stop()
				return
			case <-again.C:
			}
			var state protocol.State
			v, err := s.Client.QueryWorkflow(ctx, id, "", protocol.QueryState)
			if err != nil || v.Get(&state) != nil {
				continue // not now
			}
			for _, g := range state.Gates {
				_ = s.Client.SignalWorkflow(ctx, id, "", protocol.SignalApprove,
					protocol.Decision{Step: g.Step, Digest: g.Digest, Who: "ann"})
			}
			if state.Report == nil {
				continue
			}
			for _, undo := range state.Report.Steps {
				if undo.State == string(compensations.Parked) && undo.Digest != "" {
					_ = s.Client.SignalWorkflow(ctx, id, "", compensations.SignalResolve,
						compensations.Resolution{Step: undo.Step, Digest: undo.Digest, Do: compensations.Force, Who: "ann"})
				}
			}
		}
	})
	return func() {
		cancel()
		attending.Wait()
	}
}

func slicesOf[T any](text T, n int) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = text
	}
	return all
}
