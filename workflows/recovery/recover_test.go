package recovery_test

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

func TestADeadTaskIsRecoveredOnce(t *testing.T) {
	s := newStage(t)
	task := s.startTask(protocol.AgentTaskType)
	s.terminate(task.GetID())

	const askers = 8
	var wg sync.WaitGroup
	errs := make([]error, askers)
	started := make([]recovery.Run, askers)
	for i := range askers {
		wg.Go(func() {
			dead, err := s.Find(t.Context(), task.GetID())
			if err == nil {
				started[i], err = s.Recover(t.Context(), dead, "ann")
			}
			errs[i] = err
		})
	}
	wg.Wait()
	var one recovery.Run
	for i, err := range errs {
		if err == nil {
			require.Empty(t, one.WorkflowID, "started twice")
			one = started[i]
		} else {
			s.requireRefusal(err, recovery.Taken,
				task.GetID()+" is already being recovered by recover-"+task.GetID()+"-"+task.GetRunID())
		}
	}
	require.Equal(t, "recover-"+task.GetID()+"-"+task.GetRunID(), one.WorkflowID)
	require.Equal(t, recovery.Run{
		Chain: protocol.Chain{WorkflowID: "recover-" + task.GetID() + "-" + task.GetRunID(), RunID: one.RunID,
			FirstRunID: one.RunID},
		Type: protocol.RecoverType, Status: one.Status, Unwind: compensations.Open, Agent: "bot", Queue: t.Name(),
		Task: task.GetID(), Of: task.GetID(), Started: one.Started,
	}, one)
	var request protocol.RecoverRequest
	s.readArgument(one, &request)
	require.Equal(t, protocol.RecoverRequest{
		Chain: protocol.Chain{WorkflowID: task.GetID(), RunID: task.GetRunID(), FirstRunID: task.GetRunID()},
		Ended: "terminated", Who: "ann",
	}, request)

	s.endWith(one.WorkflowID, string(compensations.Unwound))
	_, err := s.Find(t.Context(), task.GetID())
	s.requireRefusal(err, recovery.Taken, task.GetID()+" was already recovered by "+one.WorkflowID)
	_, err = s.Find(t.Context(), one.WorkflowID)
	s.requireRefusal(err, recovery.Ended, one.WorkflowID+" has ended by itself as unwound")
}

func TestARunThatTimedOutIsDead(t *testing.T) {
	s := newStage(t)
	task, err := s.Client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
		TaskQueue: s.Name(), TypedSearchAttributes: protocol.ServingAttributes("bot", ""), WorkflowRunTimeout: time.Second,
	}, protocol.AgentTaskType, nil)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return !s.describe(task.GetID()).Alive() }, waitFor, tick)
	dead, err := s.Find(t.Context(), task.GetID())
	require.NoError(t, err)
	require.Equal(t, "timed out", dead.Ending())
}

func TestOnlyADeadRunIsRecovered(t *testing.T) {
	s := newStage(t)
	_, err := s.Find(t.Context(), "no-such-task")
	s.requireRefusal(err, recovery.Unknown, `there is no task "no-such-task" in namespace default`)

	foreign := s.startTask("SomebodyElses").GetID()
	_, err = s.Find(t.Context(), foreign)
	s.requireRefusal(err, recovery.Foreign, "is a workflow of type SomebodyElses, and no task")
	_, err = s.TakeOver(t.Context(), foreign, "ann", s.dc)
	s.requireRefusal(err, recovery.Foreign)
	require.True(t, s.describe(foreign).Alive(), "and it is not touched")

	task := s.startTask(protocol.AgentTaskType).GetID()
	_, err = s.Find(t.Context(), task)
	s.requireRefusal(err, recovery.Alive,
		task+" is running: cancel it and it unwinds by itself; where it is stuck, take it over")
	for how, text := range map[compensations.Status]string{
		compensations.Committed: "has ended by itself as committed: there is nothing to recover; to take it back, " +
			"roll it back",
		compensations.Unwound: "has ended by itself as unwound: there is nothing to recover",
		compensations.Remains: "has ended by itself as unwound-with-remains: there is nothing to recover",
		compensations.Partly: "has ended by itself as partly-committed: there is nothing to recover; to take it back, " +
			"roll it back",
	} {
		task := s.startTask(protocol.AgentTaskType).GetID()
		s.endWith(task, string(how))
		_, err = s.Find(t.Context(), task)
		s.requireRefusal(err, recovery.Ended, task+" "+text)
		_, err = s.TakeOver(t.Context(), task, "ann", s.dc)
		s.requireRefusal(err, recovery.Ended)
	}
}

