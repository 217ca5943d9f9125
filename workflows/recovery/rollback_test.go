package recovery_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

const (
	waitFor = 20 * time.Second
	tick    = 10 * time.Millisecond
)

// commitTask makes a committed task of two steps, with a savepoint before the second.
func (s *stage) commitTask(keep time.Duration) recovery.Run {
	one, two := entry("one"), entry("two")
	one.Keep, two.Keep, two.Savepoint = keep, keep, "half"
	id := s.startTask(protocol.AgentTaskType, one, two).GetID()
	s.endWith(id, string(compensations.Committed))
	run, err := s.FindDone(s.Context(), id)
	require.NoError(s, err)
	return run
}

func (s *stage) rollback(done recovery.Run, part recovery.Part) (recovery.Run, error) {
	return s.Rollback(s.Context(), done, part, "ann", "it was wrong", s.dc)
}

func TestTheIDOfARollbackNamesItsPart(t *testing.T) {
	s := newStage(t)
	for suffix, part := range map[string]recovery.Part{"": {}, "-to-half": {To: "half"}, "-step-one": {Step: "one"}} {
		task := s.commitTask(0)
		run, err := s.rollback(task, part)
		require.NoError(t, err)
		require.Equal(t, "rollback-"+task.WorkflowID+"-"+task.RunID+suffix, run.WorkflowID)
		require.Equal(t, task.WorkflowID, run.Task)
		require.Equal(t, compensations.Open, run.Unwind)
		var request protocol.RollbackRequest
		s.readArgument(run, &request)
		require.Equal(t,
			protocol.RollbackRequest{Chain: task.Chain, To: part.To, Step: part.Step, Who: "ann", Why: "it was wrong"}, request)
		_, err = s.rollback(task, part)
		s.requireRefusal(err, recovery.Taken, task.WorkflowID+" is already being rolled back by "+run.WorkflowID)
	}
}

func TestAnImpossibleRollbackIsRefusedBeforeAnythingStarts(t *testing.T) {
	s := newStage(t)
	_, err := s.FindDone(t.Context(), "no-such-task")
	s.requireRefusal(err, recovery.Unknown)
	_, err = s.FindDone(t.Context(), s.startTask("SomebodyElses").GetID())
	s.requireRefusal(err, recovery.Foreign)
	alive := s.startTask(protocol.AgentTaskType).GetID()
	_, err = s.FindDone(t.Context(), alive)
	s.requireRefusal(err, recovery.Alive, "is running: cancel it")
	s.terminate(alive)
	_, err = s.FindDone(t.Context(), alive)
	s.requireRefusal(err, recovery.Dead, "was terminated and has not unwound: recover it")
	unwound := s.startTask(protocol.AgentTaskType).GetID()
	s.endWith(unwound, string(compensations.Unwound))
	_, err = s.FindDone(t.Context(), unwound)
	s.requireRefusal(err, recovery.Ended, "has ended as unwound: there is nothing to roll back")

	task := s.commitTask(0)
	_, err = s.rollback(task, recovery.Part{To: "none"})
	s.requireRefusal(err, recovery.NoSuchPart, `has no savepoint "none"; it has half`)
	_, err = s.rollback(task, recovery.Part{Step: "three"})
	s.requireRefusal(err, recovery.NoSuchPart, `has done no step "three"; it has done one, two`)
	_, err = s.rollback(s.commitTask(time.Nanosecond), recovery.Part{})
	s.requireRefusal(err, recovery.TooLate, "the rollback window of task")
	nothing := s.startTask(protocol.AgentTaskType).GetID()
	s.endWith(nothing, string(compensations.Committed))
	empty, err := s.FindDone(t.Context(), nothing)
	require.NoError(t, err)
	_, err = s.rollback(empty, recovery.Part{})
	s.requireRefusal(err, recovery.Ended, "has done nothing that could be rolled back")
	_, err = s.Describe(t.Context(), "rollback-"+task.WorkflowID+"-"+task.FirstRunID, "")
	s.requireRefusal(err, recovery.Unknown)
}

