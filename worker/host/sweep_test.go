package host_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// endless is an action that goes on until its workflow is gone.
type endless struct{ slow }

func (e endless) Apply(ctx context.Context, _ activities.Entry, _ activities.Step,
	_ activities.Digest) (activities.Result, error) {
	e.calls <- 1
	<-ctx.Done()
	return activities.Result{}, ctx.Err()
}

const endlessTask = `{"name": "take for ever", "steps": [{"id": "long", "uses": "slow.work"}]}`

// dead terminates tasks in the middle of their only step.
func dead(t *testing.T, n int) (s *stage, recoveries []string) {
	a := endless{slow{calls: make(chan int, n)}}
	s = serve(t, host.Config{Heartbeat: time.Second}, host.Options{Worlds: []activities.World{{
		Name: "slow", Actions: []activities.Action{a}, Journal: func(context.Context) (string, error) { return "j", nil },
	}}})
	runs := make([]client.WorkflowRun, n)
	for i := range runs {
		runs[i] = s.start(json.RawMessage(endlessTask))
	}
	for _, run := range runs {
		<-a.calls
		recoveries = append(recoveries, "recover-"+run.GetID()+"-"+run.GetRunID())
	}
	for _, run := range runs {
		require.NoError(t, s.Client.TerminateWorkflow(t.Context(), run.GetID(), "", "a test"))
	}
	slices.Sort(recoveries)
	return s, recoveries
}

func TestTheScheduleSweepsUpWhatHasDied(t *testing.T) {
	s, recoveries := dead(t, 1)
	schedule := s.Client.ScheduleClient().GetHandle(t.Context(), host.SweepSchedule(t.Name()))
	require.Eventually(t, func() bool { // visibility follows
		if err := schedule.Trigger(t.Context(), client.ScheduleTriggerOptions{}); err != nil {
			return false
		}
		_, err := s.Describe(t.Context(), recoveries[0], "")
		return err == nil
	}, waitFor, 200*time.Millisecond)
	report := s.report(recoveries[0])
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, compensations.Ended, report.Cause.Kind)
	require.Len(t, report.Steps, 1)
	require.Equal(t, "long", report.Steps[0].Step)
}

func TestSweepsAtOnceAndAgainRecoverEachTaskOnce(t *testing.T) {
	const tasks, sweeps = 5, 4
	s, recoveries := dead(t, tasks)
	var swept []string
	require.Eventually(t, func() bool { // visibility follows
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range sweeps {
			wg.Go(func() {
				did := call[protocol.SweepResult](s, protocol.SweepType)
				mu.Lock()
				defer mu.Unlock()
				swept = append(swept, did.Recovering...)
				require.Empty(t, did.Problems)
			})
		}
		wg.Wait()
		return len(swept) >= tasks
	}, waitFor, tick)
	slices.Sort(swept)
	require.Equal(t, recoveries, swept)
	for _, id := range recoveries {
		require.Equal(t, compensations.Unwound, s.report(id).Status)
	}
	require.Equal(t, protocol.SweepResult{}, call[protocol.SweepResult](s, protocol.SweepType),
		"what is recovered is dead, and left alone")
}

func TestWhatCannotBeReadHasOneRecoveryThatSaysSo(t *testing.T) {
	s, _ := dead(t, 0)
	options := servertest.Shared(t).ClientOptions()
	options.DataConverter = converter.NewCodecDataConverter(converter.GetDefaultDataConverter(),
		converter.NewZlibCodec(converter.ZlibCodecOptions{AlwaysEncode: true}))
	c, err := client.Dial(options)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	// Its first run hands the second something that the workers of the queue cannot read: there it
	// stays.
	first := worker.New(c, t.Name()+"-first", worker.Options{})
	first.RegisterWorkflowWithOptions(func(ctx workflow.Context, document json.RawMessage) error {
		ctx = workflow.WithWorkflowTaskQueue(ctx, t.Name())
		return workflow.NewContinueAsNewError(ctx, protocol.AgentTaskType, document,
			protocol.Carry{Version: protocol.CarryVersion})
	}, workflow.RegisterOptions{Name: protocol.AgentTaskType})
	require.NoError(t, first.Start())
	t.Cleanup(first.Stop)
	task, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
		TaskQueue: t.Name() + "-first", TypedSearchAttributes: protocol.ServingAttributes("bot", ""),
	}, protocol.AgentTaskType, json.RawMessage(endlessTask))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		now, err := c.DescribeWorkflowExecution(t.Context(), task.GetID(), "")
		return err == nil && now.GetWorkflowExecutionInfo().GetExecution().GetRunId() != task.GetRunID()
	}, waitFor, tick)
	require.NoError(t, c.TerminateWorkflow(t.Context(), task.GetID(), "", "a test"))

	only := "recover-" + task.GetID() + "-" + task.GetRunID()
	require.Eventually(t, func() bool { // visibility follows
		return slices.Equal([]string{only}, call[protocol.SweepResult](s, protocol.SweepType).Recovering)
	}, waitFor, tick)
	require.ErrorContains(t, s.Client.GetWorkflow(t.Context(), only, "").Get(t.Context(), nil),
		"what it was handed by the run before it")
	var swept protocol.SweepResult
	require.Eventually(t, func() bool {
		swept = call[protocol.SweepResult](s, protocol.SweepType)
		return len(swept.Problems) > 0
	}, waitFor, tick)
	require.Empty(t, swept.Recovering)
	require.Contains(t, swept.Problems[task.GetID()], "what it was handed by the run before it")
}
