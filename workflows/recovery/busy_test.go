package recovery_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// isNeeded reports whether the ledger of a workflow is still needed.
func (s *stage) isNeeded(id string) bool {
	needed, err := s.Needed(s.Context(), s.describe(id))
	require.NoError(s, err)
	return needed
}

func TestALedgerIsNeededUntilItsLastRecoveryIsOver(t *testing.T) {
	s := newStage(t)
	id := s.startTask(protocol.AgentTaskType).GetID()
	require.True(t, s.isNeeded(id), "it runs")
	s.terminate(id)
	require.True(t, s.isNeeded(id), "it is dead")
	var last recovery.Run
	for range 2 {
		dead, err := s.Find(t.Context(), id)
		require.NoError(t, err)
		last, err = s.Recover(t.Context(), dead, "ann")
		require.NoError(t, err)
		require.True(t, s.isNeeded(id), "it is being recovered")
		if dead.WorkflowID == id {
			s.terminate(last.WorkflowID)
			require.True(t, s.isNeeded(id), "its recovery is dead")
		}
	}
	s.endWith(last.WorkflowID, string(compensations.Unwound))
	require.False(t, s.isNeeded(id))
}

func TestARecoveryThatFailedOrWasCanceledHasRecoveredNothing(t *testing.T) {
	s := newStage(t)
	id := s.startTask(protocol.AgentTaskType).GetID()
	s.terminate(id)
	for _, how := range []string{"fail", "cancel", "fail"} {
		dead, err := s.Find(t.Context(), id)
		require.NoError(t, err)
		last, err := s.Recover(t.Context(), dead, "ann")
		require.NoError(t, err)
		s.endWith(last.WorkflowID, how)
		require.True(t, s.isNeeded(id), "its records are kept, and it can be recovered again")
	}
}

func TestATaskIsBusyWhileItIsRolledBack(t *testing.T) {
	s := newStage(t)
	task, other := s.commitTask(0), s.commitTask(0)
	back, err := s.rollback(task, recovery.Part{})
	require.NoError(t, err)
	is := func(want bool) {
		require.Eventually(t, func() bool { // visibility follows
			busy, err := s.Busy(t.Context())
			return err == nil && busy[task.WorkflowID] == want && !busy[other.WorkflowID]
		}, waitFor, tick)
	}
	is(true)
	s.terminate(back.WorkflowID)
	is(true)
	dead, err := s.Find(t.Context(), back.WorkflowID)
	require.NoError(t, err)
	recovering, err := s.Recover(t.Context(), dead, "ann")
	require.NoError(t, err)
	is(true)
	s.endWith(recovering.WorkflowID, string(compensations.Unwound))
	is(false)
}
