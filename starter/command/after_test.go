package command

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

const saved = `name: set two
steps:
  - {id: one, uses: fake.set, with: {key: a, value: x}}
  - {id: two, uses: fake.set, with: {key: b, value: y}, savepoint: half}
`

func (d *desk) terminate(id string) {
	require.NoError(d, d.client.TerminateWorkflow(d.Context(), id, "", "a test"))
}

// runID is that of the only run of a task.
func (d *desk) runID(id string) string {
	r, err := d.client.DescribeWorkflowExecution(d.Context(), id, "")
	require.NoError(d, err)
	return r.WorkflowExecutionInfo.FirstRunId
}

// idOf is the id of the workflow that does something about a task.
func (d *desk) idOf(verb, task string) string { return verb + "-" + task + "-" + d.runID(task) }

// values are those of the fake world.
func (d *desk) values() [2]string { return [2]string{d.world.get("a"), d.world.get("b")} }

func TestWhatCannotBeDoneAfterTheEndIsStatusTwoAndStartsNothing(t *testing.T) {
	d := newLoneDesk(t) // it sees all that is there
	file := d.file(saved)
	name := func(s string) string { return t.Name() + "-" + s }
	d.ok("run", file, "--id", name("done"), "--watch")
	d.ok("run", d.file(gated), "--id", name("alive"))
	d.until(name("alive"), atGate)
	d.ok("run", d.file(gated), "--id", name("dead"))
	d.until(name("dead"), atGate)
	d.terminate(name("dead"))
	require.Equal(t, statusFailed, d.do("run", d.file(failing), "--id", name("unwound"), "--watch").status)
	_, err := d.client.ExecuteWorkflow(t.Context(),
		client.StartWorkflowOptions{ID: name("foreign"), TaskQueue: "nobody's"}, "SomebodyElses")
	require.NoError(t, err)
	d.continued(name("newer"), protocol.Carry{Version: protocol.CarryVersion + 1})
	before := d.list()

	for line, want := range map[string]string{
		"recover none": `there is no task "none" in namespace default; ` +
			"`starter list` shows the tasks",
		"recover none --take-over": `there is no task "none"`,
		"recover @foreign":         "is a workflow of type SomebodyElses, and no task",
		"recover @alive": "@alive is running: cancel it and it unwinds by itself; where it is " +
			"stuck, take it over: `starter cancel @alive`, or `starter recover @alive --take-over`",
		"recover @newer --take-over": "recorded by a version that this one cannot undo",
		"recover @done": "@done has ended by itself as committed: there is nothing to recover; to " +
			"take it back, roll it back; `starter show @done`",
		"recover @unwound": "@unwound has ended by itself as unwound: there is nothing to recover; " +
			"`starter show @unwound`",
		"rollback none":     `there is no task "none"`,
		"rollback @foreign": "is a workflow of type SomebodyElses, and no task",
		"rollback @alive": "task @alive is running: cancel it and it unwinds by itself; `starter " +
			"watch @alive`",
		"rollback @dead": "task @dead was terminated and has not unwound: recover it; `starter " +
			"recover @dead`",
		"rollback @unwound": "task @unwound has ended as unwound: there is nothing to roll back; " +
			"`starter show @unwound`",
		"rollback @done --to no":              `task @done has no savepoint "no"; it has half`,
		"rollback @done --step no":            `task @done has done no step "no"; it has done one, two`,
		"rollback @done --to half --step one": "give --to or --step, not both",
		"redo none":                           `there is no task "none"`,
		"redo @foreign":                       "is a workflow of type SomebodyElses, and no task",
		"redo @alive":                         "task @alive is running: it was not rolled back; `starter watch @alive`",
		"redo @done": "task @done was not rolled back: there is nothing to redo; `starter " +
			"show @done`",
	} {
		t.Run(line, func(t *testing.T) {
			mine := func(s string) string { return strings.ReplaceAll(s, "@", d.Name()+"-") }
			r := d.do(strings.Fields(mine(line))...)
			require.Equal(t, statusUsage, r.status, r.out)
			require.Empty(t, r.out)
			require.Contains(t, r.err, mine(want))
		})
	}
	require.Equal(t, before, d.list(), "nothing was started")
	require.True(t, atGate(d.state(name("alive"))), "nothing was touched")
	d.ok("cancel", name("alive"))
}

