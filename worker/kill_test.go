package main

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/testrun"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// What a worker in a process of its own is told by its environment: that it is one, with its
// arguments, and the point at which it kills itself.
const (
	mortalVar = "UNWIND_TEST_MORTAL_WORKER"
	killVar   = "UNWIND_TEST_KILL_AT"
)

// serveMortally is a worker that ends by SIGKILL at a point, if one is given.
func serveMortally() {
	if at := os.Getenv(killVar); at != "" {
		point.Hook(func(label string) {
			if label == at {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {} // nothing of it goes on
			}
		})
	}
	os.Exit(run(context.Background(), strings.Split(os.Getenv(mortalVar), "\n"), io.Discard, os.Stderr))
}

// mortal is a task on workers that are killed.
type mortal struct {
	*testing.T
	client     client.Client
	args       []string
	root       string
	run        client.WorkflowRun
	workerEnds <-chan struct{}
}

func newMortal(t *testing.T) *mortal {
	m := &mortal{T: t, client: servertest.Client(t), root: t.TempDir()}
	m.args = []string{"--host", "build-1", "--queue", t.Name(), "--state", t.TempDir(), "--config",
		config(t, "heartbeat: 1s\nschedules: off\nfile: {roots: ["+m.root+"]}\n")}
	return m
}

// work starts a worker that is killed at a point; empty: at the end of the test.
func (m *mortal) work(killAt string) {
	m.Helper()
	server := servertest.Shared(m)
	var said testrun.Buffer
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), mortalVar+"="+strings.Join(m.args, "\n"), killVar+"="+killAt,
		"TEMPORAL_ADDRESS="+server.Address)
	c.Stderr = &said
	var err error
	m.workerEnds, err = testrun.StartChild(c, syscall.SIGKILL)
	require.NoError(m, err)
	m.Cleanup(func() {
		_ = c.Process.Kill()
		<-m.workerEnds
		if m.Failed() {
			m.Log("a worker said:\n" + said.String())
		}
	})
}

func (m *mortal) start(document string) {
	m.Helper()
	var err error
	m.run, err = m.client.ExecuteWorkflow(m.Context(), client.StartWorkflowOptions{TaskQueue: m.Name(),
		TypedSearchAttributes: protocol.ServingAttributes("", "")}, protocol.AgentTaskType,
		json.RawMessage(strings.ReplaceAll(document, "ROOT", m.root)))
	require.NoError(m, err)
}

func (m *mortal) awaitDeath() {
	m.Helper()
	select {
	case <-m.workerEnds:
	case <-time.After(time.Minute):
		require.Fail(m, "the worker has not come to where it is killed")
	}
}

// awaitGate waits for the only gate, other than one.
func (m *mortal) awaitGate(other activities.Digest) (g protocol.GateView) {
	m.Helper()
	require.Eventually(m, func() bool {
		ctx, cancel := context.WithTimeout(m.Context(), 5*time.Second)
		defer cancel()
		var s protocol.State
		v, err := m.client.QueryWorkflow(ctx, m.run.GetID(), "", protocol.QueryState)
		if err != nil || v.Get(&s) != nil || len(s.Gates) != 1 || s.Gates[0].Digest == other {
			return false
		}
		g = s.Gates[0]
		return true
	}, time.Minute, 20*time.Millisecond)
	return g
}

// scheduled are the calls of actions in the order in which the history has them.
func (m *mortal) scheduled() (calls []string) {
	m.Helper()
	events := m.client.GetWorkflowHistory(m.Context(), m.run.GetID(), "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		e, err := events.Next()
		require.NoError(m, err)
		a := e.GetActivityTaskScheduledEventAttributes()
		name, isFile := strings.CutPrefix(a.GetActivityType().GetName(), "file.write")
		if !isFile {
			continue
		}
		var call struct {
			Entry activities.Entry `json:"entry"`
		}
		require.NoError(m, converter.GetDefaultDataConverter().FromPayload(a.GetInput().GetPayloads()[0], &call))
		calls = append(calls, cmp.Or(strings.TrimPrefix(name, "."), "do")+" "+call.Entry.Step)
	}
	return calls
}

