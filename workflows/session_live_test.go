package workflows_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/session"
)

// openSession opens the session of a test on its worker.
func (l *live) openSession() session.Session {
	l.startWorker()
	s, answer, err := session.Open(l.Context(), l.client, session.Options{ID: l.Name(), Queue: l.queue},
		json.RawMessage(sessionDocument))
	require.NoError(l, err)
	require.Equal(l, protocol.Forward, answer.Phase)
	l.run = l.client.GetWorkflow(l.Context(), l.Name(), "")
	return s
}

// A long session has many runs: requests, savepoints, outputs and what is rolled back cross them,
// and the cost of a step stays flat.
func TestALongSessionContinuesAsNew(t *testing.T) {
	c, n := newImpatientServer(t, 3000)
	w := &world{do: func(_ context.Context, s string, _ int, f activities.Forward) (activities.Result, error) {
		if s == "bad" {
			return activities.Result{}, activities.Errorf(activities.CheckFailed, "no")
		}
		return activities.Result{Summary: string(f.Step.With), Outputs: map[string]any{"id": "of " + s}}, nil
	}}
	l := newLive(t, c, w)
	s := l.openSession()
	ctx := t.Context()
	var took [2]time.Duration
	began := time.Now()
	for i := range n {
		answer, err := s.Step(ctx, fmt.Sprintf("r%d", i),
			steps(fmt.Sprintf(`{"uses": "fake.do", "with": {"path": "/f/%d"}}`, i)).Steps...)
		require.NoError(t, err)
		require.Equal(t, []string{fmt.Sprintf("s%d done", i+1)}, states(answer))
		if i == n/3 {
			took[0], began = time.Since(began), time.Now()
			_, err = s.Savepoint(ctx, "mark", "third")
			require.NoError(t, err)
		}
	}
	took[1] = time.Since(began)
	t.Logf("a step takes %v in the first third, and %v after that", took[0]/time.Duration(n/3+1),
		took[1]/time.Duration(n-n/3-1))

	again, err := s.Step(ctx, fmt.Sprintf("r%d", n-1),
		steps(fmt.Sprintf(`{"uses": "fake.do", "with": {"path": "/f/%d"}}`, n-1)).Steps...)
	require.NoError(t, err)
	require.Equal(t, []string{fmt.Sprintf("s%d done", n)}, states(again), "a repeated request is the same one")
	again, err = s.Step(ctx, "r0", steps(`{"uses": "fake.do", "with": {"path": "/f/0"}}`).Steps...)
	require.NoError(t, err)
	require.True(t, again.Forgotten || states(again)[0] == "s1 done", "also in a later run")
	_, err = s.Step(ctx, fmt.Sprintf("r%d", n-1), steps("other").Steps...)
	require.ErrorContains(t, err, "asked for something else")
	require.Len(t, l.calls(), n, "no step ran twice")

	failed, err := s.Step(ctx, "fails",
		steps("bad", `{"id": "after", "uses": "fake.do", "needs": ["s1"], "with": {"path": "/g"}}`).Steps...)
	require.NoError(t, err)
	require.Equal(t, []string{"bad rolled-back", "after done"}, states(failed))

	back, err := s.Rollback(ctx, "back", protocol.SessionRollback{To: "third"})
	require.NoError(t, err)
	require.False(t, back.Pending)
	var undone []string
	for _, call := range l.calls() {
		if len(call) > 5 && call[:5] == "undo " && call != "undo bad" {
			undone = append(undone, call)
		}
	}
	want := []string{"undo after"}
	for i := n; i > n/3+1; i-- {
		want = append(want, fmt.Sprintf("undo s%d", i))
	}
	require.Equal(t, want, undone)

	next, err := s.Step(ctx, "next", steps(`{"id": "last", "uses": "fake.do", "with": {"path": "/h"}}`).Steps...)
	require.NoError(t, err)
	require.Equal(t, []string{"last done"}, states(next))
	state, err := s.State(ctx)
	require.NoError(t, err)
	require.Equal(t, n/3+2, state.Done)
	end, err := s.Finish(ctx, "end")
	require.NoError(t, err)
	require.Equal(t, compensations.Committed, end.Report.Status)
	_, err = s.Step(ctx, "late", steps("late").Steps...)
	var refusal session.Refusal
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, protocol.SessionOver, refusal.Type)
	description, err := l.client.DescribeWorkflowExecution(ctx, s.ID(), "")
	require.NoError(t, err)
	require.NotEqual(t, description.WorkflowExecutionInfo.GetFirstRunId(),
		description.WorkflowExecutionInfo.Execution.RunId, "it was to continue as new")
}