// continued starts a task whose first run hands this over to a second one, on a queue that nobody
// serves.
func (d *desk) continued(id string, over protocol.Carry) {
	d.Helper()
	first := worker.New(d.client, id+"-first", worker.Options{})
	first.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
		return workflow.NewContinueAsNewError(workflow.WithWorkflowTaskQueue(ctx, "nobody's"), protocol.AgentTaskType, nil,
			over)
	}, workflow.RegisterOptions{Name: protocol.AgentTaskType})
	require.NoError(d, first.Start())
	defer first.Stop()
	run, err := d.client.ExecuteWorkflow(d.Context(), client.StartWorkflowOptions{
		ID: id, TaskQueue: id + "-first", TypedSearchAttributes: protocol.ServingAttributes("bot", ""),
	}, protocol.AgentTaskType)
	require.NoError(d, err)
	require.Eventually(d, func() bool {
		now, err := d.client.DescribeWorkflowExecution(d.Context(), id, "")
		return err == nil && now.GetWorkflowExecutionInfo().GetExecution().GetRunId() != run.GetRunID()
	}, time.Minute, 10*time.Millisecond)
}

// list are the ids of the tasks on this test's queue, and of what came after them.
func (d *desk) list() string { return d.ok("list", "--limit", "1000", "--agent", "bot") }

func TestRecoverUnwindsATaskThatWasTerminated(t *testing.T) {
	d := newDesk(t)
	d.ok("run", d.file(gated), "--id", t.Name())
	d.until(t.Name(), atGate)
	d.terminate(t.Name())
	require.Equal(t, "x", d.world.get("a"))
	require.Contains(t, d.ok("show", t.Name()),
		"nothing was unwound by this run; `starter recover "+t.Name()+"` unwinds it")

	id := d.idOf("recover", t.Name())
	out := d.ok("recover", t.Name(), "--watch")
	require.Contains(t, out, t.Name()+" was terminated; "+id+" unwinds it\n")
	require.Contains(t, normal(out), "one fake.set undo: restored: a is \"\" again\n")
	require.Contains(t, out, "unwound: every step that acted was undone")
	require.Equal(t, [2]string{}, d.values())

	again := d.do("recover", t.Name())
	require.Equal(t, statusUsage, again.status)
	require.Contains(t, again.err, t.Name()+" was already recovered by "+id+"; `starter watch "+id+"`")
	require.Contains(t, d.ok("watch", id), "unwound: every step that acted was undone")
	require.Contains(t, d.ok("show", id, "-o", "json"), `"outcome": "restored"`)
	require.Eventually(t,
		func() bool { return strings.Contains(d.ok("list", "--limit", "1000", "-o", "json"), `"id": "`+id+`"`) }, waitFor,
		tick)
}

func TestTakingOverEndsATaskThatIsStuck(t *testing.T) {
	d := newDesk(t)
	d.ok("run", d.file(gated), "--id", t.Name())
	d.until(t.Name(), atGate)
	require.Contains(t, d.ok("recover", t.Name(), "--take-over", "--watch"), "unwound: every step that acted was undone")
	require.Equal(t, [2]string{}, d.values())
	require.Contains(t, d.ok("show", t.Name()), "terminated from outside")
}

