package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// ask sends an update, and returns its answer.
func (l *live) ask(update string, decision any) (answer protocol.DecisionAnswer, err error) {
	handle, err := l.client.UpdateWorkflow(l.Context(), client.UpdateWorkflowOptions{
		WorkflowID: l.run.GetID(), UpdateName: update, Args: []any{decision},
		WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = handle.Get(l.Context(), &answer)
	}
	return answer, err
}

func (l *live) countUpdates() (n int) {
	for _, e := range l.events(l.Context(), "") {
		if e.GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED {
			n++
		}
	}
	return n
}

func TestAnUpdateApprovesAndAnswersWhenTheStepGoesOn(t *testing.T) {
	letGo := make(chan struct{})
	w := &world{steps: addGate(chain("a", "b"), "b", time.Hour), do: blockAt("b", letGo)}
	l := startLive(t, w)
	g := l.awaitState(atGate).Gates[0]
	for _, d := range []protocol.Decision{{Step: "b", Digest: "sha256:of another change"}, {Step: "a", Digest: g.Digest},
		{Step: "nowhere"}} {
		_, err := l.ask(protocol.UpdateApprove, d)
		requireType(t, err, protocol.NothingDecided)
	}
	answer, err := l.ask(protocol.UpdateApprove,
		protocol.Decision{Step: "b", Digest: g.Digest, Who: "ann", Why: "I looked"})
	require.NoError(t, err)
	require.Equal(t, protocol.DecisionAnswer{Step: "b", State: protocol.Running, Phase: protocol.Forward}, answer)
	_, err = l.ask(protocol.UpdateReject, protocol.Decision{Step: "b", Digest: g.Digest})
	requireType(t, err, protocol.NothingDecided)
	close(letGo)
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, []string{"approved by ann: I looked"}, notesOf(report, "b"))
	require.Empty(t, report.Notes)
	require.Equal(t, 1, l.countUpdates(), "what is refused leaves no trace")
}

func TestAnUpdateRejectsAndAnswersWhetherTheTaskGoesOn(t *testing.T) {
	for _, test := range []struct {
		name   string
		policy task.OnFailure
		want   protocol.DecisionAnswer
		end    string
	}{
		{"unwinds", task.OnFailure{Do: task.FailUnwind}, protocol.DecisionAnswer{
			Step: "b", State: protocol.StepFailed, Phase: protocol.Forward,
			Cause: &compensations.Cause{Kind: compensations.Rejected, Step: "b", Text: "step b was rejected by ann: too dear"},
		}, protocol.TaskRejected},
		{"rolls back the step", task.OnFailure{Do: task.FailRollbackStep},
			protocol.DecisionAnswer{Step: "b", State: protocol.StepFailed, Phase: protocol.Forward}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := &world{steps: addGate(chain("a", "b"), "b", time.Hour)}
			stepByID(w.steps, "b").OnFailure = test.policy
			l := startLive(t, w)
			g := l.awaitState(atGate).Gates[0]
			answer, err := l.ask(protocol.UpdateReject,
				protocol.Decision{Step: "b", Digest: g.Digest, Who: "ann", Why: "too dear"})
			require.NoError(t, err)
			require.Equal(t, test.want, answer)
			_, err = l.report()
			if test.end == "" {
				require.NoError(t, err)
			} else {
				requireType(t, err, test.end)
			}
		})
	}
}

func TestAnUpdateResolvesAPark(t *testing.T) {
	w := &world{steps: chain("a", "b", "c"), do: refusing("c")}
	w.undo = func(step string, n int, _ activities.Decision) (activities.Undone, error) {
		if step == "b" && n == 1 {
			return activities.Undone{Outcome: activities.Unknown, Observed: "cannot be seen"}, nil
		}
		return activities.Undone{Outcome: activities.Restored}, nil
	}
	l := startLive(t, w)
	digest := l.awaitPark("b", 1)
	for _, r := range []compensations.Resolution{
		{Step: "b", Digest: "sha256:of another park", Do: compensations.Skip},
		{Step: "b", Digest: digest, Do: compensations.Force},
		{Step: "b", Digest: digest, Do: "undo"}, {Step: "a", Digest: digest, Do: compensations.Skip}, {Step: "nowhere"},
	} {
		_, err := l.ask(protocol.UpdateResolve, r)
		requireType(t, err, protocol.NothingDecided)
	}
	answer, err := l.ask(protocol.UpdateResolve,
		compensations.Resolution{Step: "b", Digest: digest, Do: compensations.Accept, Who: "eve", Why: "seen"})
	require.NoError(t, err)
	require.Equal(t, compensations.Accepted, answer.Undo)
	require.Equal(t, protocol.Unwinding, answer.Phase)
	report, err := l.report()
	requireType(t, err, protocol.TaskFailed)
	require.Equal(t, []string{"accept by eve: seen"}, notesOf(report, "b"))
	require.Equal(t, []string{"a settled restored", "b accepted unknown", "c settled restored"}, outcomes(report))
	require.Equal(t, 1, l.countUpdates())
}
