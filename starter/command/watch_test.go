package command

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
)

// passing are the lines of states that a look every 200 ms may or may not see.
var passing = regexp.MustCompile(`(?m)^ T \w+ [a-z.]+ (started|planning|undoing)\n`)

func TestWatchTellsAllThatHappensInOrder(t *testing.T) {
	d := newDesk(t)
	id := t.Name()
	r := d.begin("run", d.file(gated), "--id", id, "--watch", "--wait", "--ui", "http://ui:8080/")
	d.until(id, atGate)
	d.prints(r, "reject it")
	d.world.set("a", "mine")
	d.ok("reject", id, "two", "--why", "no")
	d.prints(r, "resolve it")
	d.ok("resolve", id, "one", "--do", "force", "--yes", "--why", "mine is old")
	e := d.ended(r)
	require.Equal(t, statusFailed, e.status)
	require.Equal(t, "starter: task "+id+": unwound: step two: step two was rejected by ME: no\n", normal(e.err))

	run := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`)
	require.Equal(t, `task `+id+`
see http://ui:8080/namespaces/default/workflows/`+id+`/RUN/user-metadata
 T one fake.set done: set a to "x"
 T two fake.set waits at its gate

gate: step two waits for a person
 because the task file asks
 change set b from "" to "y"
 risk medium: somebody reads it
 undo snapshot: puts the old value back
 horizon 1h after the end of the task
 loses who read it meanwhile
 | -
 | +y
 until DATE, then it counts as rejected
 approve it in one of three ways:
 1. starter approve `+id+` two
 2. temporal workflow signal --address ADDRESS --namespace default --workflow-id `+id+
		` --name approve --input '{"step":"two","digest":"DIGEST"}'
 3. http://ui:8080/namespaces/default/workflows/`+id+`
 Send a Signal, name: approve, JSON: {"step":"two","digest":"DIGEST"}
 or reject it: starter reject `+id+` two --why WHY

 T two fake.set failed: step two was rejected by ME: no
unwinding, last in first out: rejected at step two: step two was rejected by ME: no
 T two fake.set undo: nothing-to-undo: it never acted

parked: the undo of step one (fake.set) needs a person
 because someone else changed it since: a is "mine"
 | -x
 | +mine
 resolve it, one of:
 starter resolve `+id+` one --do retry # undo it again
 starter resolve `+id+` one --do force # overwrite exactly the drift that is shown
 starter resolve `+id+` one --do skip # leave it as it is; the steps that it builds on wait for a person too
 starter resolve `+id+` one --do accept # take the world as it is; the steps that it builds on are undone

 T one fake.set force by ME: mine is old
 T one fake.set undo: restored: a is "" again

report of `+id+`
unwound: every step that acted was undone
cause: rejected at step two: step two was rejected by ME: no
lasted: T

 STEP ACTION UNDO TOOK SEEN AFTERWARDS
 one fake.set restored a is "" again
 two fake.set nothing-to-undo it never acted

total: 1 nothing-to-undo, 1 restored

one: force by ME: mine is old
one: drift that was overwritten:
 | -x
 | +mine
`, run.ReplaceAllString(passing.ReplaceAllString(normal(e.out), ""), "RUN"))
}

func TestWatchEndsWithoutTheTaskWhenInterrupted(t *testing.T) {
	d := newDesk(t)
	r := d.begin("run", d.file(gated), "--id", t.Name(), "--watch", "--wait")
	d.prints(r, "waits at its gate")
	r.stop()
	e := d.ended(r)
	require.Equal(t, statusInterrupted, e.status)
	require.Contains(t, e.err, "the task goes on; follow it with: starter watch "+t.Name())
	require.Len(t, d.state(t.Name()).Gates, 1)
	d.ok("cancel", t.Name())
}

func TestWatchSaysWhenNoWorkerAnswersAndWhenOneIsBack(t *testing.T) {
	d := newDesk(t)
	r := d.begin("run", d.file(gated), "--id", t.Name(), "--watch", "--wait")
	d.prints(r, "waits at its gate")
	d.stopWorker()
	d.prints(r, "waiting: no worker answers on queue")
	d.startWorker()
	d.prints(r, "a worker answers again")
	d.ok("approve", t.Name(), "two", "--yes")
	require.Equal(t, statusOK, d.ended(r).status)
}

func TestWatchEndsWhereATaskNeedsAPersonAndNobodySitsThere(t *testing.T) {
	d := newDesk(t)
	id := t.Name()
	e := d.do("run", d.file(gated), "--id", id, "--watch")
	require.Equal(t, statusNeedsPerson, e.status)
	require.Contains(t, e.out, "starter approve "+id+" two")
	require.Equal(t, "starter: task "+id+" waits for a person: step two is at its gate\n", e.err)
	needs := func(flag string) func() bool {
		return func() bool { return strings.Contains(d.ok("list", flag), "\n"+id+"\n") }
	}
	require.Eventually(t, needs("--needs-person"), waitFor, tick, "visibility follows")
	require.False(t, needs("--parked")())

	e = d.do("watch", id, "--wait", "--timeout", "1s")
	require.Equal(t, statusTimedOut, e.status)
	require.Contains(t, e.err, "task "+id+" is not over after 1s and goes on; follow it with: starter watch "+id)

	d.world.set("a", "mine")
	d.ok("reject", id, "two", "--why", "no")
	d.until(id, parked)
	e = d.do("watch", id)
	require.Equal(t, statusNeedsPerson, e.status)
	require.Contains(t, e.err, "waits for a person: the undo of step one is parked")
	require.Eventually(t, func() bool {
		return strings.Contains(normal(d.ok("list", "--parked")), id+"\n Ship it! open parked: one ")
	}, waitFor, tick)
	require.Eventually(t, func() bool { return !needs("--gate")() && needs("--needs-person")() }, waitFor, tick)
	d.ok("resolve", id, "one", "--do", "accept", "--yes")
	require.Equal(t, statusFailed, d.do("watch", id).status)
	require.Eventually(t, func() bool { return !needs("--needs-person")() }, waitFor, tick)
}

func TestWatchFollowsATaskThatWasReset(t *testing.T) {
	d := newDesk(t)
	r := d.begin("run", d.file(gated), "--id", t.Name(), "--watch", "--wait")
	d.prints(r, "waits at its gate")
	var first int64
	history := d.client.GetWorkflowHistory(t.Context(), t.Name(), "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for first == 0 {
		event, err := history.Next()
		require.NoError(t, err)
		if event.EventType == enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			first = event.EventId
		}
	}
	_, err := d.client.ResetWorkflowExecution(t.Context(), &workflowservice.ResetWorkflowExecutionRequest{
		Namespace: "default", RequestId: t.Name(), WorkflowTaskFinishEventId: first,
		WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: t.Name()},
	})
	require.NoError(t, err)
	e := d.ended(r)
	require.Equal(t, statusFailed, e.status)
	require.Contains(t, e.out, "the task was reset: following run ")
	require.Contains(t, e.out, " was reset from ")
	require.Empty(t, d.world.get("a"), "a reset run only unwinds")
}