func TestARecoveryThatWaitsForAPersonIsResolvedAndNotCanceled(t *testing.T) {
	d := newDesk(t)
	d.ok("run", d.file(gated), "--id", t.Name())
	d.until(t.Name(), atGate)
	d.terminate(t.Name())
	d.world.set("a", "somebody else's")
	id := d.idOf("recover", t.Name())
	require.Contains(t, d.ok("recover", t.Name()), "follow it: starter watch "+id)
	d.until(id, parked)
	again := d.do("recover", t.Name())
	require.Equal(t, statusUsage, again.status)
	require.Contains(t, again.err, t.Name()+" is already being recovered by "+id)
	elsewhere := d.do("resolve", t.Name(), "one", "--do", "accept", "--yes")
	require.Equal(t, statusUsage, elsewhere.status)
	require.Contains(t, elsewhere.err,
		"task "+t.Name()+" is closed: nothing waits there, and nothing was sent; "+id+
			" unwinds it, decide there: `starter resolve "+id+" one --do retry`")
	canceled := d.do("cancel", id)
	require.Equal(t, statusUsage, canceled.status)
	require.Contains(t, canceled.err, id+" undoes a task and cannot be cancelled")

	d.terminate(id)
	second := "recover-" + t.Name() + "-" + d.runID(id)
	require.Contains(t, d.ok("recover", t.Name()), id+" was terminated; "+second+" unwinds it")
	d.until(second, parked)
	d.ok("resolve", second, "one", "--do", "accept", "--yes")
	left := d.do("watch", second)
	require.Equal(t, statusFailed, left.status)
	require.Contains(t, left.out, "unwound with remains")
	require.Contains(t, left.err, "not everything is as it was before")
	require.Equal(t, "somebody else's", d.world.get("a"))
}

// The run that forced it is terminated before its report: what was overwritten is told by the
// recovery.
func TestWhatAForceOverwroteIsToldByARecovery(t *testing.T) {
	d := newDesk(t)
	d.ok("run", d.file(`name: forces
steps:
  - {id: one, uses: fake.set, with: {key: a, value: x}}
  - {id: two, uses: fake.set, with: {key: b, value: y}}
  - {id: last, uses: fake.set, with: {key: c, value: z}, gate: ask}
`), "--id", t.Name())
	d.until(t.Name(), atGate)
	d.world.set("a", "keep me")
	d.world.set("b", "a colleague's")
	d.ok("reject", t.Name(), "last", "--why", "no")
	parkOf := func(id, step string) string {
		s := d.until(id, func(s protocol.State) bool {
			return s.Report != nil && slices.ContainsFunc(s.Report.Steps, func(r compensations.StepReport) bool {
				return r.Step == step && r.State == string(compensations.Parked)
			})
		})
		i := slices.IndexFunc(s.Report.Steps, func(r compensations.StepReport) bool { return r.Step == step })
		return string(s.Report.Steps[i].Digest)
	}
	d.ok("resolve", t.Name(), "two", "--do", "force", "--digest", parkOf(t.Name(), "two"))
	parkOf(t.Name(), "one")
	require.Empty(t, d.world.get("b"), "it is overwritten")
	d.terminate(t.Name())
	d.ok("recover", t.Name())
	id := d.idOf("recover", t.Name())
	parkOf(id, "one")
	d.ok("resolve", id, "one", "--do", "accept", "--yes")
	told := d.do("watch", id)
	require.Contains(t, told.out, "a colleague's")
	i := slices.IndexFunc(d.shown(id).Report.Steps, func(r compensations.StepReport) bool { return r.Step == "two" })
	require.Equal(t, "-y\n+a colleague's\n", d.shown(id).Report.Steps[i].Drift.Diff)
}

