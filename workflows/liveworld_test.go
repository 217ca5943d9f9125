package workflows_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/deploy/devserver"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/testrun"
	"github.com/seed-62bf7108/unwind/workflows"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// action puts the fake world behind the real contract and wrapper.
type action struct{ *world }

func (a action) Spec() activities.Spec { return activities.Spec{Name: "fake.do"} }
func (a action) Plan(_ context.Context, e activities.Entry, s activities.Step) (activities.Change, error) {
	return a.world.Plan(context.Background(), activities.Forward{Entry: e, Step: s})
}
func (a action) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (activities.Result, error) {
	return a.Do(ctx, activities.Forward{Entry: e, Step: s, Want: want})
}
func (a action) Undo(ctx context.Context, e activities.Entry, d activities.Decision) (activities.Undone, error) {
	return a.world.Undo(ctx, activities.Backward{Entry: e, Decision: d})
}
func (a action) Observe(ctx context.Context, e activities.Entry) (activities.Observation, error) {
	return a.world.Observe(ctx, e)
}
func (a action) Release(ctx context.Context, e activities.Entry) error {
	return a.world.Release(ctx, e)
}

// live is an AgentTask on a real server.
type live struct {
	*testing.T
	client client.Client
	queue  string
	world  *world
	run    client.WorkflowRun
	alerts []protocol.Alert
}

// Name is the test's, as it can be the id of a task.
func (l *live) Name() string { return strings.ReplaceAll(l.T.Name(), "/", "-") }

// startLive starts a worker and the task.
func startLive(t *testing.T, w *world) *live {
	l := newLive(t, servertest.Client(t), w)
	l.startWorker()
	l.start()
	return l
}

// ownServer starts a server for this test alone, and a client.
func ownServer(t *testing.T, o devserver.Options) (*devserver.Server, client.Client) {
	server, err := devserver.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Stop() })
	c, err := client.Dial(server.ClientOptions())
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return server, c
}

// newImpatientServer starts a server that suggests continuing as new after a tenth of the default
// number of events, so that a task has many runs with a tenth of the steps. It returns a client,
// and a tenth of n. In a deep run both stay as they are.
func newImpatientServer(t *testing.T, n int) (c client.Client, steps int) {
	if testrun.Deep() {
		return servertest.Client(t), n
	}
	_, c = ownServer(t, devserver.Options{Settings: map[string]any{"limit.historyCount.suggestContinueAsNew": 410}})
	return c, n / 10
}

// newPatientServer starts a server on which a workflow task may last a minute: one with much data
// lasts longer than the default under the race detector.
func newPatientServer(t *testing.T) (*devserver.Server, client.Client) {
	return ownServer(t, devserver.Options{Settings: map[string]any{"history.defaultWorkflowTaskTimeout": 60}})
}

// newLive makes a task that is not started yet, on a server shared with other tests. The steps run
// on the test's own queue.
func newLive(t *testing.T, c client.Client, w *world) *live {
	t.Parallel()
	l := &live{T: t, client: c, queue: t.Name(), world: w}
	w.taskQueue = l.queue
	for i := range w.steps {
		w.steps[i].Place.Queue = l.queue
		w.steps[i].Heartbeat, w.steps[i].Undo.Heartbeat = 3*time.Second, 3*time.Second
	}
	return l
}

// options returns the start options that the starter uses: an id is used once.
func (l *live) options() client.StartWorkflowOptions {
	return client.StartWorkflowOptions{
		ID: l.Name(), TaskQueue: l.queue, WorkflowExecutionErrorWhenAlreadyStarted: true,
		WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
	}
}

func (l *live) start() {
	var err error
	l.run, err = l.client.ExecuteWorkflow(l.Context(), l.options(), protocol.AgentTaskType,
		json.RawMessage(`{"name": "release"}`))
	require.NoError(l, err)
}

// startWorker serves the test's queue until stop is called or the test ends.
func (l *live) startWorker() (stop func()) { return l.serve(l.queue) }

func (l *live) serve(queue string) (stop func()) {
	wk := worker.New(l.client, queue, worker.Options{
		WorkerStopTimeout: time.Second, DeadlockDetectionTimeout: time.Minute, // packing is slow under the race detector
	})
	workflows.Register(wk, l.world.checkSteps)
	wk.RegisterActivityWithOptions(l.world.Compile, activity.RegisterOptions{Name: protocol.CompileActivity})
	wk.RegisterActivityWithOptions(l.world.CompileSteps, activity.RegisterOptions{Name: protocol.CompileStepsActivity})
	wk.RegisterActivityWithOptions(l.world.Hold, activity.RegisterOptions{Name: protocol.HoldActivity})
	wk.RegisterActivityWithOptions(l.world.Preflight, activity.RegisterOptions{Name: protocol.PreflightActivity})
	wk.RegisterActivityWithOptions(l.world.confirmContext, activity.RegisterOptions{Name: protocol.ContextActivity})
	wk.RegisterActivityWithOptions(l.ledger, activity.RegisterOptions{Name: protocol.LedgerActivity})
	wk.RegisterActivityWithOptions(l.redoable, activity.RegisterOptions{Name: protocol.RedoableActivity})
	wk.RegisterActivityWithOptions(l.paused, activity.RegisterOptions{Name: protocol.PausedActivity})
	wk.RegisterActivityWithOptions(l.alert, activity.RegisterOptions{Name: protocol.AlertActivity})
	activities.NewRegistry(activities.World{
		Name: "fake", Actions: []activities.Action{action{l.world}},
		Journal: func(context.Context) (string, error) { return "j", nil },
	}).Register(wk, activities.Host{})
	require.NoError(l, wk.Start())
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			wk.Stop()
		}
	}
	l.Cleanup(stop)
	return stop
}

