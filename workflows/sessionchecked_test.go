package workflows_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/deploy/devserver"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/session"
)

// Twelve requests that a host checks for as long as it likes are more than the updates that a
// server allows at once. They keep out neither who decides nor who aborts, and each says in the end
// what has become of it.
func TestRequestsThatAreBeingCheckedKeepNothingOut(t *testing.T) {
	letGo := make(chan struct{})
	w := &world{confirm: func(ctx context.Context, n int) error {
		if err := block(ctx, letGo); err != nil || n > 1 {
			return err
		}
		return refused(errors.New("it was never given"))
	}}
	l := newLive(t, servertest.Client(t), w)
	s := l.openSession()
	_, err := s.Step(t.Context(), "gated",
		steps(`{"id": "gated", "uses": "fake.do", "gate": "ask", "with": {"path": "/gated"}}`).Steps...)
	require.NoError(t, err)
	var sent sync.WaitGroup
	for i := range contexts {
		sent.Go(func() {
			answer, err := l.giveContext(s, i)
			assert.NoError(t, err)
			assert.True(t, answer.Pending)
		})
	}
	sent.Wait() // each has its answer before its host has said anything
	g := l.awaitState(atGate).Gates[0]
	answer, err := l.ask(protocol.UpdateApprove, protocol.Decision{Step: "gated", Digest: g.Digest, Who: "ann"})
	require.NoError(t, err)
	require.Nil(t, answer.Cause)
	l.awaitCalls("do gated", 1)
	for i := range contexts {
		now, err := s.Answer(t.Context(), fmt.Sprintf("context %d", i))
		require.NoError(t, err)
		require.True(t, now.Pending)
		require.False(t, now.NeedsPerson)
	}
	close(letGo)
	for i := range contexts {
		_, err := s.Await(t.Context(), fmt.Sprintf("context %d", i))
		require.Equal(t,
			session.Refusal{Type: protocol.BadRequest,
				Text: "context: host " + "host does not have it: Refused: it was never given"}, err)
	}
	again, err := l.giveContext(s, contexts)
	require.NoError(t, err)
	require.NotNil(t, again.Context)
	end, err := s.Abort(t.Context(), "", protocol.AbortRequest{Who: "ann"})
	require.NoError(t, err)
	require.Equal(t, compensations.Unwound, end.Report.Status)
}

// contexts is how many contexts there are.
const contexts = 12

// giveContext sends the digest of a context, by the i-th request.
func (l *live) giveContext(s session.Session, i int) (answer protocol.Answer, err error) {
	c := given(fmt.Sprintf("%x", i%contexts))
	c.Queue = l.queue
	handle, err := l.client.UpdateWorkflow(l.Context(), client.UpdateWorkflowOptions{
		WorkflowID: s.ID(), UpdateID: fmt.Sprintf("context %d", i), UpdateName: protocol.UpdateContext, Args: []any{c},
		WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = handle.Get(l.Context(), &answer)
	}
	return answer, err
}

// A session that takes long to open says so within seconds, and is waited for by a query.
func TestASessionThatTakesLongToOpenIsWaitedFor(t *testing.T) {
	letGo := make(chan struct{})
	w := &world{preflight: func(protocol.PreflightRequest) (protocol.Preflight, error) {
		<-letGo
		return protocol.Preflight{}, nil
	}, unnamed: []string{"a"}}
	l := newLive(t, servertest.Client(t), w)
	l.startWorker()
	opened := make(chan error, 1)
	go func() {
		_, answer, err := session.Open(t.Context(), l.client, session.Options{ID: l.Name(), Queue: l.queue, Request: "open"},
			json.RawMessage(`{"name": "live", "agent": "bot", "session": {}, "steps": [{"id": "a", "uses": "fake.do"}]}`))
		if err == nil && answer.Phase != protocol.Forward {
			err = fmt.Errorf("it is %s", answer.Phase)
		}
		opened <- err
	}()
	s := session.Attach(l.client, l.Name())
	require.Eventually(t, func() bool {
		now, err := s.Answer(t.Context(), "open")
		return err == nil && now.Pending && now.Phase == protocol.Compiling
	}, time.Minute, 20*time.Millisecond)
	close(letGo)
	require.NoError(t, <-opened)
}

// A request is answered as pending after seconds. A gate that comes later is told all the same: who
// has sent it does not wait until somebody has decided.
func TestAGateThatComesAfterSecondsIsTold(t *testing.T) {
	letGo := make(chan struct{})
	l := newLive(t, servertest.Client(t), &world{do: blockAt("slow", letGo)})
	s := l.openSession()
	answers := make(chan protocol.Answer, 1)
	go func() {
		answer, err := s.Step(t.Context(), "both",
			steps("slow", `{"id": "gated", "uses": "fake.do", "gate": "ask"}`).Steps...)
		assert.NoError(t, err)
		answers <- answer
	}()
	l.awaitCalls("do slow", 1)
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(l.events(t.Context(), ""), func(e *historypb.HistoryEvent) bool {
			return e.GetWorkflowExecutionUpdateCompletedEventAttributes().GetMeta().GetUpdateId() == "both"
		})
	}, time.Minute, 20*time.Millisecond)
	close(letGo)
	answer := <-answers
	require.True(t, answer.Pending)
	require.True(t, answer.NeedsPerson)
	require.Equal(t, []string{"slow done", "gated at-gate"}, states(answer))
}

// A server takes so many updates of a run and no more. A session is aborted all the same.
func TestAnAbortGetsThroughWhereTheServerTakesNoUpdates(t *testing.T) {
	_, c := ownServer(t,
		devserver.Options{Settings: map[string]any{"history.maxTotalUpdates": 2,
			"history.maxTotalUpdates.suggestContinueAsNewThreshold": 9}})
	l := newLive(t, c, &world{})
	s := l.openSession()
	_, err := s.Step(t.Context(), "one", steps("a").Steps...)
	require.NoError(t, err)
	_, err = l.giveContext(s, 0)
	require.Error(t, err)
	end, err := s.Abort(t.Context(), "", protocol.AbortRequest{Who: "ann"})
	require.NoError(t, err)
	require.False(t, end.Pending)
	require.Equal(t, compensations.Unwound, end.Report.Status)
	require.Equal(t, []string{"do a", "undo a"}, l.calls())
}