// A session that is killed is recovered like every task: what its agent has seen as done is undone,
// last in first out.
func TestASessionThatIsTerminatedIsRecovered(t *testing.T) {
	l := newLive(t, servertest.Client(t), &world{})
	l.world.do = func(ctx context.Context, s string, n int, _ activities.Forward) (activities.Result, error) {
		if s == "c" {
			return activities.Result{}, block(ctx, never)
		}
		return activities.Result{}, nil
	}
	s := l.openSession()
	answer, err := s.Step(t.Context(), "", steps("a", "b").Steps...)
	require.NoError(t, err)
	require.Equal(t, []string{"a done", "b done"}, states(answer))
	ended := make(chan error, 1)
	go func() {
		_, err := s.Step(t.Context(), "", steps("c").Steps...)
		ended <- err
	}()
	l.awaitCalls("do c", 1)
	l.terminate(l.run.GetID())
	require.Error(t, <-ended)
	report := l.awaitReport(l.recover())
	require.Equal(t, compensations.Unwound, report.Status)
	calls := l.calls()
	require.Equal(t, []string{"undo c", "undo b", "undo a"}, calls[len(calls)-3:])
}

// A worker that stops in the middle of a step loses no request: its answer comes from the next one.
func TestARequestOutlivesTheWorkerOfItsSession(t *testing.T) {
	letGo := make(chan struct{})
	l := newLive(t, servertest.Client(t), &world{do: blockAt("b", letGo)})
	stop := l.startWorker()
	s, _, err := session.Open(t.Context(), l.client, session.Options{ID: l.Name(), Queue: l.queue},
		json.RawMessage(sessionDocument))
	require.NoError(t, err)
	answers := make(chan []string, 1)
	go func() {
		a, err := s.Step(t.Context(), "one", steps("a", "b", "c").Steps...)
		answers <- append(states(a), fmt.Sprint(err))
	}()
	l.awaitCalls("do b", 1)
	stop()
	l.startWorker()
	close(letGo)
	require.Equal(t, []string{"a done", "b done", "c done", "<nil>"}, <-answers)
	again, err := s.Step(t.Context(), "one", steps("a", "b", "c").Steps...)
	require.NoError(t, err)
	require.Equal(t, []string{"a done", "b done", "c done"}, states(again))
	require.Equal(t, 1,
		slices.Index(slices.DeleteFunc(l.calls(), func(call string) bool { return call != "do a" && call != "do c" }),
			"do c"))
	_, err = s.Abort(t.Context(), "", protocol.AbortRequest{})
	require.NoError(t, err)
}

func TestAnIDOfASessionIsUsedOnceAndAnUnknownOneIsRefused(t *testing.T) {
	l := newLive(t, servertest.Client(t), &world{})
	s := l.openSession()
	_, _, err := session.Open(t.Context(), l.client, session.Options{ID: s.ID(), Queue: l.queue},
		json.RawMessage(sessionDocument))
	var refusal session.Refusal
	require.ErrorAs(t, err, &refusal)
	require.Contains(t, refusal.Text, "is taken")
	_, err = session.Attach(l.client, "session-of-nobody").Step(t.Context(), "", steps("a").Steps...)
	require.True(t, errors.As(err, &refusal) && refusal.Type == protocol.SessionOver)
	_, err = s.Step(t.Context(), "", steps(`{"uses": "fake.di"}`).Steps...)
	require.ErrorContains(t, err, "did you mean fake.do?")
	_, err = s.Finish(t.Context(), "")
	require.NoError(t, err)
	for _, e := range l.events(t.Context(), "") {
		require.Nil(t, e.GetWorkflowExecutionUpdateRejectedEventAttributes(), "a refusal leaves no trace")
	}
}