// files are those below the root, with what they hold.
func (m *mortal) files() (all []string) {
	m.Helper()
	require.NoError(m, filepath.WalkDir(m.root, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && !strings.Contains(path, "/.unwind") {
			content, err := os.ReadFile(path)
			require.NoError(m, err)
			all = append(all, strings.TrimPrefix(path, m.root+"/")+" "+string(content))
		}
		return err
	}))
	return all
}

// A worker that dies between two steps of a target's rollback has it go on where it was: no step of
// another target is undone, and no later batch begins.
func TestATargetIsRolledBackAlthoughItsWorkerIsKilled(t *testing.T) {
	m := newMortal(t)
	m.work("file.write:undo-swapped") // the second of the target failed before it had put anything into place
	m.start(`{"name": "limits", "steps": [{"id": "g", "on_failure": "rollback_target", "batch": 1,
		"for_each": [{"name": "a", "text": "{}"}, {"name": "b", "text": "no JSON"}, {"name": "c", "text": "{}"}],
		"steps": [{"id": "one", "uses": "file.write", "with": {"path": "ROOT/${{ target }}-one", "content": "1"}},
			{"id": "two", "uses": "file.write", "with": {"path": "ROOT/${{ target }}-two", "content": "${{ target.text }}"},
				"check": [{"syntax": "json"}]}]}]}`)
	m.awaitDeath()
	m.work("")
	var report compensations.Report
	require.NoError(t, m.run.Get(t.Context(), &report))
	require.Equal(t, []string{"do g-a-one", "do g-a-two", "do g-b-one", "do g-b-two",
		"undo g-b-two", "undo g-b-one"}, m.scheduled())
	require.Equal(t, compensations.Partly, report.Status)
	var ends []string
	for _, s := range report.Steps {
		ends = append(ends, s.Step+" "+s.State+" "+string(s.Outcome))
	}
	require.Equal(t, []string{"g-a-one done ", "g-a-two done ", "g-b-one settled restored", "g-b-two settled nothing-to-undo",
		"g-c-one left-out ", "g-c-two left-out "}, ends)
	require.Equal(t, []string{"a-one 1", "a-two {}"}, m.files())
}

// A worker that dies right after it has accepted an edit: the edited try is planned and asked about
// once, and runs once, however often the worker is started.
func TestAnEditOutlivesItsWorker(t *testing.T) {
	m := newMortal(t)
	m.work("file.write:undo-begun") // of the try that was edited
	m.start(`{"name": "limits", "steps": [{"id": "one", "uses": "file.write", "gate": "ask",
		"with": {"path": "ROOT/one", "content": "1"}}]}`)
	first := m.awaitGate("")
	require.NoError(t, m.client.SignalWorkflow(t.Context(), m.run.GetID(), "", compensations.SignalResolve,
		protocol.Resolution{Resolution: compensations.Resolution{Step: "one", Digest: first.Digest, Do: protocol.DoEdit,
			Who: "ann"}, With: json.RawMessage(`{"path":"` + m.root + `/one","content":"2"}`)}))
	m.awaitDeath()
	m.work("")
	second := m.awaitGate(first.Digest)
	require.Contains(t, second.Edited, `edited by ann: content from "1" to "2"`)
	require.Empty(t, m.files(), "the approval is asked anew")
	for _, digest := range []activities.Digest{first.Digest, second.Digest} {
		require.NoError(t, m.client.SignalWorkflow(t.Context(), m.run.GetID(), "", protocol.SignalApprove,
			protocol.Decision{Step: "one", Digest: digest, Who: "ann"}))
	}
	var report compensations.Report
	require.NoError(t, m.run.Get(t.Context(), &report))
	require.Equal(t, []string{"plan one", "undo one", "plan one", "do one"}, m.scheduled())
	require.Equal(t, compensations.Committed, report.Status)
	require.Equal(t, []string{"one 2"}, m.files())
	require.True(t, slices.ContainsFunc(report.Notes, func(note string) bool {
		return strings.Contains(note, "is not that of the present gate")
	}), report.Notes)
}
