package command

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

const gated = `name: Ship it!
agent: bot
steps:
  - {id: one, uses: fake.set, with: {key: a, value: x}}
  - {id: two, name: the risky one, uses: fake.set, with: {key: b, value: y}, gate: ask}
`

const failing = `name: fails
steps:
  - {id: one, uses: fake.set, with: {key: a, value: x}}
  - {id: two, uses: fake.set, with: {key: b, value: y, fail: true}}
`

func TestRunStartsATaskThatNothingOfTemporalsOwnEnds(t *testing.T) {
	d := newDesk(t)
	out := d.ok("run", d.file(gated))
	id := regexp.MustCompile(`(?m)^task (ship-it-[a-z0-9]{8})$`).FindStringSubmatch(out)[1]
	require.Contains(t, out, "starter watch "+id)
	require.Contains(t, out, "starter approve "+id+" STEP")
	d.until(id, atGate)

	r, err := d.client.DescribeWorkflowExecution(t.Context(), id, "")
	require.NoError(t, err)
	config := r.GetExecutionConfig()
	require.Zero(t, config.GetWorkflowExecutionTimeout().AsDuration())
	require.Zero(t, config.GetWorkflowRunTimeout().AsDuration())
	desc, err := d.client.DescribeWorkflow(t.Context(), id, "")
	require.NoError(t, err)
	summary, err := desc.GetStaticSummary()
	require.NoError(t, err)
	require.Equal(t, "Ship it! (agent bot)", summary)
	history := d.client.GetWorkflowHistory(t.Context(), id, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	first, err := history.Next()
	require.NoError(t, err)
	started := first.GetWorkflowExecutionStartedEventAttributes()
	require.Nil(t, started.GetRetryPolicy())
	require.Empty(t, started.GetCronSchedule())
	attributes := started.GetSearchAttributes().GetIndexedFields()
	require.Equal(t, `"open"`, string(attributes["UnwindStatus"].GetData()))
	require.Equal(t, `"bot"`, string(attributes["UnwindAgent"].GetData()))

	d.ok("cancel", id)
}

func TestAnIDIsUsedOnce(t *testing.T) {
	d := newDesk(t)
	file := d.file(good)
	d.ok("run", file, "--id", "once", "--watch")
	r := d.do("run", file, "--id", "once")
	require.Equal(t, statusUsage, r.status)
	require.Empty(t, r.out)
	require.Contains(t, r.err, `--id "once" is taken: an id is used once; use another --id`)
	d.ok("run", file, "--watch")
	d.ok("run", file, "--watch")
}

func TestAnIDStandsInCommandsAndLinksAsItIs(t *testing.T) {
	d := newDesk(t)
	task, live := d.file(good), d.file("name: live\nsession: {}\nsteps: []\n")
	for _, id := range []string{"a b/c", "a/b", "a@b", "-a", ".", "a'b", "a\x1b[2J", "ä", strings.Repeat("a", 256)} {
		for _, args := range [][]string{{"run", task}, {"session", "open", live}} {
			r := d.do(append(args, "--id="+id)...)
			require.Equal(t, statusUsage, r.status, id)
			require.Contains(t, r.err, "it stands in commands and links: write a letter or a digit, then letters, digits", id)
			require.NotContains(t, r.err, "\x1b")
		}
	}
	for id, want := range map[string]string{"a b/c": "there is no", "a\xff": "no task or session can have this id",
		strings.Repeat("a", 1001): "no task or session can have this id"} {
		for _, args := range [][]string{{"show", id}, {"approve", id, "one"}, {"rollback", id}, {"redo", id}, {"recover", id},
			{"session", "finish", id}, {"session", "context", id}} {
			r := d.do(args...)
			require.Equal(t, statusUsage, r.status, "%q: %s", args, r.err)
			require.Contains(t, r.err, want, "%q", args)
		}
	}
}

func TestVariablesFromTheCommandLine(t *testing.T) {
	d := newDesk(t)
	file := d.file(
		"name: v\nvars: {value: old}\nsteps:\n  - {id: one, uses: fake.set, with: {key: a, value: '${{ vars.value }}'}}\n")
	d.ok("run", file, "--watch", "--var", "value=new=er")
	require.Equal(t, "new=er", d.world.get("a"))
}

func TestWhatTheWorkerRefusesIsToldByRun(t *testing.T) {
	d := newDesk(t)
	file := d.file("name: secret\nsteps:\n  - {id: one, uses: fake.set, with: {key: a, value: '${{ secrets.NONE }}'}}\n")
	r := d.do("run", file)
	require.Equal(t, statusUsage, r.status)
	require.Contains(t, r.err, "was refused: nothing was touched: "+"Refused: "+file+":3:53: steps.one.with.value: ")
	require.Contains(t, r.err, "NONE")
	watched := d.do("run", file, "--watch")
	require.Equal(t, statusUsage, watched.status)
	end := func(s string) string { _, end, _ := strings.Cut(s, "was refused: "); return end }
	require.Equal(t, end(r.err), end(watched.err), "watched or not, the lines of the file are named")
}

func TestApproveShowsTheChangeAndLetsTheTaskGoOn(t *testing.T) {
	d := newDesk(t)
	d.ok("run", d.file(gated), "--id", t.Name())
	digest := string(d.until(t.Name(), atGate).Gates[0].Digest)

	nobody := d.do("approve", t.Name(), "two")
	require.Equal(t, statusUsage, nobody.status, "nobody can be asked")
	require.Contains(t, nobody.err, "nothing was sent; give --digest "+digest)
	stale := d.do("approve", t.Name(), "two", "--digest", "sha256:00")
	require.Equal(t, statusUsage, stale.status)
	require.Contains(t, stale.err, "--digest sha256:00 is out of date")
	for step, want := range map[string]string{"one": "step one of task " + t.Name() +
		" is not at a gate, it is done: nothing was sent; at a gate: two", "three": `has no step "three"`} {
		r := d.do("approve", t.Name(), step, "--yes")
		require.Equal(t, statusUsage, r.status)
		require.Contains(t, r.err, want)
	}
	require.Empty(t, d.state(t.Name()).Ignored, "nothing was sent")

	out := d.ok("approve", t.Name(), "two", "--digest", digest, "--why", "seen")
	require.Equal(t, `gate: step two waits for a person
 because the task file asks
 change set b from "" to "y"
 risk medium: somebody reads it
 undo snapshot: puts the old value back
 horizon 1h after the end of the task
 loses who read it meanwhile
 | -
 | +y
 until DATE, then it counts as rejected
approved: step two of task `+t.Name()+` goes on
`, normal(out))
	ended := d.ok("watch", t.Name())
	require.Contains(t, ended, "committed: every step is done and stays")
	require.Contains(t, ended, "two: approved by "+currentUser()+": seen\n")
	require.Contains(t, ended, "to take it back while its undo records are kept: starter rollback "+t.Name()+"\n")

	late := d.do("approve", t.Name(), "two", "--yes")
	require.Equal(t, statusUsage, late.status)
	require.Contains(t, late.err, "is closed: nothing waits there, and nothing was sent")
}

func TestADecisionAboutSomethingElseIsRefused(t *testing.T) {
	d := newDesk(t)
	d.ok("run", d.file(gated), "--id", t.Name())
	d.until(t.Name(), atGate)
	c := &tasks.Client{Client: d.client}
	_, err := c.Approve(t.Context(), tasks.Run{ID: t.Name()},
		protocol.Decision{Step: "two", Digest: "sha256:old", Who: "eve"})
	require.ErrorContains(t, err, "approve decided nothing: digest")
	require.NoError(t,
		d.client.SignalWorkflow(t.Context(), t.Name(), "", protocol.SignalApprove,
			protocol.Decision{Step: "two", Digest: "sha256:old"}))
	require.Eventually(t,
		func() bool { return strings.Contains(d.ok("show", t.Name()), "ignored signal: approve: digest") }, time.Minute,
		50*time.Millisecond)
	d.ok("cancel", t.Name())
}

func TestWhatIsSaidOfATaskThatCommitsInPart(t *testing.T) {
	d := newDesk(t)
	out := normal(d.ok("run", d.file(`name: in part
steps:
  - {id: one, uses: fake.set, with: {key: a, value: x}}
  - {id: two, uses: fake.set, needs: [one], with: {key: b, value: y, fail: true}, on_failure: rollback_step}
  - {id: three, uses: fake.set, needs: [two], with: {key: c, value: z}}
  - {id: four, uses: fake.set, needs: [one], with: {key: d, value: w}}
`), "--id", t.Name(), "--watch"))
	out = strings.Replace(out, "restored T b is", "restored b is", 1) // on a slow machine an undo takes long enough to tell
	require.Contains(t, out, " T two fake.set failed and was rolled back: ActionDenied: b was set, but does not work\n")
	require.Contains(t, out, `committed in part: what is marked ! was skipped or undone, everything else stays
lasted: T

 STEP ACTION UNDO TOOK SEEN AFTERWARDS
 one fake.set stays set a to "x"
! two fake.set restored b is "" again
! three fake.set left-out
 four fake.set stays set d to "w"

total: 1 restored

two: rolled back, as its on_failure says: ActionDenied: b was set, but does not work
three: left out: it needs two

to take it back`)
}

func TestRejectUnwinds(t *testing.T) {
	d := newDesk(t)
	d.ok("run", d.file(gated), "--id", t.Name())
	d.until(t.Name(), atGate)
	out := d.ok("reject", t.Name(), "two", "--why", "not today")
	require.Contains(t, out, "rejected: task "+t.Name()+" unwinds")
	r := d.do("watch", t.Name())
	require.Equal(t, statusFailed, r.status)
	require.Contains(t, r.out, "cause: rejected at step two: step two was rejected by "+currentUser()+": not today")
	require.Contains(t, r.err, "starter: task "+t.Name()+": unwound: step two: step two was rejected by")
	require.Empty(t, d.world.get("a"), "taken back")
}

func TestCancelUnwinds(t *testing.T) {
	d := newDesk(t)
	d.ok("run", d.file(
		"name: waits\nsteps:\n  - {id: one, uses: fake.set, with: {key: a, value: x}}\n  - {id: two, uses: fake.wait}\n"),
		"--id", t.Name())
	<-d.world.waiting
	require.Contains(t, d.ok("cancel", t.Name()), "it unwinds")
	r := d.do("watch", t.Name())
	require.Equal(t, statusFailed, r.status)
	require.Contains(t, r.err, "unwound: canceled")
	require.Contains(t, r.out, "cause: the task was canceled")
	require.Empty(t, d.world.get("a"))
	again := d.do("cancel", t.Name())
	require.Equal(t, statusUsage, again.status)
	require.Contains(t, again.err, "there is nothing to cancel")
}

func TestResolveAParkedUndo(t *testing.T) {
	d := newDesk(t)
	d.ok("run", d.file(gated), "--id", t.Name())
	d.until(t.Name(), atGate)
	d.world.set("a", "mine") // somebody else's newer work
	d.ok("reject", t.Name(), "two", "--why", "no")
	s := d.until(t.Name(), parked)
	digest := string(s.Report.Steps[0].Digest)

	shown := d.ok("show", t.Name())
	require.Contains(t, shown, "starter resolve "+t.Name()+" one --do force   # overwrite exactly the drift that is shown")
	require.Regexp(t, `(?m)^one fake.set undo parked T set a to "x"$`, normal(shown), "no longer simply done")
	require.Equal(t, 1, d.shown(t.Name()).PendingUndos, "two has been undone")
	require.Eventually(t, func() bool {
		var found []tasks.Listed
		require.NoError(t, json.Unmarshal([]byte(d.ok("list", "--parked", "--limit", "1000", "-o", "json")), &found))
		i := slices.IndexFunc(found, func(l tasks.Listed) bool { return l.ID == t.Name() })
		return i >= 0 && found[i].Pending == 1
	}, waitFor, tick)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"one", "--do", "force"}, "nobody can be asked: nothing was sent; give --digest " + digest},
		{[]string{"two", "--do", "retry", "--yes"},
			"the undo of step two of task " + t.Name() + " is not parked, it is settled: nothing was sent; parked: one"},
		{[]string{"six", "--do", "retry", "--yes"}, `has no step "six" to undo`},
		{[]string{"one", "--do", "reset", "--yes"}, "nothing was sent; use retry, force, skip or accept"},
	} {
		r := d.do(append([]string{"resolve", t.Name()}, c.args...)...)
		require.Equal(t, statusUsage, r.status)
		require.Contains(t, r.err, c.want)
	}
	require.Empty(t, d.state(t.Name()).Ignored, "nothing was sent")

	out := d.ok("resolve", t.Name(), "one", "--do", "force", "--digest", digest, "--why", "old news")
	require.Contains(t, out, "parked: the undo of step one (fake.set) needs a person")
	require.Contains(t, out, "  | -x\n  | +mine\n")
	require.Contains(t, out, "resolved: force of step one")
	r := d.do("watch", t.Name())
	require.Contains(t, r.out, "one: force by "+currentUser()+": old news")
	require.Empty(t, d.world.get("a"))
}

