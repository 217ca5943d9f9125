package host_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/seed-62bf7108/unwind/activities"
	world "github.com/seed-62bf7108/unwind/activities/sqlite"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

const people = "groups: {dba: [ann, bob], sre: [cy]}\nrules:\n"

// The rules of these tests.
const (
	allowAll  = people + "  - {name: trusted, when: 'step.world == \"sqlite\"', then: allow, why: they are toys}\n"
	denyBig   = people + "  - {name: big-deletes, when: 'change.counts.exists(c, c.removed > 10)', then: deny, why: too many rows}\n"
	askTwo    = people + "  - {name: big-deletes, when: 'change.counts.exists(c, c.removed > 10)', then: ask, from: [{group: dba}, {group: sre}]}\n"
	askReader = people + "  - {name: reads, when: 'step.action == \"sqlite.query\"', then: ask, from: [{group: dba}]}\n"
)

func policyFile(t *testing.T, content string) (file string) {
	file = filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	return file
}

// ruled is a worker with a policy, and a database with twenty rows.
type ruled struct {
	*stage
	database string
}

func serveRuled(t *testing.T, rules string) ruled {
	root := t.TempDir()
	r := ruled{serve(t, host.Config{
		Worlds: []activities.Settings{&world.Settings{Roots: []string{root}}}, Policy: policyFile(t, rules),
	}, host.Options{Register: func(to worker.Registry) { to.RegisterWorkflow(act) }}), filepath.Join(root, "shop.db")}
	r.fill()
	return r
}

// fill makes the database.
func (r ruled) fill() {
	conn, err := sqlite.OpenConn(r.database)
	require.NoError(r, err)
	require.NoError(r, sqlitex.ExecuteScript(conn, `CREATE TABLE plan (id INTEGER PRIMARY KEY);
		INSERT INTO plan WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20) SELECT i FROM n;`, nil))
	require.NoError(r, conn.Close())
}

// rows is how many rows there are.
func (r ruled) rows() (n int) {
	conn, err := sqlite.OpenConn(r.database, sqlite.OpenReadOnly)
	require.NoError(r, err)
	defer conn.Close()
	n, err = sqlitex.ResultInt(conn.Prep("SELECT count(*) FROM plan"))
	require.NoError(r, err)
	return n
}

// run starts a task of one step, by an agent.
func (r ruled) run(uses, sql string) client.WorkflowRun {
	return r.start(map[string]any{"name": "tidy", "agent": "bot", "steps": []any{map[string]any{
		"id": "tidy", "uses": uses, "with": map[string]any{"database": r.database, "sql": sql},
	}}})
}

func (r ruled) gateOf(run client.WorkflowRun) (g protocol.GateView) {
	r.Helper()
	require.Eventually(r, func() bool {
		gates := r.stateOf(run.GetID()).Gates
		if len(gates) == 1 {
			g = gates[0]
		}
		return len(gates) == 1
	}, waitFor, tick)
	return g
}

func (r ruled) approve(run client.WorkflowRun, g protocol.GateView, who string) (answer protocol.DecisionAnswer, err error) {
	handle, err := r.Client.UpdateWorkflow(r.Context(), client.UpdateWorkflowOptions{
		WorkflowID: run.GetID(), UpdateName: protocol.UpdateApprove, WaitForStage: client.WorkflowUpdateStageCompleted,
		Args: []any{protocol.Decision{Step: g.Step, Digest: g.Digest, Who: who}},
	})
	if err == nil {
		err = handle.Get(r.Context(), &answer)
	}
	return answer, err
}

func (r ruled) hasNoRecord() {
	r.Helper()
	records, _, err := r.worker.Registry.Records()["sqlite"].Records(r.Context())
	require.NoError(r, err)
	for _, record := range records { // a tombstone says that the step was undone, and holds nothing
		require.Zero(r, record.Entry.Version, "a record was made")
	}
}

const deleteAll = "DELETE FROM plan"

