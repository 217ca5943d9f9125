package recovery_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/testrun"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// toyTask stands in for every workflow with a ledger: it carries out its steps, then waits for the
// word "end" and closes with the status that follows it. "again" makes it continue as new.
func toyTask(ctx workflow.Context, entries []activities.Entry) error {
	info := workflow.GetInfo(ctx)
	for i, e := range entries {
		e.Seq = i + 1
		ctx := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
		err := workflow.ExecuteActivity(ctx, e.Action,
			activities.Forward{Entry: e, OriginalRunID: info.OriginalRunID}).Get(ctx, nil)
		if err != nil {
			return err
		}
	}
	return waiting(ctx)
}

// toyRepair stands in for Recover, Rollback and Redo.
func toyRepair(ctx workflow.Context, _ map[string]any) error { return waiting(ctx) }

func waiting(ctx workflow.Context) error {
	var word string
	workflow.GetSignalChannel(ctx, "end").Receive(ctx, &word)
	if word == "again" {
		return workflow.NewContinueAsNewError(ctx, workflow.GetInfo(ctx).WorkflowType.Name, nil)
	}
	if version, err := strconv.Atoi(word); err == nil { // with a carry of this version
		return workflow.NewContinueAsNewError(ctx, workflow.GetInfo(ctx).WorkflowType.Name, nil,
			protocol.Carry{Version: version})
	}
	if word == "fail" || word == "cancel" { // a recovery that never learned what is left
		_ = workflow.UpsertTypedSearchAttributes(ctx, protocol.AttributeStatus.ValueSet(string(compensations.Remains)))
		if word == "cancel" {
			return temporal.NewCanceledError()
		}
		return temporal.NewApplicationError("the history is gone", protocol.TaskFailed)
	}
	status := compensations.Status(word)
	if err := workflow.UpsertTypedSearchAttributes(ctx, protocol.AttributeStatus.ValueSet(word)); err != nil {
		return err
	}
	if status == compensations.Unwound && workflow.GetInfo(ctx).WorkflowType.Name == protocol.AgentTaskType {
		return temporal.NewApplicationError("unwound", protocol.TaskFailed)
	}
	return nil
}

func done(activities.Forward) error { return nil }

func TestMain(m *testing.M) { os.Exit(testrun.RunWaiting(m)) }

// stage is a real server, and a worker on a queue of its own.
type stage struct {
	*testing.T
	recovery.Server
	dc converter.DataConverter
}

func newStage(t *testing.T) *stage {
	t.Parallel()
	c := servertest.Client(t)
	w := worker.New(c, t.Name(), worker.Options{})
	w.RegisterWorkflowWithOptions(toyTask, workflow.RegisterOptions{Name: protocol.AgentTaskType})
	for _, name := range []string{protocol.RecoverType, protocol.RollbackType, protocol.RedoType, "SomebodyElses"} {
		w.RegisterWorkflowWithOptions(toyRepair, workflow.RegisterOptions{Name: name})
	}
	w.RegisterActivityWithOptions(done, activity.RegisterOptions{Name: "toy.do"})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	return &stage{
		T: t, dc: converter.GetDefaultDataConverter(),
		Server: recovery.Server{Client: c, Namespace: servertest.Shared(t).Namespace},
	}
}

// startTask starts a task that has done these steps.
func (s *stage) startTask(workflowType string, entries ...activities.Entry) client.WorkflowRun {
	run, err := s.Client.ExecuteWorkflow(s.Context(), client.StartWorkflowOptions{
		TaskQueue: s.Name(), TypedSearchAttributes: protocol.ServingAttributes("bot", ""),
	}, workflowType, entries)
	require.NoError(s, err)
	return run
}

func entry(step string) activities.Entry {
	return activities.Entry{Version: 1, Step: step, Action: "toy.do", UndoType: "toy.do.undo",
		Token: activities.NewToken("run", step, 1)}
}

func (s *stage) terminate(id string) {
	require.NoError(s, s.Client.TerminateWorkflow(s.Context(), id, "", "a test"))
}

// endWith makes a workflow end in a certain way, and waits until it has.
func (s *stage) endWith(id, how string) {
	run := s.describe(id)
	require.NoError(s, s.Client.SignalWorkflow(s.Context(), id, run.RunID, "end", how))
	require.Eventually(s, func() bool {
		now, err := s.Describe(s.Context(), id, run.RunID)
		return err == nil && now.Status != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
	}, 20*time.Second, 10*time.Millisecond)
}

func (s *stage) describe(id string) recovery.Run {
	run, err := s.Describe(s.Context(), id, "")
	require.NoError(s, err)
	return run
}

// requireRefusal requires that err is a refusal for that reason, with these texts.
func (s *stage) requireRefusal(err error, why recovery.Why, texts ...string) {
	s.Helper()
	require.Error(s, err)
	require.Equal(s, why, recovery.WhyOf(err), err)
	for _, text := range texts {
		require.ErrorContains(s, err, text)
	}
}

// readArgument reads the argument that a workflow was started with.
func (s *stage) readArgument(run recovery.Run, into any) {
	history := s.Client.GetWorkflowHistory(s.Context(), run.WorkflowID, run.FirstRunID, false,
		enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	first, err := history.Next()
	require.NoError(s, err)
	require.NoError(s, s.dc.FromPayloads(first.GetWorkflowExecutionStartedEventAttributes().GetInput(), into))
}
