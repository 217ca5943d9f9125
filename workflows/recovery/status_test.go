package recovery

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"github.com/seed-62bf7108/unwind/compensations"
)

func TestOfEachStatusItIsKnownWhetherTheRunGoesOn(t *testing.T) {
	for number, name := range enumspb.WorkflowExecutionStatus_name {
		s := enumspb.WorkflowExecutionStatus(number)
		if s == enumspb.WORKFLOW_EXECUTION_STATUS_UNSPECIFIED {
			continue
		}
		require.NotEqual(t, GoesOn(s), HasEnded(s), name)
		require.NoError(t, CheckStatus("task", s), name)
	}
}

func TestARunOfAnUnknownStatusIsNeitherAliveNorOver(t *testing.T) {
	run := Run{Status: 99, Unwind: compensations.Committed}
	require.False(t, run.Alive())
	require.False(t, run.Settled())
	require.False(t, run.Done())
	run.Unwind = compensations.Open
	require.False(t, run.Dead())
	require.EqualError(t, CheckStatus("task", run.Status),
		"workflow task has the unknown status 99, so whether it goes on is not known: use a newer version of Unwind")

	run.WorkflowID, run.Of = "rollback", "task"
	now, by := Family{run}.Of("task")
	require.Equal(t, "acted on by a workflow with the unknown status 99", now)
	require.Equal(t, "rollback", by.WorkflowID)
}

func TestAPausedRunIsAlive(t *testing.T) {
	run := Run{Status: enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED, Unwind: compensations.Open,
		Pause: &Pause{Since: time.Unix(0, 0), Who: "ann", Why: "lunch"}}
	run.WorkflowID, run.Type = "task", Types[0]
	require.True(t, run.Alive())
	require.False(t, run.Dead())
	err := run.checkDead()
	require.Equal(t, Paused, WhyOf(err))
	require.ErrorContains(t, err, "task is alive, and paused since 1970-01-01T00:00:00Z by ann (lunch): unpause it")
}