func TestARuleLetsAChangeOfHighRiskPassWithoutAPerson(t *testing.T) {
	r := serveRuled(t, allowAll)
	report, err := r.end(r.run("sqlite.exec", deleteAll))
	require.NoError(t, err)
	require.Equal(t, compensations.Committed, report.Status)
	require.Zero(t, r.rows())
	require.Len(t, report.Steps, 1)
	notes := strings.Join(report.Steps[0].Notes, "\n")
	require.Contains(t, notes, "nobody was asked though its risk is high: rules trusted@")
}

func TestARuleDeniesAChangeBeforeAnythingIsTouched(t *testing.T) {
	r := serveRuled(t, denyBig)
	run := r.run("sqlite.exec", deleteAll)
	_, err := r.end(run)
	require.ErrorContains(t, err, "Denied")
	require.ErrorContains(t, err, "this worker's policy denies the change: rules big-deletes@")
	require.ErrorContains(t, err, "(too many rows)")
	require.Equal(t, 20, r.rows())
	r.hasNoRecord()

	report, err := r.end(r.run("sqlite.exec", "DELETE FROM plan WHERE id < 5"))
	require.NoError(t, err, "what no rule denies is done")
	require.Equal(t, compensations.Committed, report.Status)
	require.Equal(t, 16, r.rows())
}

func TestTwoGroupsMustApprove(t *testing.T) {
	r := serveRuled(t, askTwo)
	run := r.run("sqlite.exec", deleteAll)
	g := r.gateOf(run)
	require.Equal(t, "0 of 2: still one of dba (ann, bob), and one of sre (cy)", g.Waits)
	for who, why := range map[string]string{
		"bot":     "bot is the agent of this task: another one must approve what it does",
		"mallory": "mallory is in none of the groups that must approve",
		"":        "it does not say who approves",
	} {
		_, err := r.approve(run, g, who)
		require.ErrorContains(t, err, why)
	}
	answer, err := r.approve(run, g, "ann@laptop")
	require.NoError(t, err)
	require.Equal(t, "1 of 2: still one of sre (cy)", answer.Waits)
	_, err = r.approve(run, g, "ann")
	require.ErrorContains(t, err, "ann has approved it already; 1 of 2: still one of sre (cy)")
	require.Equal(t, 20, r.rows())
	r.hasNoRecord()
	_, err = r.approve(run, g, "cy")
	require.NoError(t, err)
	report, err := r.end(run)
	require.NoError(t, err)
	require.Zero(t, r.rows())
	require.Len(t, report.Steps, 1)
	require.Contains(t, report.Steps[0].Notes, "approved by ann@laptop, cy; rules big-deletes@"+g.Change.Policy.Version.Short())
}

func TestAReadingStepIsJudgedToo(t *testing.T) {
	r := serveRuled(t, askReader)
	run := r.run("sqlite.query", "SELECT id FROM plan")
	g := r.gateOf(run)
	require.Equal(t, "0 of 1: still one of dba (ann, bob)", g.Waits)
	_, err := r.approve(run, g, "bob")
	require.NoError(t, err)
	_, err = r.end(run)
	require.NoError(t, err)
}

// act is a workflow of somebody who may start workflows, and calls an action by himself.
func act(ctx workflow.Context, queue string, f activities.Forward) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{TaskQueue: queue, StartToCloseTimeout: time.Minute,
		HeartbeatTimeout: 10 * time.Second})
	f.OriginalRunID = workflow.GetInfo(ctx).WorkflowExecution.RunID
	f.Entry.Version, f.Entry.Since = activities.EntryVersion, workflow.Now(ctx)
	f.Entry.Token = activities.NewToken(f.OriginalRunID, "forged", 1)
	return workflow.ExecuteActivity(ctx, f.Entry.Action, f).Get(ctx, nil)
}