// A redo crosses the runs of a session, and the loss of its worker.
func TestASessionIsRedoneInLaterRuns(t *testing.T) {
	c, n := newImpatientServer(t, 3000)
	letGo := make(chan struct{})
	tokens := map[string]bool{}
	w := &world{}
	w.do = func(ctx context.Context, s string, n int, f activities.Forward) (activities.Result, error) {
		w.mu.Lock()
		tokens[f.Entry.Token] = true
		w.mu.Unlock()
		if s == "last" && n == 2 {
			return activities.Result{}, block(ctx, letGo)
		}
		return counting(ctx, s, n, f)
	}
	l := newLive(t, c, w)
	stop := l.startWorker()
	s, _, err := session.Open(t.Context(), l.client, session.Options{ID: l.Name(), Queue: l.queue},
		json.RawMessage(sessionDocument))
	require.NoError(t, err)
	ctx := t.Context()
	runOf := func() string {
		description, err := l.client.DescribeWorkflowExecution(ctx, s.ID(), "")
		require.NoError(t, err)
		return description.WorkflowExecutionInfo.Execution.RunId
	}
	work := func(from, to int) {
		for i := from; i < to; i++ {
			answer, err := s.Step(ctx, "",
				steps(fmt.Sprintf(`{"id": "f%d", "uses": "fake.do", "needs": [], "with": {"path": "/f/%d"}}`, i, i)).Steps...)
			require.NoError(t, err)
			require.Equal(t, []string{fmt.Sprintf("f%d done", i)}, states(answer))
		}
	}
	_, err = s.Savepoint(ctx, "", "start")
	require.NoError(t, err)
	work(0, n/2)
	_, err = s.Step(ctx, "",
		steps(`{"id": "first", "uses": "fake.do", "with": {"path": "/x"}}`,
			`{"id": "last", "uses": "fake.do", "with": {"from": "${{ steps.first.outputs.id }}"}}`).Steps...)
	require.NoError(t, err)
	_, err = s.Rollback(ctx, "", protocol.SessionRollback{Step: "first"})
	require.NoError(t, err)
	before := runOf()
	work(n/2, n)
	require.NotEqual(t, before, runOf(), "it was to continue as new")

	answers := make(chan []string, 1)
	go func() {
		a, err := s.Redo(ctx, "again", protocol.SessionRedo{})
		answers <- append(states(a), fmt.Sprint(err))
	}()
	l.awaitCalls("do last", 2)
	stop()
	l.startWorker()
	close(letGo)
	require.Equal(t, []string{"first done", "last done", "<nil>"}, <-answers)
	again, err := s.Redo(ctx, "again", protocol.SessionRedo{})
	require.NoError(t, err)
	require.Equal(t, []string{"first done", "last done"}, states(again), "a repeated request is the same one")
	_, err = s.Redo(ctx, "", protocol.SessionRedo{})
	require.ErrorContains(t, err, "nothing was rolled back")
	require.Len(t, tokens, n+4)
	end, err := s.Abort(ctx, "", protocol.AbortRequest{})
	require.NoError(t, err)
	require.Equal(t, compensations.Unwound, end.Report.Status)
	calls := l.calls()
	require.Equal(t, 2, len(slices.DeleteFunc(calls, func(c string) bool { return c != "undo first" })))
}

// A session that is killed in a redo is recovered from its history: what was rolled back before is
// not undone twice, and what was redone is.
func TestASessionThatIsTerminatedInARedoIsRecovered(t *testing.T) {
	l := newLive(t, servertest.Client(t), &world{})
	var mu sync.Mutex
	undone := map[string]int{}
	l.world.do = func(ctx context.Context, s string, n int, _ activities.Forward) (activities.Result, error) {
		if s == "c" && n == 2 {
			return activities.Result{}, block(ctx, never)
		}
		return activities.Result{}, nil
	}
	l.world.undo = func(s string, _ int, _ activities.Decision) (activities.Undone, error) {
		mu.Lock()
		defer mu.Unlock()
		undone[s]++
		return activities.Undone{Outcome: activities.Restored}, nil
	}
	s := l.openSession()
	_, err := s.Step(t.Context(), "", steps("a", "b", "c").Steps...)
	require.NoError(t, err)
	_, err = s.Rollback(t.Context(), "", protocol.SessionRollback{Step: "b"})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := s.Redo(t.Context(), "", protocol.SessionRedo{})
		ended <- err
	}()
	l.awaitCalls("do c", 2)
	l.terminate(l.run.GetID())
	require.Error(t, <-ended)
	report := l.awaitReport(l.recover())
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, map[string]int{"a": 1, "b": 2, "c": 2}, undone)
	calls := l.calls()
	require.Equal(t, []string{"undo c", "undo b", "undo a"}, calls[len(calls)-3:])
}

// markWith marks a savepoint with a context that the fake world says is there.
func (l *live) markWith(s session.Session, request, name string) error {
	c := given("1")
	c.Queue = l.queue
	handle, err := l.client.UpdateWorkflow(l.Context(), client.UpdateWorkflowOptions{
		WorkflowID: s.ID(), UpdateID: request, UpdateName: protocol.UpdateSavepoint,
		WaitForStage: client.WorkflowUpdateStageCompleted,
		Args:         []any{protocol.SavepointRequest{Name: name, Context: &c}},
	})
	if err != nil {
		return err
	}
	return handle.Get(l.Context(), nil)
}

