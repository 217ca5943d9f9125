package host_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/file"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// files is a stage with the world file on a folder.
type files struct {
	*stage
	root string
}

func newFiles(t *testing.T, r host.RetentionConfig, m *host.Metrics) files {
	root := t.TempDir()
	c := host.Config{Worlds: []activities.Settings{&file.Settings{Roots: []string{root}}}, Retention: r}
	if m != nil {
		c.Listen = "127.0.0.1:0"
	}
	return files{serve(t, c, host.Options{Metrics: m}), root}
}

// write is a task that writes one and two, and is kept for so long after its end.
func (f files) write(keep time.Duration, more ...any) map[string]any {
	steps := []any{}
	for _, name := range []string{"one", "two"} {
		steps = append(steps, map[string]any{
			"id": name, "uses": "file.write", "needs": []string{},
			"with": map[string]any{"path": filepath.Join(f.root, name), "content": "written"},
		})
	}
	return map[string]any{"name": "write", "keep": fmt.Sprintf("%dms", keep.Milliseconds()),
		"steps": append(steps, more...)}
}

// atGate is a step that waits for a person.
func (f files) atGate() map[string]any {
	return map[string]any{
		"id": "three", "uses": "file.write", "gate": "ask",
		"with": map[string]any{"path": filepath.Join(f.root, "three"), "content": "written"},
	}
}

// states are the states of the journal's records.
func (f files) states() (states []activities.RecordState) {
	records, problems, err := f.worker.Registry.Records()["file"].Records(f.Context())
	require.NoError(f, err)
	require.Empty(f, problems)
	for _, r := range records {
		states = append(states, r.State)
	}
	return states
}

// orphans is how the metrics tell of two orphans.
var orphans = regexp.MustCompile(`(?m)^unwind_orphan_records\{[^}]*world="file"[^}]*\} 2$`)

// parkedOnce is how they tell of a park.
var parkedOnce = regexp.MustCompile(`(?m)^unwind_undo_parked(_total)?\{[^}]*action="file_write"[^}]*\} 1$`)

const (
	open, committed  = activities.RecordOpen, activities.RecordCommitted
	undone, released = activities.RecordUndone, activities.RecordReleased
)

func TestRecordsAreCommittedReleasedAndForgotten(t *testing.T) {
	f := newFiles(t, host.RetentionConfig{Audit: 2 * time.Second}, nil)
	task := f.start(f.write(2 * time.Second))
	require.Equal(t, compensations.Committed, f.report(task.GetID()).Status)
	require.Equal(t, []activities.RecordState{open, open}, f.states())

	require.Equal(t, protocol.RetentionResult{Committed: 2}, f.retain())
	require.Equal(t, []activities.RecordState{committed, committed}, f.states())
	require.Equal(t, protocol.RetentionResult{}, f.retain(), "until its window is over")
	var all protocol.RetentionResult
	require.Eventually(t, func() bool {
		r := f.retain()
		require.Empty(t, r.Problems)
		all.Released += r.Released
		all.Forgotten += r.Forgotten
		return all.Forgotten == 2
	}, waitFor, 100*time.Millisecond)
	require.Equal(t, protocol.RetentionResult{Released: 2, Forgotten: 2}, all)
	require.Empty(t, f.states())

	done, err := f.FindDone(t.Context(), task.GetID())
	require.NoError(t, err)
	_, err = f.Rollback(t.Context(), done, recovery.Part{}, "ann", "", f.converter())
	require.Equal(t, recovery.TooLate, recovery.WhyOf(err), err)
	for _, name := range []string{"one", "two"} {
		content, err := os.ReadFile(filepath.Join(f.root, name))
		require.NoError(t, err)
		require.Equal(t, "written", string(content))
	}
}

func TestMoreThanIsKeptIsReleasedBeforeItsTime(t *testing.T) {
	for name, c := range map[string]struct {
		keeps  host.RetentionConfig
		pinned bool
		want   []activities.RecordState
	}{
		"versions":     {host.RetentionConfig{Versions: 2}, false, []activities.RecordState{released, committed, committed}},
		"bytes":        {host.RetentionConfig{Bytes: 1}, false, []activities.RecordState{released, released, released}},
		"neither more": {host.RetentionConfig{}, false, []activities.RecordState{committed, committed, committed}},
		"pinned": {host.RetentionConfig{Versions: 1, Bytes: 1}, true,
			[]activities.RecordState{committed, committed, committed}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFiles(t, c.keeps, nil)
			for _, content := range []string{"first", "second", "third"} {
				task := f.start(map[string]any{"name": "write", "keep": "1h", "pinned": c.pinned, "steps": []any{map[string]any{
					"id": content, "uses": "file.write",
					"with": map[string]any{"path": filepath.Join(f.root, "one"), "content": content},
				}}})
				require.Equal(t, compensations.Committed, f.report(task.GetID()).Status)
			}
			var now []activities.RecordState
			require.Eventually(t, func() bool {
				require.Empty(t, f.retain().Problems)
				records, _, err := f.worker.Registry.Records()["file"].Records(t.Context())
				require.NoError(t, err)
				slices.SortFunc(records, func(a, b activities.Record) int { return a.Since.Compare(b.Since) })
				now = nil
				for _, r := range records {
					now = append(now, r.State)
				}
				return slices.Equal(c.want, now)
			}, waitFor, 100*time.Millisecond)
			require.Equal(t, protocol.RetentionResult{}, f.retain(), "and that is all")
			require.Equal(t, c.want, now)
		})
	}
}