// An action that is called past the engine is judged as any other: what its caller claims of
// approvals lets nothing pass that they would not.
func TestAForgedApprovalIsRefused(t *testing.T) {
	r := serveRuled(t, askTwo)
	planned := r.run("sqlite.exec", deleteAll)
	want := r.gateOf(planned).Change.Digest
	place := r.placeOf(planned)
	with, err := json.Marshal(map[string]any{"database": r.database, "sql": deleteAll})
	require.NoError(t, err)
	forged := activities.Forward{
		Entry: activities.Entry{Step: "tidy", Action: "sqlite.exec", UndoType: "sqlite.exec.undo", Place: place,
			Params: json.RawMessage(`{"database": "` + r.database + `"}`)},
		Step: activities.Step{ID: "tidy", With: with}, Consent: activities.Approved, Want: want,
	}
	for who, f := range map[string][]activities.Assent{
		"nobody": nil, "eve and mallory": {{Who: "eve"}, {Who: "mallory"}}, "ann alone": {{Who: "ann"}},
		"ann twice": {{Who: "ann"}, {Who: "ann@elsewhere"}},
	} {
		forged.Assents = f
		run, err := r.Client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: r.Name()}, act, place.Queue, forged)
		require.NoError(t, err)
		err = run.Get(t.Context(), nil)
		var app *temporal.ApplicationError
		require.ErrorAs(t, err, &app, who)
		require.Equal(t, string(activities.StaleApproval), app.Type(), who)
		require.Contains(t, app.Message(), "what was approved is not enough for the worker's policy", who)
	}
	forged.Consent, forged.Want = activities.Waived, ""
	run, err := r.Client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: r.Name()}, act, place.Queue, forged)
	require.NoError(t, err)
	var app *temporal.ApplicationError
	require.ErrorAs(t, run.Get(t.Context(), nil), &app)
	require.Equal(t, string(activities.Asks), app.Type())
	require.Equal(t, 20, r.rows())
	r.hasNoRecord()
}

// placeOf is where the step of a task acts, by what its plan was given.
func (r ruled) placeOf(run client.WorkflowRun) activities.Place {
	r.Helper()
	history := r.Client.GetWorkflowHistory(r.Context(), run.GetID(), run.GetRunID(), false, 1)
	for history.HasNext() {
		event, err := history.Next()
		require.NoError(r, err)
		scheduled := event.GetActivityTaskScheduledEventAttributes()
		if scheduled.GetActivityType().GetName() != "sqlite.exec.plan" {
			continue
		}
		var f activities.Forward
		require.NoError(r, r.converter().FromPayload(scheduled.Input.Payloads[0], &f))
		return f.Entry.Place
	}
	require.Fail(r, "it was not planned")
	return activities.Place{}
}

// What was approved under other rules is judged by those of the moment.
func TestAPolicyThatChangesBetweenApprovalAndActCounts(t *testing.T) {
	c, state, root := servertest.Client(t), t.TempDir(), t.TempDir()
	r := ruled{&stage{T: t, Server: recovery.Server{Client: c, Namespace: servertest.Shared(t).Namespace}},
		filepath.Join(root, "shop.db")}
	r.fill()
	work := func(rules string) (stop func()) {
		return processOf(t, host.Config{State: state, Policy: policyFile(t, rules),
			Worlds: []activities.Settings{&world.Settings{Roots: []string{root}}}}, slow{}, nil)
	}
	stop := work(people + "  - {name: one, when: 'true', then: ask, from: [{group: dba}]}\n")
	run := r.run("sqlite.exec", deleteAll)
	g := r.gateOf(run)
	stop()
	// the approval arrives while no worker judges, and a worker with another policy takes it
	require.NoError(t, c.SignalWorkflow(t.Context(), run.GetID(), "", protocol.SignalApprove,
		protocol.Decision{Step: g.Step, Digest: g.Digest, Who: "ann"}))
	t.Cleanup(work(askTwo))
	var again protocol.GateView
	require.Eventually(t, func() bool {
		gates := r.stateOf(run.GetID()).Gates
		if len(gates) == 1 && gates[0].Opening == 2 {
			again = gates[0]
		}
		return again.Step != ""
	}, waitFor, tick)
	require.Equal(t, "0 of 2: still one of dba (ann, bob), and one of sre (cy)", again.Waits, "it begins anew")
	require.Equal(t, 20, r.rows())
	for _, who := range []string{"bob", "cy"} {
		_, err := r.approve(run, again, who)
		require.NoError(t, err)
	}
	_, err := r.end(run)
	require.NoError(t, err)
	require.Zero(t, r.rows())
}

