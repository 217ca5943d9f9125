package host_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// rewriting is a task that writes the same file in three steps.
func (f files) rewriting() (task recovery.Run, file string) {
	file = filepath.Join(f.root, "one")
	require.NoError(f, os.WriteFile(file, []byte("before"), 0o600))
	var steps []any
	for _, content := range []string{"first", "second", "third"} {
		steps = append(steps,
			map[string]any{"id": content, "uses": "file.write", "with": map[string]any{"path": file, "content": content}})
	}
	run := f.start(map[string]any{"name": "write", "keep": "1h", "steps": steps})
	require.Equal(f, compensations.Committed, f.report(run.GetID()).Status)
	done, err := f.FindDone(f.Context(), run.GetID())
	require.NoError(f, err)
	return done, file
}

func (f files) rollback(done recovery.Run, part recovery.Part) string {
	back, err := f.Rollback(f.Context(), done, part, "ann", "", f.converter())
	require.NoError(f, err)
	return back.WorkflowID
}

func (f files) holds(file, content string) {
	f.Helper()
	got, err := os.ReadFile(file)
	require.NoError(f, err)
	require.Equal(f, content, string(got))
}

func TestARollbackOfWhichARecordIsReleasedTouchesNothing(t *testing.T) {
	f := newFiles(t, host.RetentionConfig{Versions: 2}, nil)
	task, file := f.rewriting()
	require.Eventually(t, func() bool { return f.retain().Released == 1 }, waitFor, tick)

	whole := f.rollback(task, recovery.Part{})
	err := f.Client.GetWorkflow(t.Context(), whole, "").Get(t.Context(), nil)
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.ErrorContains(t, err, "nothing was touched: Refused: the undo records of 1 of 3 steps are released (first)")
	f.holds(file, "third")
	family, err := f.Family(t.Context(), task)
	require.NoError(t, err)
	now, _ := family.Of(task.WorkflowID)
	require.Empty(t, now, "it is not rolled back")
	_, err = f.Rollback(t.Context(), task, recovery.Part{}, "ann", "", f.converter())
	require.ErrorContains(t, err, whole+" was refused, touched nothing, and is not started twice")

	require.Equal(t, compensations.Unwound, f.report(f.rollback(task, recovery.Part{Step: "second"})).Status,
		"what is kept can be rolled back")
	f.holds(file, "first")
}

func TestARecordIsKeptForWhoHoldsIt(t *testing.T) {
	f := newFiles(t, host.RetentionConfig{Bytes: 1}, nil)
	gate := f.start(map[string]any{"name": "holder", "steps": []any{f.atGate()}})
	require.Eventually(t, func() bool { return len(f.stateOf(gate.GetID()).Gates) == 1 }, waitFor, tick)
	over := f.start(map[string]any{"name": "holder", "steps": []any{f.atGate()}})
	require.NoError(t, f.Client.CancelWorkflow(t.Context(), over.GetID(), ""))
	require.Error(t, over.Get(t.Context(), nil))
	task, _ := f.rewriting()

	journal := f.worker.Registry.Records()["file"]
	hold := func(step, workflow, run string) {
		held, err := journal.Hold(t.Context(), activities.NewToken(task.FirstRunID, step, 1),
			activities.Owner{Workflow: workflow, Run: run})
		require.NoError(t, err)
		require.True(t, held)
	}
	hold("first", gate.GetID(), gate.GetRunID())
	hold("second", over.GetID(), over.GetRunID())
	hold("third", "rollback-of-nobody", "1f0a2f6c-9d4c-4a08-8e2c-0d6f0f6c2a11")
	var all int
	var last protocol.RetentionResult
	require.Eventually(t, func() bool {
		last = f.retain()
		require.Empty(t, last.Problems)
		all += last.Released
		return all == 1
	}, waitFor, 50*time.Millisecond, "only one of them is over")
	require.Len(t, last.Held, 1)
	require.Equal(t, "third", last.Held[0].Step)
	require.Equal(t, "rollback-of-nobody", last.Held[0].Holder,
		"somebody is told of the one that the server does not know")
	states := map[string]activities.RecordState{}
	records, _, err := journal.Records(t.Context())
	require.NoError(t, err)
	for _, r := range records {
		if r.Entry.Step != "" { // else it is what is left of the holder's own step
			states[r.Entry.Step] = r.State
		}
	}
	require.Equal(t, map[string]activities.RecordState{"first": committed, "second": released, "third": committed}, states)

	require.NoError(t, f.Client.CancelWorkflow(t.Context(), gate.GetID(), ""))
	require.Eventually(t, func() bool { all += f.retain().Released; return all == 2 }, waitFor, 50*time.Millisecond)
}