func TestAParkedRollbackIsNamedWhereItsTaskIsToBeResolved(t *testing.T) {
	d := newDesk(t)
	d.ok("run", d.file("name: set one\nkeep: 1h\nsteps:\n  - {id: one, uses: fake.set, with: {key: a, value: x}}\n"),
		"--id", t.Name(), "--watch")
	d.world.set("a", "somebody else's")
	d.ok("rollback", t.Name())
	id := d.idOf("rollback", t.Name())
	d.until(id, parked)
	r := d.do("resolve", t.Name(), "one", "--do", "accept", "--yes")
	require.Equal(t, statusUsage, r.status)
	require.Contains(t, r.err, id+" rolls it back, decide there: `starter resolve "+id+" one --do retry`")
	require.Contains(t, d.ok("show", id, "one"), "step one of task "+id+": fake.set, parked\n")
	require.Contains(t, d.do("show", id, "two").err, `has no step "two"; it has one`)
	d.ok("resolve", id, "one", "--do", "accept", "--yes")
	d.do("watch", id)

	// Nothing of it was undone, so there is nothing to redo.
	require.Contains(t, d.ok("show", t.Name()), " · committed, rolled back with remains\n")
	require.NotContains(t, d.ok("show", t.Name()), "\nnext: ")
	require.Contains(t, d.do("redo", t.Name(), "--watch").out, "has undone no step of task "+t.Name())
}

func TestATaskIsRolledBackAndRedone(t *testing.T) {
	d := newDesk(t)
	d.ok("run", d.file(saved), "--id", t.Name(), "--watch")
	require.Equal(t, [2]string{"x", "y"}, d.values())
	id := d.idOf("rollback", t.Name())

	out := d.ok("rollback", t.Name(), "--to", "half", "--watch", "--why", "too early")
	require.Contains(t, out, id+"-to-half rolls back task "+t.Name()+"\n")
	require.Contains(t, out, "to savepoint half: too early")
	require.Equal(t, [2]string{"x", ""}, d.values())
	require.Equal(t, "step two of task "+id+"-to-half: fake.set, settled\n  undo  restored: b is \"\" again\n",
		d.ok("show", id+"-to-half", "two"))
	require.Contains(t, d.ok("redo", id+"-to-half", "--watch"), "redone: what was rolled back is back in place")
	require.Equal(t, [2]string{"x", "y"}, d.values())

	redone := d.do("redo", id+"-to-half")
	require.Equal(t, statusUsage, redone.status)
	require.Contains(t, redone.err, id+"-to-half was already redone by redo-")

	// The name of the task leads to the newest end of the chain, again and again.
	for range 2 {
		again := d.ok("rollback", t.Name(), "--to", "half", "--watch")
		require.Contains(t, again, " rolls back task redo-"+t.Name())
		require.Equal(t, [2]string{"x", ""}, d.values())
		require.Contains(t, d.ok("redo", t.Name(), "--watch"), "redone: what was rolled back is back in place")
		require.Equal(t, [2]string{"x", "y"}, d.values())
	}
}

func TestAStepIsRolledBackWithWhatBuildsOnIt(t *testing.T) {
	d := newDesk(t)
	d.ok("run", d.file(saved), "--id", t.Name(), "--watch")
	require.Contains(t, d.ok("rollback", t.Name(), "--step", "one", "--watch"),
		"unwound: every step that acted was undone")
	require.Equal(t, [2]string{}, d.values())
	require.Contains(t, d.ok("redo", t.Name(), "--watch"), "redone")
	require.Equal(t, [2]string{"x", "y"}, d.values())
}