func TestWhatALiveLedgerNeedsIsNeverReleased(t *testing.T) {
	m := host.NewMetrics()
	t.Cleanup(m.Close)
	f := newFiles(t, host.RetentionConfig{Versions: 1, Bytes: 1}, m)
	task := f.start(f.write(time.Millisecond, f.atGate()))
	require.Eventually(t, func() bool { return len(f.stateOf(task.GetID()).Gates) == 1 }, waitFor, tick)
	require.Equal(t, protocol.RetentionResult{}, f.retain())
	require.Equal(t, []activities.RecordState{open, open}, f.states(), "it waits")
	tasks := func(gauge string) (n int) {
		if found := regexp.MustCompile(`(?m)^` + gauge + ` (\d+)$`).FindStringSubmatch(f.metrics()); found != nil {
			n, _ = strconv.Atoi(found[1])
		}
		return n
	}
	// Other tests' tasks on the same server count too.
	require.Eventually(t, func() bool { return tasks("unwind_tasks_at_gates") > 0 }, waitFor, tick, "visibility follows")
	_, err := f.Client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
		ID: "owes-" + task.GetID(), TaskQueue: "nobody",
		TypedSearchAttributes: temporal.NewSearchAttributes(protocol.AttributeFailing.ValueSet("commit")),
	}, protocol.AgentTaskType)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return tasks("unwind_tasks_failing") > 0 }, waitFor, tick, "a commit that is owed")

	require.NoError(t, os.WriteFile(filepath.Join(f.root, "two"), []byte("somebody else's"), 0o600))
	require.NoError(t, f.Client.CancelWorkflow(t.Context(), task.GetID(), ""))
	f.parked(task.GetID(), "two")
	require.Eventually(t, func() bool { return parkedOnce.MatchString(f.metrics()) && tasks("unwind_tasks_parked") > 0 },
		waitFor, tick, "it is counted")
	require.Eventually(t, func() bool { return !slices.Contains(f.states(), open) }, waitFor, tick)
	left := f.states()
	require.Equal(t, protocol.RetentionResult{}, f.retain())
	require.Equal(t, left, f.states(), "it unwinds")

	require.NoError(t, f.Client.TerminateWorkflow(t.Context(), task.GetID(), "", "a test"))
	require.Equal(t, protocol.RetentionResult{}, f.retain())
	require.Equal(t, left, f.states(), "it is dead")

	dead, err := f.Find(t.Context(), task.GetID())
	require.NoError(t, err)
	recovering, err := f.Recover(t.Context(), dead, "ann")
	require.NoError(t, err)
	parked := f.parked(recovering.WorkflowID, "two")
	require.Equal(t, protocol.RetentionResult{}, f.retain())
	require.Equal(t, left, f.states(), "it is being recovered")

	f.force(recovering.WorkflowID, parked)
	require.Equal(t, compensations.Unwound, f.report(recovering.WorkflowID).Status)
	var all int
	require.Eventually(t, func() bool { all += f.retain().Released; return all >= 2 }, waitFor, tick,
		"it is recovered: nobody needs it")
	require.Equal(t, []activities.RecordState{released, released, released}, f.states())
	require.NoFileExists(t, filepath.Join(f.root, "one"))
	require.NoFileExists(t, filepath.Join(f.root, "two"))
}

func TestARollbackThatWaitsForAPersonKeepsItsRecords(t *testing.T) {
	const keep = 2 * time.Second
	f := newFiles(t, host.RetentionConfig{}, nil)
	task := f.start(f.write(keep))
	require.Equal(t, compensations.Committed, f.report(task.GetID()).Status)
	require.NoError(t, os.WriteFile(filepath.Join(f.root, "two"), []byte("somebody else's"), 0o600))
	done, err := f.FindDone(t.Context(), task.GetID())
	require.NoError(t, err)
	back, err := f.Rollback(t.Context(), done, recovery.Part{}, "ann", "", f.converter())
	require.NoError(t, err)
	parked := f.parked(back.WorkflowID, "two")

	over := time.After(time.Until(done.Closed.Add(keep)))
	for waits := true; waits; {
		select {
		case <-over:
			waits = false
		default:
		}
		require.Zero(t, f.retain().Released)
	}
	f.force(back.WorkflowID, parked)
	require.Equal(t, compensations.Unwound, f.report(back.WorkflowID).Status)
	require.NoFileExists(t, filepath.Join(f.root, "one"))
	require.NoFileExists(t, filepath.Join(f.root, "two"))
	var all int
	require.Eventually(t, func() bool { all += f.retain().Released; return all >= 2 }, waitFor, 50*time.Millisecond,
		"a redo is over, too")
	require.Equal(t, []activities.RecordState{released, released}, f.states())
}