// A step that a policy has let act, and whose worker died, is finished under any other.
func TestAnAttemptAfterTheDeathOfItsWorkerIsNotJudgedAgain(t *testing.T) {
	a := slow{calls: make(chan int, 1)}
	a.calls <- 0
	state := t.TempDir()
	config := func(rules string) host.Config { return host.Config{State: state, Policy: policyFile(t, rules)} }
	stop := processOf(t, config(people+"  - {name: work, when: 'true', then: allow}\n"), a, nil)
	c := servertest.Client(t)
	start := func(id string) client.WorkflowRun {
		run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: t.Name() + id, TaskQueue: t.Name()},
			protocol.AgentTaskType, json.RawMessage(`{"name": "take long", "steps": [{"id": "long", "uses": "slow.work"}]}`))
		require.NoError(t, err)
		return run
	}
	run := start("")
	require.Eventually(t, func() bool {
		calls := <-a.calls
		a.calls <- calls
		return calls > 0
	}, waitFor, tick)
	stop()
	t.Cleanup(processOf(t, config(people+"  - {name: work, when: 'true', then: deny}\n"), a, nil))
	require.NoError(t, run.Get(t.Context(), nil))
	require.Equal(t, 2, <-a.calls)
	require.ErrorContains(t, start("-later").Get(t.Context(), nil), "this worker's policy denies the change")
}

func TestABadPolicyKeepsAWorkerFromStarting(t *testing.T) {
	file := policyFile(t, people+"  - {name: a, when: 'change.riks == \"high\"', then: ask}\n")
	_, err := host.Start(t.Context(), host.Config{Host: "build-1", Queue: t.Name(), State: t.TempDir(), Policy: file},
		host.Options{Client: servertest.Client(t), Namespace: servertest.Shared(t).Namespace})
	require.ErrorContains(t, err, "config: policy: "+file+":3: rules[0].when: \"change.riks == \\\"high\\\"\": undefined field 'riks'")
	_, err = host.Start(t.Context(), host.Config{Host: "build-1", Queue: t.Name(), State: t.TempDir(), Policy: file + ".gone"},
		host.Options{Client: servertest.Client(t), Namespace: servertest.Shared(t).Namespace})
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A policy that asks other engines is enforced like rules of its own: what Cedar denies is not made, and the
// gate of an OPA that gives no verdict says so, waits for whom the policy names, and lets nothing pass that it
// denies by then.
func TestWhatOtherEnginesDecideIsEnforced(t *testing.T) {
	var asked, token atomic.Value
	answers := make(chan string, 10)
	opa := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked.Store(string(body))
		token.Store(r.Header.Get("Authorization"))
		_, _ = io.WriteString(w, <-answers)
	}))
	t.Cleanup(opa.Close)
	t.Setenv("OPA_TOKEN", "a-bearer-token")
	t.Setenv("SHOP_PASSWORD", "not to be told")
	root := t.TempDir()
	file := policyFile(t, "groups: {dba: [ann]}\ncedar: gateway.cedar\n"+
		"opa: {url: '"+opa.URL+"/v1/data/unwind/verdict', timeout: 20s, from: [{group: dba}]}\n")
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(file), "gateway.cedar"), []byte(
		`permit(principal == Agent::"bot", action in Action::"sqlite", resource);
		@id("keep-all") @why("a table is not emptied") forbid(principal, action, resource) when { context.change.removed > 10 };`), 0o600))
	r := ruled{serve(t, host.Config{
		Worlds: []activities.Settings{&world.Settings{Roots: []string{root}}}, Policy: file, PolicyToken: "OPA",
		Secrets: map[string]string{"OPA": "env:OPA_TOKEN", "SHOP": "env:SHOP_PASSWORD"},
	}, host.Options{}), filepath.Join(root, "shop.db")}
	r.fill()

	answers <- `{"result": "allow"}`
	_, err := r.end(r.run("sqlite.exec", deleteAll))
	require.ErrorContains(t, err, "this worker's policy denies the change: rules cedar:keep-all@")
	require.ErrorContains(t, err, "(a table is not emptied); nothing was touched")

	const few = "DELETE FROM plan WHERE id < 3 /* ${{ secrets.SHOP }} */"
	answers <- `{}`
	answers <- `{}`
	run := r.run("sqlite.exec", few)
	g := r.gateOf(run)
	require.Contains(t, g.Why, "rules opa:unwind/verdict (it gave no verdict: the document is undefined")
	require.Equal(t, "0 of 1: still one of dba (ann)", g.Waits)
	require.Equal(t, "Bearer a-bearer-token", token.Load())
	require.Contains(t, asked.Load(), "secrets.SHOP")
	require.NotContains(t, asked.Load(), "not to be told")
	answers <- `{"result": {"verdict": "deny", "why": "not now"}, "decision_id": "7", "provenance": {"revision": "r1"}}`
	_, err = r.approve(run, g, "ann")
	require.NoError(t, err)
	_, err = r.end(run)
	require.ErrorContains(t, err, "denies the change: rules opa:unwind/verdict@r1 (not now, decision 7); nothing was touched")
	require.Equal(t, 20, r.rows())
	r.hasNoRecord()

	answers <- `{"result": "none"}`
	report, err := r.end(r.run("sqlite.exec", few))
	require.NoError(t, err)
	require.Equal(t, compensations.Committed, report.Status)
	require.Equal(t, 18, r.rows())
}