func TestALiveChainIsLeftAloneAndADeadOneRecoveredFromItsLastRun(t *testing.T) {
	s := newStage(t)
	task := s.startTask(protocol.AgentTaskType)
	s.endWith(task.GetID(), "again")
	last := s.describe(task.GetID())
	require.NotEqual(t, task.GetRunID(), last.RunID)
	require.Equal(t, task.GetRunID(), last.FirstRunID)
	require.Equal(t, compensations.Open, last.Unwind)
	_, err := s.Find(t.Context(), task.GetID())
	s.requireRefusal(err, recovery.Alive)
	_, err = s.FindRun(t.Context(), task.GetID(), task.GetRunID())
	s.requireRefusal(err, recovery.Superseded, "run "+last.RunID+" goes on in its place")

	s.terminate(task.GetID())
	dead, err := s.Find(t.Context(), task.GetID())
	require.NoError(t, err)
	require.Equal(t, protocol.Chain{WorkflowID: task.GetID(), RunID: last.RunID, FirstRunID: task.GetRunID()}, dead.Chain)
	require.Equal(t, "recover-"+task.GetID()+"-"+task.GetRunID(), protocol.RecoverID(dead.Chain))
	_, err = s.FindRun(t.Context(), task.GetID(), last.RunID)
	require.NoError(t, err)
}

func TestADeadRecoveryIsRecoveredItself(t *testing.T) {
	s := newStage(t)
	task := s.startTask(protocol.AgentTaskType)
	s.terminate(task.GetID())
	of := s.describe(task.GetID())
	for range 3 {
		dead, err := s.Find(t.Context(), task.GetID())
		require.NoError(t, err)
		require.Equal(t, of.Chain, dead.Chain, "what is to be recovered is the last that died")
		of, err = s.Recover(t.Context(), dead, "ann")
		require.NoError(t, err)
		require.Equal(t, task.GetID(), of.Task, "it is about the first")
		_, err = s.Find(t.Context(), task.GetID())
		s.requireRefusal(err, recovery.Taken, "is already being recovered by "+of.WorkflowID)
		s.terminate(of.WorkflowID)
		of = s.describe(of.WorkflowID)
	}
	dead, err := s.FindRun(t.Context(), task.GetID(), task.GetRunID())
	require.NoError(t, err)
	require.Equal(t, of.Chain, dead.Chain)
	dead, err = s.Find(t.Context(), of.WorkflowID)
	require.NoError(t, err)
	require.Equal(t, of.Chain, dead.Chain)
}