func TestAnOpenRecordWhoseWorkflowIsGoneIsToldAndKept(t *testing.T) {
	m := host.NewMetrics()
	t.Cleanup(m.Close)
	f := newFiles(t, host.RetentionConfig{Bytes: 1}, m)
	task := f.start(f.write(time.Millisecond, f.atGate()))
	require.Eventually(t, func() bool { return len(f.stateOf(task.GetID()).Gates) == 1 }, waitFor, tick)
	_, err := f.Client.WorkflowService().DeleteWorkflowExecution(t.Context(),
		&workflowservice.DeleteWorkflowExecutionRequest{
			Namespace:         f.Namespace,
			WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: task.GetID(), RunId: task.GetRunID()},
		})
	require.NoError(t, err)
	var told protocol.RetentionResult
	require.Eventually(t, func() bool { told = f.retain(); return len(told.Orphans) > 0 }, waitFor, tick)
	steps := map[string]bool{}
	for _, o := range told.Orphans {
		require.Equal(t, protocol.RecordName{
			World: "file", Token: activities.NewToken(task.GetRunID(), o.Step, 1), Workflow: task.GetID(), Step: o.Step,
			Since: o.Since,
		}, o)
		require.WithinDuration(t, time.Now(), o.Since, time.Minute)
		steps[o.Step] = true
	}
	require.Equal(t, map[string]bool{"one": true, "two": true}, steps)
	require.Zero(t, told.Released+told.Forgotten+told.Committed)
	require.Eventually(t, func() bool {
		return orphans.MatchString(f.metrics())
	}, waitFor, tick)
	require.Equal(t, []activities.RecordState{open, open}, f.states())
}

func TestWhatAPersonHasLeftAsItWasIsGivenUpWhenItsWindowIsOver(t *testing.T) {
	const keep = 3 * time.Second
	m := host.NewMetrics()
	t.Cleanup(m.Close)
	f := newFiles(t, host.RetentionConfig{}, m)
	task := f.start(f.write(keep, f.atGate()))
	require.Eventually(t, func() bool { return len(f.stateOf(task.GetID()).Gates) == 1 }, waitFor, tick)
	for _, name := range []string{"one", "two"} { // one drifts, of two the record is damaged
		token := activities.NewToken(task.GetRunID(), name, 1)
		if name == "one" {
			require.NoError(t, os.WriteFile(filepath.Join(f.root, name), []byte("somebody else's"), 0o600))
			continue
		}
		records, err := filepath.Glob(filepath.Join(f.root, ".*", "journal", "tokens", token, "record"))
		require.NoError(t, err)
		require.Len(t, records, 1)
		require.NoError(t, os.Truncate(records[0], 10))
	}
	require.NoError(t, f.Client.TerminateWorkflow(t.Context(), task.GetID(), "", "a test"))
	dead, err := f.Find(t.Context(), task.GetID())
	require.NoError(t, err)
	recovering, err := f.Recover(t.Context(), dead, "ann")
	require.NoError(t, err)
	f.resolve(recovering.WorkflowID, f.parked(recovering.WorkflowID, "two"), compensations.Skip)
	f.resolve(recovering.WorkflowID, f.parked(recovering.WorkflowID, "one"), compensations.Accept)
	require.Equal(t, compensations.Remains, f.report(recovering.WorkflowID).Status)
	end, err := f.Describe(t.Context(), recovering.WorkflowID, "")
	require.NoError(t, err)
	over := end.Closed.Add(keep)
	told := f.retain()
	if time.Now().Before(over) {
		require.Empty(t, told.Abandoned)
	}

	steps := map[string]bool{}
	require.Eventually(t, func() bool {
		told := f.retain()
		require.Empty(t, told.Problems)
		for _, a := range told.Abandoned {
			steps[a.Step] = true
		}
		return !slices.Contains(f.states(), undone)
	}, waitFor, 100*time.Millisecond)
	require.False(t, time.Now().Before(over))
	require.Equal(t, map[string]bool{"one": true, "two": true}, steps)
	for name, content := range map[string]string{"one": "somebody else's", "two": "written"} {
		raw, err := os.ReadFile(filepath.Join(f.root, name))
		require.NoError(t, err)
		require.Equal(t, content, string(raw))
	}
	require.Eventually(t, func() bool {
		return regexp.MustCompile(`(?m)^unwind_abandoned_records(_total)?\{[^}]*world="file"[^}]*\} 2$`).MatchString(
			f.metrics())
	}, waitFor, tick)
}
