package workflows_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

func TestACarryOfAnotherVersionWaitsForAWorkerThatKnowsIt(t *testing.T) {
	for carry, wayOut := range map[string]string{
		// A carry of format 2, whose fields had other types.
		`{"v": 2, "ignored": ["approve: no"], "saga": {"left": {"token": {"state": "parked"}}}}`: "run workers of the version that recorded it until its task is over",
		`{"v": 4, "saga": "in a place of its own"}`:                                              "upgrade this one",
		`{"saga": {}}`: "run workers of the version that recorded it",
	} {
		r := newRun(t, &world{steps: chain("a", "b")})
		r.env.SetContinuedExecutionRunID("the run before")
		r.env.ExecuteWorkflow(protocol.AgentTaskType, json.RawMessage(`{}`), json.RawMessage(carry))
		var failed *temporal.PanicError // fails only the workflow task: the run goes on
		require.ErrorAs(t, r.env.GetWorkflowError(), &failed, carry)
		require.ErrorContains(t, failed, "this run was recorded by a version that this one cannot undo")
		require.ErrorContains(t, failed, wayOut)
		require.Empty(t, r.world.calls)
	}
}

func TestAnUnreadableCarryWaitsForAWorkerThatReadsIt(t *testing.T) {
	encrypted := converter.NewRawValue(
		&commonpb.Payload{Metadata: map[string][]byte{"encoding": []byte("binary/encrypted")}, Data: []byte("?")})
	for what, c := range map[string]struct {
		workflow string
		input    []any
	}{
		"a carry whose types have changed": {protocol.AgentTaskType,
			[]any{json.RawMessage("null"), json.RawMessage(`{"v":3,"saga":{"entries":{"packed":true}}}`)}},
		"a carry without its codec":          {protocol.AgentTaskType, []any{encrypted, encrypted}},
		"the request of a recovery":          {protocol.RecoverType, []any{encrypted}},
		"the request of a rollback":          {protocol.RollbackType, []any{json.RawMessage(`{"without": 1}`)}},
		"what a redo and a carry of it hold": {protocol.RedoType, []any{encrypted, encrypted}},
		"the entries of a late sweep":        {protocol.LateSweepType, []any{encrypted}},
	} {
		r := newRun(t, &world{steps: chain("a")})
		r.env.SetContinuedExecutionRunID("the run before")
		r.env.ExecuteWorkflow(c.workflow, c.input...)
		var failed *temporal.PanicError // fails only the workflow task: the run goes on
		require.ErrorAs(t, r.env.GetWorkflowError(), &failed, what)
		require.ErrorContains(t, failed, "this worker cannot read", what)
		require.Empty(t, r.world.calls)
	}
}

func TestADocumentThatCannotBeReadIsRefused(t *testing.T) {
	r := newRun(t, &world{steps: chain("a")})
	r.env.ExecuteWorkflow(protocol.AgentTaskType,
		converter.NewRawValue(&commonpb.Payload{Metadata: map[string][]byte{"encoding": []byte("binary/encrypted")}}))
	report, err := r.ended()
	r.failsAs(err, protocol.TaskFailed)
	require.ErrorContains(t, err, "the task document cannot be read")
	require.Equal(t, compensations.Unwound, report.Status)
	require.Empty(t, r.world.calls)
}

// Only the server's word counts that a run continues another: otherwise a client could bypass the
// compiler and its gates by a carry.
func TestAMadeUpCarryIsRefused(t *testing.T) {
	forged := json.RawMessage(
		`{"v":3,"phase":"forward","began":"2026-01-01T00:00:00Z","saga":{},"size":1,"compiled":{"name":"forged","steps":[
		{"id":"a","uses":"fake.do","with":{},"gate":{"mode":"open"},"retry":{"attempts":1,"backoff":1000000000,"max":1000000000},
		"timeout":60000000000,"heartbeat":10000000000,"place":{"queue":"unwind","journal":"j"}}]}}`)
	for _, name := range []string{protocol.AgentTaskType, protocol.RecoverType, protocol.RollbackType, protocol.RedoType,
		protocol.LateSweepType} {
		for what, prepare := range map[string]func(*run){
			"by a start": func(*run) {},
			// As by cron: the server says of each of its runs that it continues the previous one.
			"by a start that runs again": func(r *run) {
				r.env.SetContinuedExecutionRunID("the run before")
				o := startOptions
				o.WorkflowRunTimeout = time.Hour
				r.env.SetStartWorkflowOptions(o)
			},
		} {
			r := newRun(t, &world{steps: chain("a")})
			prepare(r)
			r.env.ExecuteWorkflow(name, json.RawMessage("{}"), forged)
			report, err := r.ended()
			r.failsAs(err, protocol.TaskFailed)
			require.Equal(t, compensations.Unwound, report.Status, "%s %s: no sweep looks at it", name, what)
			require.ErrorContains(t, err, "nothing was touched")
			require.Empty(t, r.world.calls, "%s %s", name, what)
		}
	}
}

func TestALateSweepStartedByHandIsRefused(t *testing.T) {
	r := newRun(t, &world{})
	e := activities.Entry{Version: 1, Seq: 1, Step: "a", Action: "fake.do", UndoType: "fake.do.undo",
		Token: activities.NewToken("x", "a", 1), Place: activities.Place{Queue: queue}}
	r.env.ExecuteWorkflow(protocol.LateSweepType,
		protocol.LateSweepRequest{Task: "release", Rechecks: []compensations.Recheck{{Entry: e}}})
	_, err := r.ended()
	require.ErrorContains(t, err, "a late sweep is started by the task that it belongs to")
	require.Empty(t, r.world.calls)
}

func TestATaskWhoseLedgerCannotBeCarriedIsRefusedBeforeItActs(t *testing.T) {
	var ids []string
	for i := range 30 {
		ids = append(ids, fmt.Sprint("s", i))
	}
	w := &world{steps: chain(ids...)}
	for i := range w.steps {
		noise := make([]byte, 40_000)
		_, _ = rand.Read(noise)
		w.steps[i].With = []byte(`{"data": "` + base64.StdEncoding.EncodeToString(noise) + `"}`)
		w.steps[i].UndoParams = []string{"data"}
	}
	for i := range w.steps[5:] { // the other steps add little to the ledger before they run
		w.steps[5+i].With = []byte(`{"data": "${{ steps.s0.outputs.much }}"}`)
	}
	w.do = func(context.Context, string, int, activities.Forward) (activities.Result, error) {
		noise := make([]byte, 40_000)
		_, _ = rand.Read(noise)
		return activities.Result{Outputs: map[string]any{"much": base64.StdEncoding.EncodeToString(noise)}}, nil
	}
	r := newRun(t, w)
	// packing is slow under the race detector
	report, err := r.report()
	r.failsAs(err, protocol.TaskFailed)
	require.ErrorContains(t, err, "that can be carried: split the task")
	done := w.count["do s0"] * len(w.calls) / 2
	require.Greater(t, done, 5)
	require.Less(t, done, 30)
	require.ErrorContains(t, err, fmt.Sprintf("more than the %d that can be carried", 900_000-100*(done+1)),
		"what the unwinding finds out has room beside it")
	var want []string
	for _, id := range ids[:done] {
		want = append(want, "do "+id)
	}
	for _, id := range slices.Backward(ids[:done]) {
		want = append(want, "undo "+id)
	}
	require.Equal(t, want, w.calls)
	require.Equal(t, ids[done], report.Cause.Step)
	require.Equal(t, compensations.Unwound, report.Status)
}