func TestAResetRunTakesThePlaceOfTheDeadOne(t *testing.T) {
	s := newStage(t)
	task := s.startTask(protocol.AgentTaskType, entry("one"))
	require.Eventually(t, func() bool {
		d, err := s.Client.DescribeWorkflowExecution(t.Context(), task.GetID(), "")
		return err == nil && d.WorkflowExecutionInfo.HistoryLength >= 10
	}, waitFor, tick)
	s.terminate(task.GetID())
	reset, err := s.Client.ResetWorkflowExecution(t.Context(), &workflowservice.ResetWorkflowExecutionRequest{
		Namespace:                 s.Namespace,
		WorkflowExecution:         &commonpb.WorkflowExecution{WorkflowId: task.GetID(), RunId: task.GetRunID()},
		WorkflowTaskFinishEventId: 4, RequestId: "once", Reason: "a test",
	})
	require.NoError(t, err)
	_, err = s.Find(t.Context(), task.GetID())
	s.requireRefusal(err, recovery.Alive)
	_, err = s.FindRun(t.Context(), task.GetID(), task.GetRunID())
	s.requireRefusal(err, recovery.Superseded, "run "+reset.RunId+" goes on in its place")
	s.terminate(task.GetID())
	dead, err := s.Find(t.Context(), task.GetID())
	require.NoError(t, err)
	require.Equal(t, protocol.Chain{WorkflowID: task.GetID(), RunID: reset.RunId, FirstRunID: task.GetRunID()}, dead.Chain)

	by, err := s.Recover(t.Context(), dead, "ann")
	require.NoError(t, err)
	s.endWith(by.WorkflowID, string(compensations.Unwound))
	_, err = s.Client.ResetWorkflowExecution(t.Context(), &workflowservice.ResetWorkflowExecutionRequest{
		Namespace:                 s.Namespace,
		WorkflowExecution:         &commonpb.WorkflowExecution{WorkflowId: task.GetID(), RunId: task.GetRunID()},
		WorkflowTaskFinishEventId: 4, RequestId: "twice", Reason: "a test",
	})
	require.NoError(t, err)
	_, err = s.TakeOver(t.Context(), task.GetID(), "ann", s.dc)
	s.requireRefusal(err, recovery.Taken, "was already recovered by "+by.WorkflowID)
	require.True(t, s.describe(task.GetID()).Alive(), "nothing is ended that could not be recovered")
}

func TestALedgerOfAnotherVersionIsRefused(t *testing.T) {
	s := newStage(t)
	start := func(version int) string {
		task, err := s.Client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
			TaskQueue: s.Name(), TypedSearchAttributes: protocol.ServingAttributes("bot", ""),
		}, protocol.AgentTaskType, nil)
		require.NoError(t, err)
		s.endWith(task.GetID(), strconv.Itoa(version))
		return task.GetID()
	}
	dead := func(id string) recovery.Run {
		s.terminate(id)
		dead, err := s.Find(t.Context(), id)
		require.NoError(t, err)
		return dead
	}
	require.NoError(t, s.Readable(t.Context(), dead(start(protocol.CarryVersion)), s.dc))
	for version, wayOut := range map[int]string{
		protocol.CarryVersion + 1: "upgrade this one",
		protocol.CarryVersion - 1: "run workers of the version that recorded it until its task is over",
	} {
		id := start(version)
		_, err := s.TakeOver(t.Context(), id, "ann", s.dc)
		s.requireRefusal(err, recovery.OtherVersion, "recorded by a version that this one cannot undo", wayOut)
		require.True(t, s.describe(id).Alive(), "nothing is ended that could not be recovered")
		other := dead(id)
		s.requireRefusal(s.Readable(t.Context(), other, s.dc), recovery.OtherVersion, wayOut)
		_, err = s.Ledger(t.Context(), protocol.LedgerRequest{WorkflowID: other.WorkflowID, RunID: other.RunID}, s.dc)
		s.requireRefusal(err, recovery.OtherVersion)
	}
}

func TestTakingOverEndsTheLiveChain(t *testing.T) {
	s := newStage(t)
	task := s.startTask(protocol.AgentTaskType)
	s.endWith(task.GetID(), "again")
	dead, err := s.TakeOver(t.Context(), task.GetID(), "ann", s.dc)
	require.NoError(t, err)
	require.Equal(t, task.GetRunID(), dead.FirstRunID)
	require.True(t, s.describe(task.GetID()).Dead())
	again, err := s.TakeOver(t.Context(), task.GetID(), "ann", s.dc)
	require.NoError(t, err, "on a dead one it finds it")
	require.Equal(t, dead, again)
}