func TestShowAndListTellHowATaskStandsNow(t *testing.T) {
	d := newDesk(t)
	const agent = "teller-of-now"
	d.ok("run", d.file(saved), "--id", t.Name(), "--watch", "--agent", agent)
	lists := func(want string) {
		t.Helper()
		require.Eventually(t, func() bool {
			return strings.Contains(normal(d.ok("list", "--agent", agent)), want)
		}, waitFor, tick, "visibility follows")
	}
	shows := func(lines ...string) {
		t.Helper()
		require.Eventually(t, func() bool {
			shown, ok := normal(d.ok("show", t.Name())), true
			for _, line := range lines {
				ok = ok && strings.Contains(shown, line+"\n")
			}
			return ok
		}, waitFor, tick, "visibility follows the rollback of a part: %s", d.ok("show", t.Name()))
	}
	back := d.idOf("rollback", t.Name()) + "-step-two"
	d.ok("rollback", t.Name(), "--step", "two", "--watch")
	shows("task "+t.Name()+" · set two · agent "+agent+" · committed, rolled back in part",
		"DATE: "+back+" rolls back "+t.Name()+" step two: unwound", "next: starter redo "+back)
	lists("rollback of " + t.Name() + " step two\n unwound " + agent + " DATE T\n" + t.Name() +
		"\n set two committed, rolled back in part " + agent + " DATE T\n")
	require.Contains(t, d.ok("show", back), "\nrolls back "+t.Name()+" step two\n")
	require.Contains(t, d.ok("show", t.Name()),
		"\nas it was at its end; since then: rolled back in part\nreport of "+t.Name()+"\n")

	d.ok("redo", back, "--watch")
	again := "redo-" + t.Name() + "-" + d.runID(back)
	shows("task "+t.Name()+" · set two · agent "+agent+" · committed, redone",
		"DATE: "+again+" redoes "+back+" step two: redone", "next: starter rollback "+again)
	lists("redo of " + t.Name() + " step two\n redone " + agent + " DATE T\n")
	lists(t.Name() + "\n set two committed, redone " + agent + " DATE T\n")

	var standing tasks.Standing
	require.NoError(t, json.Unmarshal([]byte(d.ok("show", t.Name(), "-o", "json")), &standing))
	require.Equal(t, []string{"redone", again, "starter rollback " + again},
		[]string{standing.Now, standing.By, standing.Next})
	require.Equal(t, compensations.Committed, standing.Report.Status)
	require.Len(t, standing.After, 2)
	var listed []tasks.Listed
	require.NoError(t, json.Unmarshal([]byte(d.ok("list", "--agent", agent, "-o", "json")), &listed))
	require.Len(t, listed, 3)
	require.Equal(t, [3]string{t.Name(), "redone", again}, [3]string{listed[2].ID, listed[2].Now, listed[2].By})
	require.Contains(t, d.ok("list", "--agent", agent, "--since", "1h"), "redo of "+t.Name())
	require.Contains(t, d.ok("list", "--agent", agent, "--since", "1ms"), "no matching tasks")
	require.Equal(t, "[]\n", d.ok("list", "--agent", agent, "--since", "1ms", "-o", "json"))
}

func TestWhatAPivotHasMadeFinalIsNotOfferedToBeRolledBack(t *testing.T) {
	d := newDesk(t)
	r := d.do("run", d.file(`name: point of no return
steps:
  - {id: one, uses: fake.set, with: {key: a, value: x}, pivot: true}
  - {id: two, uses: fake.set, with: {key: b, value: y, fail: true}}
`), "--id", t.Name(), "--watch")
	require.Equal(t, statusFailed, r.status)
	require.Contains(t, r.out, "committed in part")
	require.NotContains(t, r.out, "starter rollback")
	require.Contains(t, d.ok("show", t.Name(), "-o", "json"), `"status": "partly-committed"`)
	require.NotContains(t, d.ok("show", t.Name(), "-o", "json"), `"next"`)
	r = d.do("rollback", t.Name())
	require.Equal(t, statusUsage, r.status)
	require.Contains(t, r.err,
		"nothing of task "+t.Name()+
			" can be rolled back: what it did up to its pivot stays, and nothing after that is in place")
}