func TestNothingIsForcedWithoutDrift(t *testing.T) {
	d := newDesk(t)
	d.world.breakUndo(true)
	d.ok("run", d.file(failing), "--id", t.Name())
	d.until(t.Name(), parked)
	r := d.do("resolve", t.Name(), "two", "--do", "force", "--yes")
	require.Equal(t, statusUsage, r.status)
	require.Contains(t, r.err, "step two has not drifted, so there is nothing to force")
	r = d.do("resolve", t.Name(), "two", "--do", "reset", "--yes")
	require.Equal(t, statusUsage, r.status)
	require.Contains(t, r.err, "fake.set has no known start to go back to: nothing was sent; use retry, skip or accept")
	shown := d.ok("show", t.Name())
	require.Contains(t, shown, "\nreport of "+t.Name()+"\nopen: it has not ended yet\n")
	require.NotContains(t, shown, "--do force")
	require.NotContains(t, shown, "--do reset")

	d.ok("resolve", t.Name(), "two", "--do", "accept", "--yes")
	d.until(t.Name(), func(s protocol.State) bool { return len(parkedSteps(s)) == 1 && parkedSteps(s)[0] == "one" })
	d.world.breakUndo(false)
	d.ok("resolve", t.Name(), "one", "--do", "retry", "--yes")
	r = d.do("watch", t.Name())
	require.Equal(t, statusFailed, r.status)
	require.Contains(t, r.out, "unwound with remains: what is marked ! is not as it was before")
}

