package workflows_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// longChain returns a chain of n steps.
func longChain(n int) []task.Step {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("s%04d", i)
	}
	return chain(ids...)
}

// runsOf lists the runs of a chain, the last first.
func (l *live) runsOf(id string) (runs []string) {
	for run := ""; ; {
		d, err := l.client.DescribeWorkflowExecution(l.Context(), id, run)
		require.NoError(l, err)
		runs = append(runs, d.WorkflowExecutionInfo.Execution.RunId)
		first := l.client.GetWorkflowHistory(l.Context(), id, runs[len(runs)-1], false,
			enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		e, err := first.Next()
		require.NoError(l, err)
		if run = e.GetWorkflowExecutionStartedEventAttributes().ContinuedExecutionRunId; run == "" {
			return runs
		}
	}
}

func TestALongTaskContinuesAsNewBothWaysAndIsRecoveredInTheMiddle(t *testing.T) {
	c, n := newImpatientServer(t, 1000)
	w := &world{steps: longChain(n), do: refusing(fmt.Sprintf("s%04d", n-1))}
	reached, letGo := make(chan struct{}), make(chan struct{})
	half := fmt.Sprintf("s%04d", n/4)
	w.undo = func(step string, times int, _ activities.Decision) (activities.Undone, error) {
		if step == half && times == 1 {
			close(reached)
			<-letGo
		}
		return activities.Undone{Outcome: activities.Restored}, nil
	}
	l := newLive(t, c, w)
	l.startWorker()
	l.start()
	select {
	case <-reached:
	case <-time.After(3 * time.Minute):
		t.Fatalf("the unwinding has not come half way: %+v", l.state().Phase)
	}
	require.GreaterOrEqual(t, len(l.runsOf(l.run.GetID())), 3, "it continued as new forward and back")
	_, err := l.server().Find(t.Context(), l.run.GetID())
	require.Equal(t, recovery.Alive, recovery.WhyOf(err), "a living chain has closed runs, and is not recovered")
	l.terminate(l.run.GetID())
	run := l.recover()
	close(letGo)
	report := l.awaitReport(run)
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, n, report.Outcomes["restored"])

	var want []string
	for _, s := range w.steps {
		want = append(want, "do "+s.ID)
	}
	for _, s := range slices.Backward(w.steps) {
		want = append(want, "undo "+s.ID)
		if s.ID == half { // it was running when the run was terminated
			want = append(want, "undo "+s.ID)
		}
	}
	calls := l.calls()
	for i := range min(len(want), len(calls)) {
		require.Equal(t, want[i], calls[i], "call %d", i)
	}
	require.Len(t, calls, len(want))
}

func TestAResetOfAnEarlierRunOfAChainUnwindsTheWholeChain(t *testing.T) {
	c, n := newImpatientServer(t, 720)
	for name, choose := range map[string]func(ids []int64) int64{
		"early in the run":      func(ids []int64) int64 { return ids[10] },
		"at the end of the run": func(ids []int64) int64 { return ids[len(ids)-1] },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLive(t, c, &world{steps: longChain(n)})
			l.startWorker()
			l.start()
			_, err := l.report()
			require.NoError(t, err)
			runs := l.runsOf(l.run.GetID())
			require.Len(t, runs, 2)
			var tasks []int64
			for _, e := range l.events(t.Context(), runs[1]) {
				if e.EventType == enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
					tasks = append(tasks, e.EventId)
				}
			}
			_, err = l.client.ResetWorkflowExecution(t.Context(), &workflowservice.ResetWorkflowExecutionRequest{
				Namespace: "default", WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: l.run.GetID(), RunId: runs[1]},
				Reason: "a test", RequestId: t.Name(), WorkflowTaskFinishEventId: choose(tasks),
			})
			require.NoError(t, err)
			report, err := l.report()
			require.Error(t, err)
			require.Equal(t, compensations.WasReset, report.Cause.Kind)
			calls := l.calls()
			require.Len(t, calls, 2*n, "each done once and undone once")
			for i := range n {
				require.Equal(t, fmt.Sprintf("undo s%04d", n-1-i), calls[n+i])
			}
		})
	}
}
