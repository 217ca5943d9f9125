package host_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/worker"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// slow is an action whose first call goes on until it is cancelled, and then has to clear up.
type slow struct{ calls chan int }

func (slow) Spec() activities.Spec {
	return activities.Spec{
		Name: "slow.work", Summary: "Take long the first time.", Params: activities.ParamsSchema[struct{}](),
		Keys: []activities.Key{}, Risk: activities.Low, Strategy: activities.Compensation, Undo: "Nothing is left.",
	}
}

func (slow) Plan(context.Context, activities.Entry, activities.Step) (activities.Change, error) {
	return activities.Change{Digest: activities.DigestOf()}, nil
}

func (a slow) Apply(ctx context.Context, _ activities.Entry, _ activities.Step, _ activities.Digest) (activities.Result,
	error) {
	call := <-a.calls
	a.calls <- call + 1
	if call > 0 {
		return activities.Result{}, nil
	}
	<-ctx.Done()
	<-time.After(500 * time.Millisecond) // the clearing up
	return activities.Result{}, ctx.Err()
}

func (slow) Undo(context.Context, activities.Entry, activities.Decision) (activities.Undone, error) {
	return activities.Undone{Outcome: activities.Nothing}, nil
}

func (slow) Observe(context.Context, activities.Entry) (activities.Observation, error) {
	return activities.Observation{State: activities.Unseen}, nil
}

func (slow) Release(context.Context, activities.Entry) error { return nil }

// process is a worker with a client of its own, as its process has; stop ends both.
func process(t *testing.T, a activities.Action, dc converter.DataConverter) (stop func()) {
	t.Helper()
	return processOf(t, host.Config{State: t.TempDir()}, a, dc)
}

// processOf is a process with a config of its own.
func processOf(t *testing.T, config host.Config, a activities.Action, dc converter.DataConverter) (stop func()) {
	t.Helper()
	server := servertest.Shared(t)
	options := server.ClientOptions()
	options.DataConverter = dc
	config.Host, config.Queue = "build-1", t.Name()
	config.StopTimeout, config.Heartbeat = 100*time.Millisecond, 2*time.Second
	c, err := client.Dial(options)
	require.NoError(t, err)
	w, err := host.Start(t.Context(), config, host.Options{
		Client: c, Namespace: server.Namespace, DataConverter: dc,
		Worlds: []activities.World{{
			Name: "slow", Actions: []activities.Action{a}, Journal: func(context.Context) (string, error) { return "j", nil },
		}},
		Register: func(r worker.Registry) { r.RegisterWorkflow(askLedger) },
	})
	require.NoError(t, err)
	return func() {
		w.Stop()
		c.Close()
	}
}

func TestAWorkerThatStopsCostsALongStepNoAttempt(t *testing.T) {
	a := slow{calls: make(chan int, 1)}
	a.calls <- 0
	stop := process(t, a, nil)
	c := servertest.Client(t)
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: t.Name(), TaskQueue: t.Name()},
		protocol.AgentTaskType,
		json.RawMessage(`{"name": "take long", "steps": [{"id": "long", "uses": "slow.work", "retry": {"attempts": 1}}]}`))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		calls := <-a.calls
		a.calls <- calls
		return calls > 0
	}, time.Minute, 10*time.Millisecond)

	stop()
	t.Cleanup(process(t, a, nil))

	var report compensations.Report
	require.NoError(t, run.Get(t.Context(), &report))
	require.Equal(t, 2, <-a.calls)
	var failed []string
	history := c.GetWorkflowHistory(t.Context(), run.GetID(), run.GetRunID(), false,
		enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		event, err := history.Next()
		require.NoError(t, err)
		require.NotEqual(t, enumspb.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT, event.EventType, "it was reported, not missed")
		if f := event.GetActivityTaskFailedEventAttributes(); f != nil {
			failed = append(failed, f.Failure.GetApplicationFailureInfo().GetType())
		}
	}
	require.Equal(t, []string{string(activities.WorkerStopping)}, failed)
}