func TestTheSuggestedCommandWorksAfterEveryChain(t *testing.T) {
	d := newDesk(t)
	d.ok("run", d.file(saved), "--id", t.Name(), "--watch")
	next := func() []string {
		var s tasks.Standing
		require.NoError(t, json.Unmarshal([]byte(d.ok("show", t.Name(), "-o", "json")), &s))
		require.NotEmpty(t, s.Next)
		return strings.Fields(s.Next)[1:]
	}
	require.Equal(t, []string{"rollback", t.Name()}, next())
	d.ok("rollback", t.Name(), "--to", "half", "--watch")
	require.Eventually(t, func() bool { return next()[0] == "redo" }, waitFor, tick,
		"visibility follows the rollback of a part")
	d.ok("rollback", t.Name(), "--watch") // what is left of it
	require.Equal(t, [2]string{}, d.values())
	for i, want := range []struct {
		verb   string
		values [2]string
	}{
		{"redo", [2]string{"x", ""}}, {"rollback", [2]string{}}, {"redo", [2]string{"x", ""}}, {"rollback", [2]string{}},
	} {
		command := next()
		require.Equal(t, want.verb, command[0], "%d: %v", i, command)
		d.ok(append(command, "--watch")...)
		require.Equal(t, want.values, d.values(), "%d: %v", i, command)
		refused := d.do(want.verb, t.Name()) // what was done just now cannot be done again
		require.Equal(t, statusUsage, refused.status, refused.out)
		require.Contains(t, refused.err, "; `starter "+strings.Join(next(), " ")+"`")
	}
}

func TestIDsAreCompletedByWhatCanBeDoneWithThem(t *testing.T) {
	d := newDesk(t)
	done, dead := t.Name()+"-done", t.Name()+"-dead"
	d.ok("run", d.file(saved), "--id", done, "--watch")
	d.ok("run", d.file(gated), "--id", dead)
	d.until(dead, atGate)
	d.terminate(dead)
	d.ok("rollback", done, "--watch")
	complete := func(command string) string {
		return d.ok(cobra.ShellCompRequestCmd, command, t.Name()) +
			d.ok(cobra.ShellCompRequestCmd, command, d.idOf("rollback", done))
	}
	for command, want := range map[string]string{"recover": dead, "rollback": done, "redo": d.idOf("rollback", done)} {
		require.Eventually(t, func() bool { return strings.Contains(complete(command), want+"\n") }, waitFor, tick, command)
	}
	require.NotContains(t, complete("recover"), done)
	require.NotContains(t, complete("rollback"), dead)
}

// TestWhatAMessageNamesWorks: after each ending, partial or not, the command that is printed at the
// end is carried out as it stands.
func TestWhatAMessageNamesWorks(t *testing.T) {
	d := newDesk(t)
	printed := regexp.MustCompile(`(?m)(?:to take it back while its undo records are kept: |^next: )starter (.+)$`)
	command := func(out string) []string {
		t.Helper()
		found := printed.FindAllStringSubmatch(out, -1)
		require.NotEmpty(t, found, out)
		return strings.Fields(found[len(found)-1][1])
	}
	shown := func() string { return d.ok("show", t.Name()) }
	until := func(now string) {
		t.Helper()
		require.Eventually(t, func() bool { return strings.Contains(shown(), " · committed, "+now+"\n") }, waitFor, tick,
			"visibility follows: %s", shown())
	}
	out := d.ok("run", d.file(`name: in part
steps:
  - {id: one, uses: fake.set, with: {key: a, value: x}}
  - {id: two, uses: fake.set, with: {key: b, value: y}, on_failure: rollback_step, savepoint: half}
`), "--id", t.Name(), "--watch")
	require.Equal(t, []string{"rollback", t.Name()}, command(out))
	d.ok("rollback", t.Name(), "--to", "half", "--watch") // a part
	until("rolled back in part")
	out = d.ok(append(command(shown()), "--watch")...)
	require.Contains(t, out, "redone: what was rolled back is back in place")
	d.ok(append(command(out), "--watch")...) // the part again, and then the rest
	d.ok("rollback", t.Name(), "--watch")
	require.Equal(t, [2]string{}, d.values())

	d.world.fail("b")
	until("rolled back")
	out = d.ok(append(command(shown()), "--watch")...)
	require.Equal(t, [2]string{"x", ""}, d.values(), out)
	back := d.ok(append(command(out), "--watch")...)
	require.Contains(t, back, "unwound: every step that acted was undone")
	require.Equal(t, [2]string{}, d.values())
}