func (l *live) server() recovery.Server {
	return recovery.Server{Client: l.client, Namespace: "default"}
}

func (l *live) ledger(ctx context.Context, r protocol.LedgerRequest) (protocol.Ledger, error) {
	info := activity.GetInfo(ctx)
	ledger, err := l.server().LedgerFor(ctx, info.WorkflowExecution.ID, info.WorkflowType.Name, r,
		converter.GetDefaultDataConverter())
	return ledger, recovery.Final(err)
}

func (l *live) redoable(ctx context.Context, r protocol.RedoRequest) (protocol.RedoInput, error) {
	before, err := l.server().RedoInput(ctx, activity.GetInfo(ctx).WorkflowExecution.ID, r,
		converter.GetDefaultDataConverter())
	return before, recovery.Final(err)
}

func (l *live) paused(ctx context.Context, since time.Time) (time.Duration, error) {
	asker := activity.GetInfo(ctx).WorkflowExecution
	return l.server().Paused(ctx, asker.ID, asker.RunID, since)
}

// alert records the alerts.
func (l *live) alert(_ context.Context, a []protocol.Alert) error {
	l.world.mu.Lock()
	defer l.world.mu.Unlock()
	l.alerts = append(l.alerts, a...)
	return nil
}

// events returns the history of a run so far.
func (l *live) events(ctx context.Context, runID string) []*historypb.HistoryEvent {
	return l.eventsOf(ctx, l.run.GetID(), runID)
}

func (l *live) eventsOf(ctx context.Context, id, runID string) []*historypb.HistoryEvent {
	var events []*historypb.HistoryEvent
	history := l.client.GetWorkflowHistory(ctx, id, runID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		e, err := history.Next()
		require.NoError(l, err)
		events = append(events, e)
	}
	return events
}

func (l *live) state() protocol.State {
	v, err := l.client.QueryWorkflow(l.Context(), l.run.GetID(), "", protocol.QueryState)
	if err != nil {
		return protocol.State{}
	}
	var s protocol.State
	require.NoError(l, v.Get(&s))
	return s
}

// awaitState waits until ok accepts the state of the task, and returns that state.
func (l *live) awaitState(ok func(protocol.State) bool) (s protocol.State) {
	l.Helper()
	require.Eventually(l, func() bool { s = l.state(); return ok(s) }, 2*time.Minute, 20*time.Millisecond)
	return s
}

// awaitCalls waits until the world has been called n times like this.
func (l *live) awaitCalls(call string, n int) {
	l.Helper()
	require.Eventually(l, func() bool {
		l.world.mu.Lock()
		defer l.world.mu.Unlock()
		return l.world.count[call] >= n
	}, 2*time.Minute, 10*time.Millisecond, call)
}

func atGate(s protocol.State) bool { return len(s.Gates) == 1 }

func parked(s protocol.State) bool {
	if s.Report != nil {
		for _, step := range s.Report.Steps {
			if step.State == string(compensations.Parked) {
				return true
			}
		}
	}
	return false
}

func (l *live) sendSignal(name string, payload any) {
	require.NoError(l, l.client.SignalWorkflow(l.Context(), l.run.GetID(), "", name, payload))
}

func (l *live) approve() {
	g := l.awaitState(atGate).Gates[0]
	l.sendSignal(protocol.SignalApprove, protocol.Decision{Step: g.Step, Digest: g.Digest, Who: "ann"})
}

// resolve decides every shown park.
func (l *live) resolve(do compensations.Do) {
	for _, step := range l.awaitState(parked).Report.Steps {
		if step.State == string(compensations.Parked) {
			l.sendSignal(compensations.SignalResolve,
				compensations.Resolution{Step: step.Step, Digest: step.Digest, Do: do, Who: "eve"})
		}
	}
}

// report waits for the end of the newest run.
func (l *live) report() (compensations.Report, error) {
	ctx, cancel := context.WithTimeout(l.Context(), 4*time.Minute)
	defer cancel()
	var report compensations.Report
	err := l.client.GetWorkflow(ctx, l.run.GetID(), "").Get(ctx, &report)
	require.NoError(l, ctx.Err(), "the task has not ended: %+v", l.state())
	var app *temporal.ApplicationError
	var canceled *temporal.CanceledError
	switch {
	case errors.As(err, &canceled):
		require.NoError(l, canceled.Details(&report))
	case errors.As(err, &app):
		require.NoError(l, app.Details(&report))
	}
	return report, err
}

func (l *live) calls() []string {
	l.world.mu.Lock()
	defer l.world.mu.Unlock()
	return append([]string(nil), l.world.calls...)
}

// block blocks like a heartbeating activity, until it is canceled or released.
func block(ctx context.Context, letGo <-chan struct{}) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-letGo:
			return nil
		case <-time.After(50 * time.Millisecond):
			if activity.IsActivity(ctx) {
				activity.RecordHeartbeat(ctx)
			}
		}
	}
}

// blockAt blocks in the first call of a step's forward.
func blockAt(step string, letGo <-chan struct{}) func(context.Context, string, int,
	activities.Forward) (activities.Result, error) {
	return func(ctx context.Context, s string, n int, _ activities.Forward) (activities.Result, error) {
		if s == step && n == 1 {
			return activities.Result{}, block(ctx, letGo)
		}
		return activities.Result{}, nil
	}
}