func TestARedoNamesTheRollbackAndItsTask(t *testing.T) {
	s := newStage(t)
	task := s.commitTask(0)
	_, err := s.FindRollback(t.Context(), task.WorkflowID)
	s.requireRefusal(err, recovery.Ended, "was not rolled back: there is nothing to redo")

	part, err := s.rollback(task, recovery.Part{Step: "two"})
	require.NoError(t, err)
	_, err = s.FindRollback(t.Context(), part.WorkflowID)
	s.requireRefusal(err, recovery.Alive, part.WorkflowID+" is still rolling back")
	s.endWith(part.WorkflowID, string(compensations.Unwound))
	require.Eventually(t, func() bool { // visibility follows
		found, err := s.FindRollback(t.Context(), task.WorkflowID)
		return err == nil && found.WorkflowID == part.WorkflowID
	}, waitFor, tick)

	other, err := s.rollback(task, recovery.Part{To: "half"})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := s.FindRollback(t.Context(), task.WorkflowID)
		return recovery.WhyOf(err) == recovery.NoSuchPart
	}, waitFor, tick)
	s.terminate(other.WorkflowID)
	_, err = s.FindRollback(t.Context(), other.WorkflowID)
	s.requireRefusal(err, recovery.Dead, other.WorkflowID+" was terminated in the middle: recover it")
	_, err = s.rollback(task, recovery.Part{})
	s.requireRefusal(err, recovery.Dead, other.WorkflowID+" was terminated in the middle: recover it")
	dead, err := s.Find(t.Context(), other.WorkflowID)
	require.NoError(t, err)
	recovering, err := s.Recover(t.Context(), dead, "ann")
	require.NoError(t, err)
	_, err = s.FindRollback(t.Context(), other.WorkflowID)
	s.requireRefusal(err, recovery.Alive, recovering.WorkflowID+" is still rolling back")
	s.endWith(recovering.WorkflowID, string(compensations.Unwound))
	again, err := s.FindRollback(t.Context(), other.WorkflowID)
	require.NoError(t, err, "its recovery has brought it to its end")
	require.Equal(t, other.Chain, again.Chain)

	whole, err := s.rollback(task, recovery.Part{})
	require.NoError(t, err)
	s.endWith(whole.WorkflowID, string(compensations.Unwound))
	found, err := s.FindRollback(t.Context(), task.WorkflowID)
	require.NoError(t, err)
	require.Equal(t, whole.WorkflowID, found.WorkflowID)
	redo, err := s.Redo(t.Context(), found, "ann", s.dc)
	require.NoError(t, err)
	require.Equal(t, "redo-"+task.WorkflowID+"-"+whole.RunID, redo.WorkflowID)
	require.Equal(t, task.WorkflowID, redo.Task)
	var request protocol.RedoRequest
	s.readArgument(redo, &request)
	require.Equal(t, protocol.RedoRequest{Rollback: found.Chain, Task: task.Chain, Who: "ann"}, request)
	_, err = s.Redo(t.Context(), found, "ann", s.dc)
	s.requireRefusal(err, recovery.Taken, whole.WorkflowID+" is already being redone by "+redo.WorkflowID)
	_, err = s.FindDone(t.Context(), whole.WorkflowID)
	s.requireRefusal(err, recovery.Foreign, whole.WorkflowID+" is a Rollback, and does no step")

	s.endWith(redo.WorkflowID, string(compensations.Redone))
	forward, err := s.FindDone(t.Context(), redo.WorkflowID)
	require.NoError(t, err, "a redo goes forward: it can be rolled back itself")
	require.Equal(t, redo.Chain, forward.Chain)
	_, err = s.FindRollback(t.Context(), redo.WorkflowID)
	s.requireRefusal(err, recovery.Ended, redo.WorkflowID+" was not rolled back")
}