func TestShowAndListTellOpenAndClosedTasks(t *testing.T) {
	d := newDesk(t)
	agent := "teller-of-two"
	file := d.file(gated)
	d.ok("run", file, "--id", agent+"-1", "--agent", agent)
	d.until(agent+"-1", atGate)

	list := func(args ...string) string {
		return normal(d.ok(append([]string{"list", "--agent", agent}, args...)...))
	}
	const head = "TASK NAME STATUS WAITS FOR AGENT STARTED LASTED\n"
	require.Eventually(t, func() bool {
		return list("--gate") == head+agent+"-1 Ship it! open gate of two "+agent+" DATE\n"
	}, waitFor, tick, "visibility follows")

	shown := d.ok("show", agent+"-1")
	require.Contains(t, shown, "task "+agent+"-1 · Ship it! · agent "+agent+" · waits at a gate")
	require.Contains(t, shown, "starter approve "+agent+"-1 two")

	d.ok("approve", agent+"-1", "two", "--yes")
	d.ok("watch", agent+"-1")
	d.do("run", d.file(failing), "--id", agent+"-2", "--agent", agent, "--watch")
	require.Eventually(t, func() bool {
		return list() == head+agent+"-2 fails unwound "+agent+" DATE T\n"+agent+"-1 Ship it! committed "+agent+" DATE T\n"
	}, waitFor, tick)
	require.Equal(t, head+agent+"-2 fails unwound "+agent+" DATE T\n", list("--status", "unwound"))
	require.Contains(t, list("--limit", "1"), "... more; see them with --limit\n")
	require.Contains(t, list("--gate"), "no matching tasks in namespace default")
	require.Contains(t, d.ok("list", "--agent", `o'br"ien\`), "no matching tasks in namespace default")

	var s protocol.State
	require.NoError(t, json.Unmarshal([]byte(d.ok("show", agent+"-2", "-o", "json")), &s))
	require.Equal(t, protocol.Closed, s.Phase)
	require.Equal(t, compensations.Unwound, s.Report.Status)
	require.Equal(t, []protocol.StepState{protocol.Done, protocol.StepFailed},
		[]protocol.StepState{s.Steps[0].State, s.Steps[1].State})
}

func TestShowOfAStepTellsItsOutputsAndItsUndo(t *testing.T) {
	d := newDesk(t)
	d.world.set("a", "before\nthat")
	d.do("run", d.file(failing), "--id", t.Name(), "--watch")
	require.Equal(t, `step one of task `+t.Name()+`: fake.set, done
 began DATE
 took T
 did set a to "x"
 undo restored: a is "before\nthat" again

outputs:
 before:
 | before
 | that
`, normal(d.ok("show", t.Name(), "one")))
	require.Contains(t, normal(d.ok("show", t.Name(), "two")), " failed ActionDenied: b was set, but does not work\n")
	var s tasks.Step
	require.NoError(t, json.Unmarshal([]byte(d.ok("show", t.Name(), "one", "-o", "json")), &s))
	require.Equal(t, "before\nthat", s.Outputs["before"])
	require.Equal(t, activities.Restored, s.Undo.Outcome)
	r := d.do("show", t.Name(), "six")
	require.Equal(t, statusUsage, r.status)
	require.Contains(t, r.err, `has no step "six"; it has one, two`)
}

func TestUnknownTasks(t *testing.T) {
	d := newDesk(t)
	for _, args := range [][]string{{"show", "none"}, {"watch", "none"}, {"cancel", "none"}, {"approve", "none", "x"},
		{"resolve", "none", "x", "--do", "skip"}} {
		r := d.do(args...)
		require.Equal(t, statusUsage, r.status)
		require.Contains(t, r.err, `there is no task "none" in namespace default`)
	}
}

func TestShowWithoutAWorkerReadsTheHistory(t *testing.T) {
	d := newDesk(t)
	d.ok("run", d.file(gated), "--id", t.Name())
	d.until(t.Name(), atGate)
	d.leaveQueue()
	shown := d.ok("show", t.Name())
	require.Contains(t, shown, "read from the history: no worker answers on queue")
	require.Regexp(t, `(?m)^one +fake.set +done .* set a to "x"$`, shown)
	require.Regexp(t, `(?m)^two +fake.set +at-gate`, shown)

	r := d.do("approve", t.Name(), "two", "--yes")
	require.Equal(t, statusFailed, r.status)
	require.Contains(t, r.err, "cannot be shown, so nothing was sent: no worker answers")

	require.NoError(t, d.client.TerminateWorkflow(t.Context(), t.Name(), "", "test"))
	shown = d.ok("show", t.Name())
	require.Contains(t, shown, "terminated from outside: nothing was unwound by this run")
	require.Regexp(t, `(?m)^one +fake.set +done`, shown)
	watched := d.do("watch", t.Name())
	require.Equal(t, statusFailed, watched.status)
	require.Contains(t, watched.err, "terminated from outside")
}

func TestAClosedTaskIsShownWithoutAWorker(t *testing.T) {
	d := newDesk(t)
	d.do("run", d.file(failing), "--id", t.Name(), "--watch")
	d.leaveQueue()
	require.Contains(t, d.ok("show", t.Name()), "unwound: every step that acted was undone")
	r := d.do("watch", t.Name())
	require.Equal(t, statusFailed, r.status)
}

func TestRunWithoutAWorkerSaysSo(t *testing.T) {
	d := newDesk(t)
	d.leaveQueue()
	r := d.do("run", d.file(good), "--id", t.Name())
	require.Equal(t, statusOK, r.status)
	require.Contains(t, r.out, "task "+t.Name())
	require.Contains(t, r.err, "started, but waiting: no worker answers on queue")
	shown := d.ok("show", t.Name())
	require.Contains(t, shown, "task "+t.Name()+" · set two · not begun: no worker has taken it yet\n")
	require.NotContains(t, shown, "compiling")
	require.NoError(t, d.client.TerminateWorkflow(t.Context(), t.Name(), "", "test"))
}

func TestCompletionKnowsOpenTasksAndTheStepsThatWait(t *testing.T) {
	d := newDesk(t)
	d.ok("run", d.file(gated), "--id", t.Name())
	d.until(t.Name(), atGate)
	require.Eventually(t, func() bool {
		return regexp.MustCompile("(?m)^" + t.Name() + "$").MatchString(d.ok("__complete", "approve", ""))
	}, waitFor, tick)
	require.Contains(t, d.ok("__complete", "approve", t.Name(), ""), "two\n")
	d.ok("cancel", t.Name())
}

func TestPlanTellsWhatEachStepWouldDoAndTouchesNothing(t *testing.T) {
	d := newDesk(t)
	file := d.file(`name: plan me
keep: 2h
steps:
  - {id: one, uses: fake.set, with: {key: a, value: x}}
  - {id: two, uses: fake.set, with: {key: b, value: '${{ steps.one.outputs.before }}'}, gate: ask}
`)
	out := d.ok("plan", file)
	require.Regexp(t, `^plan of "plan me": 2 steps, nothing was touched

1. one  fake.set
  change    set a from "" to "x"
  risk      medium: somebody reads it
  undo      snapshot: puts the old value back
  horizon   2h after the end of the task
  loses     who read it meanwhile
  \| -
  \| \+x
  asks      nobody

2. two  fake.set
  needs     one
  unknown   .*steps.one.outputs.before.*
  asks      a person, because the task file asks
$`, out)
	require.Empty(t, d.world.get("a"))
	var plan protocol.Plan
	require.NoError(t, json.Unmarshal([]byte(d.ok("plan", file, "-o", "json")), &plan))
	require.Len(t, plan.Steps, 2)
}

func TestANamespaceWithoutTheSearchAttributesIsToldWithTheCommand(t *testing.T) {
	c := servertest.Client(t)
	_, err := c.WorkflowService().RegisterNamespace(t.Context(), &workflowservice.RegisterNamespaceRequest{
		Namespace: "bare", WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
	})
	require.NoError(t, err)
	t.Setenv("TEMPORAL_ADDRESS", servertest.Shared(t).Address)
	t.Setenv("TEMPORAL_NAMESPACE", "bare")
	for _, args := range [][]string{{"run", write(t, good)}, {"list", "--status", "open"}} {
		var r typed
		require.Eventually(t, func() bool { // the server learns of a new namespace by and by
			r = do(t.Context(), fakeOptions(), args...)
			return strings.Contains(r.err, "lacks search attributes")
		}, waitFor, tick, r.err)
		require.Equal(t, statusFailed, r.status)
		require.Contains(t, r.err,
			"temporal operator search-attribute create --namespace bare --name UnwindStatus --type Keyword")
		require.NotContains(t, r.out, "task ")
	}
}

func TestAnUnknownNamespaceIsNamed(t *testing.T) {
	t.Setenv("TEMPORAL_ADDRESS", servertest.Shared(t).Address)
	t.Setenv("TEMPORAL_NAMESPACE", "nowhere")
	r := do(t.Context(), fakeOptions(), "list")
	require.Equal(t, statusFailed, r.status)
	require.Contains(t, r.err, `has no namespace "nowhere"`)
	require.Contains(t, r.err, "set TEMPORAL_NAMESPACE to an existing one")
}

func TestWorkersThatFailToRunATaskAreToldApartFromNone(t *testing.T) {
	d := newDesk(t)
	d.stopWorker()
	w := worker.New(d.client, d.queue, worker.Options{})
	w.RegisterWorkflowWithOptions(func(workflow.Context, json.RawMessage) error { panic("a mistake") },
		workflow.RegisterOptions{Name: protocol.AgentTaskType})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	d.ok("run", d.file(good), "--id", t.Name())
	require.Eventually(t, func() bool {
		return strings.Contains(d.ok("show", t.Name()), "read from the history: its workers fail to run it")
	}, waitFor, tick)
	require.NoError(t, d.client.TerminateWorkflow(t.Context(), t.Name(), "", "test"))
}

const askingFile = `
name: Ship it!
steps:
  - {id: one, uses: fake.set, with: {key: a, value: x}}
  - {id: two, uses: fake.set, with: {key: b, value: y, fail: true}, on_failure: ask}
  - {id: three, uses: fake.set, with: {key: c, value: z}}
`

func TestAStepThatFailsIsCorrectedByAPersonAndTheTaskGoesOn(t *testing.T) {
	d := newDesk(t)
	id := t.Name()
	e := d.do("run", d.file(askingFile), "--id", id, "--watch")
	require.Equal(t, statusNeedsPerson, e.status)
	require.Contains(t, e.err, "waits for a person: step two failed and is parked")
	require.Contains(t, e.out, "starter resolve "+id+" two --do retry ")
	require.Regexp(t, `two +fake\.set +failed and is parked: .*does not work`, e.out)
	require.Empty(t, d.world.get("b"), "it is undone")
	require.Contains(t, d.ok("show", id), "parked: step two (fake.set) failed and needs a person")
	require.Eventually(t, func() bool {
		return strings.Contains(normal(d.ok("list", "--needs-person")), id+"\n Ship it! open parked: two ")
	}, waitFor, tick)
	for want, args := range map[string][]string{
		"--do force: does not fit step two, which failed: nothing was sent; use retry, skip, unwind": {"two", "--do",
			"force"},
		"--with: only --do retry takes other parameters": {"two", "--do", "skip",
			"--with", "value=y"},
		"unknown parameter; did you mean value?": {"two", "--do", "retry",
			"--with", "valu=y"},
		"give one FILE alone, or KEY=VALUE": {"two", "--do", "retry",
			"--with", "value=y", "--with", "file"},
		"step one of task " + id +
			" is not parked after a failure": {"one", "--do", "unwind"},
	} {
		e := d.do(append([]string{"resolve", id, "--yes"}, args...)...)
		require.NotEqual(t, statusOK, e.status, args)
		require.Contains(t, e.err, want)
	}
	d.ok("resolve", id, "two", "--do", "retry", "--with", "fail=false", "--yes", "--why", "it works now")
	out := d.ok("watch", id)
	require.Contains(t, normal(out), "retry by ME (changed: fail): it works now")
	for _, told := range []string{normal(out), normal(d.ok("show", id))} {
		require.Contains(t, told, "two (try 1): retry by ME (changed: fail): it works now")
		require.NotContains(t, told, "two (try 2): ", "nothing was said about it")
	}
	two := normal(d.ok("show", id, "two"))
	require.Contains(t, two, "fake.set, done\n")
	require.Contains(t, two, "try 2\n")
	steps := d.shown(id).Steps
	require.Equal(t, []any{3, "two", 2, protocol.Done}, []any{len(steps), steps[1].ID, steps[1].Try, steps[1].State})
	require.Contains(t, two, "note in try 1: retry by ME (changed: fail): it works now\n")
	require.Equal(t, []string{"x", "y", "z"}, []string{d.world.get("a"), d.world.get("b"), d.world.get("c")})
}

// TestAListFitsALine: whatever tasks are called, a line of a list has at most 120 columns, and says
// how many wait for a person.
func TestAListFitsALine(t *testing.T) {
	d := newDesk(t)
	agent := "lister-" + strings.Repeat("l", 60)
	long := strings.Repeat("very-", 36) + "long"
	steps := func(name, gate string) string {
		text := "name: " + name + "\nsteps:\n"
		for i := range 3 {
			text += fmt.Sprintf("  - {id: step-%d-%s, uses: fake.set, needs: [], with: {key: k%d, value: x}%s}\n", i,
				strings.Repeat("s", 30), i, gate)
		}
		return text
	}
	d.ok("run", d.file(steps(long, "")), "--id", long, "--agent", agent, "--watch")
	d.ok("run", d.file(steps("gates "+long, ", gate: ask")), "--id", "gates-"+long, "--agent", agent)
	d.until("gates-"+long, func(s protocol.State) bool { return len(s.Gates) == 3 })
	for i := range 3 {
		d.world.set(fmt.Sprint("k", i), "somebody else's")
	}
	d.ok("rollback", long)
	listed := func() (found []tasks.Listed) {
		require.NoError(t, json.Unmarshal([]byte(d.ok("list", "--agent", agent, "-o", "json")), &found))
		return found
	}
	require.Eventually(t, func() bool {
		all := listed()
		return len(all) == 3 && all[0].Parks == 3 && all[1].Gates == 3
	}, waitFor, tick)
	for line := range strings.SplitSeq(strings.TrimSpace(d.ok("list", "--agent", agent)), "\n") {
		require.LessOrEqual(t, utf8.RuneCountInString(line), 120, line)
	}
	require.Equal(t, []string{long, ""}, []string{listed()[0].Of, listed()[0].Part})
	require.Contains(t, d.ok("list", "--agent", agent), "\nrollback of "+long[:80])
	for i := range 3 {
		d.ok("resolve", listed()[0].ID, fmt.Sprintf("step-%d-%s", i, strings.Repeat("s", 30)), "--do", "accept", "--yes")
	}
	d.ok("cancel", "gates-"+long)
}
