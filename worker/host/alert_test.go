package host_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/file"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/worker/notices"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

var parked = []protocol.Alert{{
	Task: "release", Run: "r", Step: "two", Action: "file.write", State: compensations.Parked, Reason: "it has drifted",
	Digest: "sha256:1", At: time.Now().UTC().Truncate(time.Second),
}}

// alerting is a worker with these channels; OPS is the address of ours, and DEAD of one that is away.
func alerting(t *testing.T, address string, channels ...notices.Channel) *stage {
	away := httptest.NewServer(nil)
	away.Close()
	t.Setenv("PAGER_KEY", "a-secret-key")
	t.Setenv("PAGER_OPS", address+"/hook/its-key")
	t.Setenv("PAGER_DEAD", away.URL+"/hook/its-key")
	m := host.NewMetrics()
	t.Cleanup(m.Close)
	return serve(t, host.Config{
		Secrets: map[string]string{"KEY": "env:PAGER_KEY", "OPS": "env:PAGER_OPS", "DEAD": "env:PAGER_DEAD"},
		Worlds:  []activities.Settings{&file.Settings{Roots: []string{t.TempDir()}}},
		Notices: channels, Page: "https://unwind.example.com", Listen: "127.0.0.1:0",
	}, host.Options{Metrics: m, Register: func(r worker.Registry) {
		r.RegisterWorkflowWithOptions(tellAlert, workflow.RegisterOptions{Name: "tell"})
	}})
}

// told is what became of telling an alert.
type told struct{ Error string }

func tellAlert(ctx workflow.Context, a []protocol.Alert) (told, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	if err := workflow.ExecuteActivity(ctx, protocol.AlertActivity, a).Get(ctx, nil); err != nil {
		return told{err.Error()}, nil //nolint:nilerr // the error is what is told
	}
	return told{}, nil
}

// pager is a webhook that takes everything.
func pager(t *testing.T) (address string, got chan notices.Notice) {
	got = make(chan notices.Notice, 100)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var n notices.Notice
		if json.NewDecoder(r.Body).Decode(&n) == nil {
			got <- n
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, got
}

var (
	onCall  = notices.Channel{Name: "ops", Webhook: &notices.Webhook{URL: "OPS", Key: "KEY"}}
	nowhere = notices.Channel{Name: "dead", Webhook: &notices.Webhook{URL: "DEAD", Key: "KEY"}}
)

// next is the next notice, which comes by itself.
func next(t *testing.T, got chan notices.Notice) notices.Notice {
	t.Helper()
	select {
	case n := <-got:
		return n
	case <-time.After(waitFor):
		require.Fail(t, "nobody was told")
		return notices.Notice{}
	}
}

// failed is how the metrics tell of a channel that is away.
var failed = regexp.MustCompile(`(?m)^unwind_notices_failed(_total)?\{[^}]*channel="dead"[^}]*\} [1-9]`)

// once is how the metrics tell of one alert.
var once = regexp.MustCompile(`(?m)^unwind_alerts(_total)?\{[^}]*state="parked"[^}]*\} 1$`)

func TestADeadChannelHoldsUpNobody(t *testing.T) {
	address, got := pager(t)
	s := alerting(t, address, nowhere, onCall)
	require.Equal(t, told{}, call[told](s, "tell", parked))
	n := next(t, got)
	require.Equal(t, []notices.Item{{Alert: parked[0], ID: parked[0].ID(), Kind: notices.New,
		Page: "https://unwind.example.com/tasks/release/steps/two", TaskPage: "https://unwind.example.com/tasks/release",
	}}, n.Items)
	require.NoError(t, s.Client.GetWorkflow(t.Context(), protocol.NoticesID(s.Name(), "ops"), "").Get(t.Context(), nil),
		"it has nothing more to tell")
	require.Eventually(t, func() bool { return failed.MatchString(s.metrics()) && once.MatchString(s.metrics()) }, waitFor, tick)
	d, err := s.Client.DescribeWorkflowExecution(t.Context(), protocol.NoticesID(s.Name(), "dead"), "")
	require.NoError(t, err)
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, d.GetWorkflowExecutionInfo().GetStatus())
	for history := s.Client.GetWorkflowHistory(t.Context(), protocol.NoticesID(s.Name(), "dead"), "", false,
		enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); history.HasNext(); {
		event, err := history.Next()
		require.NoError(t, err)
		require.NotContains(t, event.String(), "its-key")
	}
}

func TestWithoutAChannelAnAlertIsCountedOnly(t *testing.T) {
	s := alerting(t, "")
	require.Equal(t, told{}, call[told](s, "tell", parked))
	require.Eventually(t, func() bool { return once.MatchString(s.metrics()) }, waitFor, tick)
}

// gated is a task with a file that is written once somebody approves it.
func (s *stage) gated(within string) string {
	return s.start(map[string]any{"name": "release", "steps": []any{map[string]any{
		"id": "deploy", "uses": "file.write", "gate": map[string]any{"mode": "ask", "timeout": within},
		"with": map[string]any{"path": filepath.Join(s.worker.Config.Worlds[0].(*file.Settings).Roots[0], "f"), "content": "x"},
	}}}).GetID()
}

// The task is asked when its gate has closed, so that people hear what has become of it.
func TestPeopleAreToldOfAGateAndOfItsLapse(t *testing.T) {
	address, got := pager(t)
	s := alerting(t, address, onCall)
	task := s.gated("2s")
	first := next(t, got).Items[0]
	require.Equal(t, []string{task, "deploy", "file.write", "at-gate", "low"},
		[]string{first.Task, first.Step, first.Action, string(first.State), string(first.Risk)})
	require.Contains(t, first.Summary, "create")
	lapse := next(t, got).Items[0]
	require.Equal(t, notices.Lapsed, lapse.Kind)
	require.Equal(t, first.ID, lapse.ID)
	require.Equal(t, "nobody approved step deploy within 2s", lapse.Reason)
}

// What is decided is told no more, and the channel has nothing left.
func TestADecidedGateIsForgotten(t *testing.T) {
	address, got := pager(t)
	s := alerting(t, address, onCall)
	task := s.gated("2s")
	first := next(t, got).Items[0]
	require.NoError(t, s.Client.SignalWorkflow(t.Context(), task, "", protocol.SignalApprove,
		protocol.Decision{Step: "deploy", Digest: first.Digest, Who: "ann"}))
	require.NoError(t, s.Client.GetWorkflow(t.Context(), protocol.NoticesID(s.Name(), "ops"), "").Get(t.Context(), nil))
	require.Empty(t, got)
}

// A task that was terminated still answers that its gate is open.
func TestATerminatedTaskWaitsForNobody(t *testing.T) {
	address, got := pager(t)
	s := alerting(t, address, onCall)
	task := s.gated("2s")
	next(t, got)
	require.NoError(t, s.Client.TerminateWorkflow(t.Context(), task, "", "test"))
	require.NoError(t, s.Client.GetWorkflow(t.Context(), protocol.NoticesID(s.Name(), "ops"), "").Get(t.Context(), nil))
	require.Empty(t, got)
}
