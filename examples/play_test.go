package examples_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/examples"
	"github.com/seed-62bf7108/unwind/examples/found"
	"github.com/seed-62bf7108/unwind/examples/stage"
	"github.com/seed-62bf7108/unwind/testrun"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// player runs tasks on a stage, against a real server.
type player struct {
	*testing.T
	stage   *stage.Stage
	client  client.Client
	queue   string
	metrics *host.Metrics
	log     *buffer // everything that the worker logs
}

// newPlayer sets up a stage. If the machine lacks something, it skips the test, or fails it if
// nothing may be skipped.
func newPlayer(t *testing.T, secrets map[string]string) *player {
	t.Helper()
	for _, program := range []string{"rm", "sleep"} { // on this host: Terraform's provisioners, and a check
		testrun.NeedProgram(t, program, "install coreutils: the examples run it")
	}
	s, err := stage.Set(t.Context(), stage.Options{Secrets: secrets})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close(context.Background())) })
	for world, why := range s.Missing {
		testrun.Skipf(t, "the examples are not played: world %s: %s", world, why)
	}
	p := dial(t, s.Config().Queue)
	p.stage = s
	return p
}

// dial makes a player without a stage, with its own client.
func dial(t *testing.T, queue string) *player {
	t.Helper()
	p := &player{T: t, metrics: host.NewMetrics(), log: &buffer{}, queue: queue}
	t.Cleanup(p.metrics.Close)
	options := servertest.Shared(t).ClientOptions()
	options.Logger = slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	options.MetricsHandler = p.metrics.Handler
	c, err := client.Dial(options)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	p.client = c
	return p
}

// work starts a worker; it stops with the test.
func (p *player) work(c host.Config) *host.Worker {
	p.Helper()
	w, err := host.Start(p.Context(), c,
		host.Options{Client: p.client, Namespace: servertest.Shared(p.T).Namespace, Metrics: p.metrics})
	require.NoError(p, err)
	p.Cleanup(w.Stop)
	return w
}

// document returns a task file with the stage's values, as a client starts it.
func (p *player) document(source []byte, values map[string]any) json.RawMessage {
	p.Helper()
	doc, err := task.Parse("task.yaml", source)
	require.NoError(p, err)
	doc, err = doc.Override(values)
	require.NoError(p, err)
	raw, err := doc.JSON()
	require.NoError(p, err)
	return raw
}

func (p *player) example(e examples.Example) json.RawMessage {
	return p.document(e.Source, e.Values(p.stage.Vars()))
}

// start starts a task under an id, as the starter does.
func (p *player) start(id string, doc json.RawMessage) (client.WorkflowRun, error) {
	return p.client.ExecuteWorkflow(p.Context(), client.StartWorkflowOptions{
		ID: id, TaskQueue: p.queue, WorkflowExecutionErrorWhenAlreadyStarted: true,
		WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
	}, protocol.AgentTaskType, doc)
}

// id returns a name that no other test on this server uses.
func (p *player) id() string { return strings.ReplaceAll(p.Name(), "/", "-") }

const patience = 3 * time.Minute

func (p *player) state(id string) (s protocol.State) {
	v, err := p.client.QueryWorkflow(p.Context(), id, "", protocol.QueryState)
	if err == nil {
		require.NoError(p, v.Get(&s))
	}
	return s
}

// until waits until the state of a task is as wanted.
func (p *player) until(id string, want func(protocol.State) bool) (s protocol.State) {
	p.Helper()
	require.Eventually(p, func() bool { s = p.state(id); return want(s) }, patience, 30*time.Millisecond,
		"the task is not as wanted")
	return s
}

// gate waits for the gate of a step and sends a decision.
func (p *player) gate(id, step, signal string) protocol.GateView {
	p.Helper()
	s := p.until(id, func(s protocol.State) bool {
		require.Nil(p, s.Cause, "it unwinds before it has come to the gate of %s", step)
		return len(s.Gates) == 1 && s.Gates[0].Step == step
	})
	require.NoError(p, p.client.SignalWorkflow(p.Context(), id, "", signal,
		protocol.Decision{Step: step, Digest: s.Gates[0].Digest, Who: "ann", Why: "it is her call"}))
	return s.Gates[0]
}

// end waits for the end of a task and returns its report, with the error that it closed with.
func (p *player) end(id string) (compensations.Report, error) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), 2*patience)
	defer cancel()
	var report compensations.Report
	err := p.client.GetWorkflow(ctx, id, "").Get(ctx, &report)
	require.NoError(p, ctx.Err(), "the task has not ended: %+v", p.state(id))
	var failed *temporal.ApplicationError
	var canceled *temporal.CanceledError
	switch {
	case errors.As(err, &canceled):
		require.NoError(p, canceled.Details(&report))
	case errors.As(err, &failed):
		require.NoError(p, failed.Details(&report))
	default:
		require.NoError(p, err)
	}
	return report, err
}

func (p *player) look() found.Observed {
	p.Helper()
	s, err := found.Look(p.Context(), p.stage.Place())
	require.NoError(p, err)
	return s
}

// asBefore requires that the world is as before, judged without the worlds' code.
func (p *player) asBefore(before found.Observed, want map[string][]found.Want, r compensations.Report) {
	p.Helper()
	var losses []string
	for _, s := range r.Steps {
		losses = append(losses, s.Losses...)
	}
	findings := before.Compare(p.look(), want, losses)
	require.Len(p, findings, 5)
	for _, f := range findings {
		require.True(p, f.OK, "%s: %v", f.World, f.Wrong)
	}
}

func (p *player) history(id string) []*historypb.HistoryEvent {
	p.Helper()
	var events []*historypb.HistoryEvent
	history := p.client.GetWorkflowHistory(p.Context(), id, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		e, err := history.Next()
		require.NoError(p, err)
		events = append(events, e)
	}
	return events
}

// calls lists the types of all activities of a task's steps, in the order of scheduling, without
// the engine's own activities.
func (p *player) calls(id string) []string {
	var types []string
	for _, e := range p.history(id) {
		if name := e.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName(); name != "" &&
			!strings.HasPrefix(name, "task.") {
			types = append(types, name)
		}
	}
	return types
}

// outcomes lists the outcomes in a report, as "step outcome", in the order in which the steps
// started.
func outcomes(r compensations.Report) []string {
	var all []string
	for _, s := range r.Steps {
		all = append(all, s.Step+" "+string(s.Outcome))
	}
	return all
}

// buffer is a bytes.Buffer for concurrent use.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