func TestATokenThatNobodyIsSentIsRefused(t *testing.T) {
	start := func(rules string, secrets map[string]string) error {
		c := host.Config{Host: "build-1", Queue: t.Name(), State: t.TempDir(), PolicyToken: "OPA", Secrets: secrets}
		if rules != "" {
			c.Policy = policyFile(t, rules)
		}
		_, err := host.Start(t.Context(), c, host.Options{Client: servertest.Client(t), Namespace: servertest.Shared(t).Namespace})
		return err
	}
	secrets := map[string]string{"OPA": "env:OPA_TOKEN"}
	require.ErrorContains(t, start(allowAll, nil), `config: policyToken: "OPA" is not one of secrets`)
	require.ErrorContains(t, start(allowAll, secrets), "config: policyToken: the policy asks no OPA; leave it out")
	require.ErrorContains(t, start("", secrets), "config: policyToken: there is no policy that could ask an OPA")
}

// A budget counts what the worker itself has let the task do, whatever the task says of it.
func TestATaskThatHasUsedUpItsBudgetIsStopped(t *testing.T) {
	r := serveRuled(t, people+"  - {name: budget, when: 'history.by[step.action] >= 2 || "+
		"change.counts.exists(c, history.removed + c.removed > 5)', then: deny, why: it has done enough}\n")
	run := func(sql ...string) error {
		var steps []any
		for i, s := range sql {
			steps = append(steps, map[string]any{"id": []string{"a", "b", "c"}[i], "uses": "sqlite.exec",
				"with": map[string]any{"database": r.database, "sql": s}})
		}
		return r.start(map[string]any{"name": "tidy", "steps": steps}).Get(t.Context(), nil)
	}
	require.NoError(t, run("DELETE FROM plan WHERE id <= 2", "DELETE FROM plan WHERE id <= 5"), "five rows by two steps")
	require.Equal(t, 15, r.rows())
	require.ErrorContains(t, run("DELETE FROM plan WHERE id <= 8", "DELETE FROM plan WHERE id <= 11"), "it has done enough",
		"six rows by two steps")
	require.Equal(t, 15, r.rows(), "the first of them was undone")
	require.ErrorContains(t, run("DELETE FROM plan WHERE id = 6", "DELETE FROM plan WHERE id = 7", "DELETE FROM plan WHERE id = 8"),
		"it has done enough", "three steps")
	require.Equal(t, 15, r.rows())
	require.NoError(t, run("DELETE FROM plan WHERE id = 6"), "each task has a budget of its own")
}