// A worker that stops while a context is confirmed leaves no savepoint without one.
func TestASavepointWaitsForItsContext(t *testing.T) {
	letGo := make(chan struct{})
	l := newLive(t, servertest.Client(t),
		&world{confirm: func(ctx context.Context, _ int) error { return block(ctx, letGo) }})
	stop := l.startWorker()
	s, _, err := session.Open(t.Context(), l.client, session.Options{ID: l.Name(), Queue: l.queue},
		json.RawMessage(sessionDocument))
	require.NoError(t, err)
	marked := make(chan error, 1)
	go func() { marked <- l.markWith(s, "mark", "half") }()
	l.awaitCalls("confirm 1", 1)
	state, err := s.State(t.Context())
	require.NoError(t, err)
	require.Empty(t, state.Session.Savepoints)
	_, err = s.Finish(t.Context(), "")
	require.ErrorContains(t, err, "another request is being checked")
	stop()
	l.startWorker()
	l.awaitCalls("confirm 1", 2)
	close(letGo)
	require.NoError(t, <-marked)
	_, err = s.Await(t.Context(), "mark")
	require.NoError(t, err)
	state, err = s.State(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"half"}, state.Session.Savepoints)
	require.Equal(t, "1", digests(state.Session.Contexts))
	_, err = s.Finish(t.Context(), "")
	require.NoError(t, err)
}

// countUpdates counts the updates that a client sends.
type countUpdates struct{ sent atomic.Int64 }

func (c *countUpdates) count(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if strings.HasSuffix(method, "/UpdateWorkflowExecution") {
		c.sent.Add(1)
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

// Ten requests whose steps take long, or wait for a person, are as many updates as a server allows:
// they must not keep out what decides, aborts, or is asked for next. Who waits for them sends no
// update.
func TestRequestsThatTakeLongKeepNothingOut(t *testing.T) {
	letGo := make(chan struct{})
	w := &world{do: func(ctx context.Context, _ string, _ int, _ activities.Forward) (activities.Result, error) {
		return activities.Result{}, block(ctx, letGo)
	}}
	o := servertest.Shared(t).ClientOptions()
	var updates countUpdates
	o.ConnectionOptions.DialOptions = append(o.ConnectionOptions.DialOptions,
		grpc.WithChainUnaryInterceptor(updates.count))
	c, err := client.Dial(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	l := newLive(t, c, w)
	s := l.openSession()
	answers := make(chan protocol.Answer, 10)
	var waiting sync.WaitGroup
	ask := func(request, step string) {
		waiting.Go(func() {
			answer, err := s.Step(t.Context(), request, steps(step).Steps...)
			if err == nil && answer.Pending {
				answer, err = s.Await(t.Context(), request)
			}
			if err == nil {
				answers <- answer
			}
		})
	}
	ask("gated", `{"id": "gated", "uses": "fake.do", "gate": "ask", "needs": [], "with": {"path": "/gated"}}`)
	for i := range 9 {
		ask(fmt.Sprintf("r%d", i),
			fmt.Sprintf(`{"id": "b%d", "uses": "fake.do", "needs": [], "with": {"path": "/f/%d"}}`, i, i))
	}
	for i := range 9 {
		l.awaitCalls(fmt.Sprintf("do b%d", i), 1)
	}
	g := l.awaitState(atGate).Gates[0]
	_, err = l.ask(protocol.UpdateApprove, protocol.Decision{Step: "gated", Digest: g.Digest, Who: "ann"})
	require.NoError(t, err)
	_, err = s.Note(t.Context(), "", "I wait")
	require.NoError(t, err)
	sent := updates.sent.Load()
	require.Eventually(t, func() bool {
		now, err := s.Answer(t.Context(), "r0")
		return err == nil && now.Pending
	}, time.Minute, 20*time.Millisecond)
	l.awaitCalls("do gated", 1)
	require.Equal(t, sent, updates.sent.Load(), "who waits asks by a query")
	close(letGo)
	waiting.Wait()
	require.Len(t, answers, 10)
	for range 10 {
		answer := <-answers
		require.False(t, answer.Pending)
		require.Equal(t, protocol.Done, answer.Steps[0].State)
	}
	report, err := s.Abort(t.Context(), "", protocol.AbortRequest{Who: "ann"})
	require.NoError(t, err)
	require.NotNil(t, report.Report, "the abort takes longer than an update may")
}
