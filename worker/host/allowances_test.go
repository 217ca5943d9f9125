package host_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"golang.org/x/crypto/ssh"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// allowance is one for two deletions in the database, by bot.
func (s signed) allowance(by string) activities.Allowance {
	at := time.Now().UTC().Truncate(time.Second)
	return activities.Allowance{Agent: "bot", Actions: []string{"sqlite.exec"}, Under: []string{"file:" + filepath.Dir(s.database)},
		Risk: activities.High, Uses: 2, At: at, Until: at.Add(time.Hour), Who: by, Why: "tidy up"}
}

func (s signed) signAllowance(by string, a activities.Allowance) protocol.SignedAllowance {
	return protocol.SignedAllowance{Allowance: a, Signature: s.sign(by, a)}
}

// askAllowances asks their keeper, which is started if it is not there.
func (s *stage) askAllowances(update string, argument, answer any) error {
	_, err := s.Client.ExecuteWorkflow(s.Context(), client.StartWorkflowOptions{ID: protocol.AllowancesID(s.Name()),
		TaskQueue: s.Name(), WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING},
		protocol.AllowancesType, protocol.Allowances{})
	require.NoError(s, err)
	handle, err := s.Client.UpdateWorkflow(s.Context(), client.UpdateWorkflowOptions{
		WorkflowID: protocol.AllowancesID(s.Name()), UpdateName: update, Args: []any{argument},
		WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = handle.Get(s.Context(), answer)
	}
	return err
}

func (s *stage) allow(a protocol.SignedAllowance) (g activities.GivenAllowance) {
	s.Helper()
	require.NoError(s, s.askAllowances(protocol.UpdateAllow, a, &g))
	return g
}

func (s *stage) allowances() (given []activities.GivenAllowance) {
	v, err := s.Client.QueryWorkflow(s.Context(), protocol.AllowancesID(s.Name()), "", protocol.QueryAllowances)
	require.NoError(s, err)
	require.NoError(s, v.Get(&given))
	return given
}

func TestAStandingApprovalLetsStepsActUntilItIsUsedUp(t *testing.T) {
	s := serveSigned(t, "")
	g := s.allow(s.signAllowance("ann", s.allowance("ann")))
	key := ssh.FingerprintSHA256(s.keys["ann"].PublicKey())
	require.Equal(t, key, g.Key)
	require.Equal(t, g, s.allow(s.signAllowance("ann", g.Allowance)), "the same again is the same")

	first := s.run("sqlite.exec", "DELETE FROM plan WHERE id <= 15")
	report, err := s.end(first)
	require.NoError(t, err)
	require.Equal(t, compensations.Committed, report.Status)
	require.Equal(t, []string{"approved by standing approval " + g.ID + " of ann (key " + key + "): tidy up",
		"standing approval " + g.ID + ": 1 of 2 used"}, report.Steps[0].Notes)
	require.Equal(t, 5, s.rows())
	_, err = s.end(s.run("sqlite.exec", "INSERT INTO plan WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 "+
		"FROM n WHERE i < 15) SELECT i FROM n"))
	require.NoError(t, err, "it asks nobody")
	_, err = s.end(s.run("sqlite.exec", "DELETE FROM plan WHERE id <= 14"))
	require.NoError(t, err)

	used := s.allowances()[0].Used
	require.Len(t, used, 2, "what asks nobody uses nothing")
	require.Equal(t, first.GetID(), used[0].Task)
	require.Equal(t, "tidy", used[0].Step)
	s.execute("INSERT INTO plan WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 14) SELECT i FROM n")
	gate := s.gateOf(s.run("sqlite.exec", deleteAll))
	require.Empty(t, gate.Assents)
	s.replays(protocol.AllowancesID(t.Name()))
}

// replays has the history of a workflow decided once more.
func (s *stage) replays(id string) {
	events := s.Client.GetWorkflowHistory(s.Context(), id, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	history := &historypb.History{}
	for events.HasNext() {
		e, err := events.Next()
		require.NoError(s, err)
		history.Events = append(history.Events, e)
	}
	r := worker.NewWorkflowReplayer()
	workflows.Register(r, nil)
	require.NoError(s, r.ReplayWorkflowHistory(nil, history))
}

func TestNoMadeUpStandingApprovalCounts(t *testing.T) {
	s := serveSigned(t, "")
	valid := s.signAllowance("ann", s.allowance("ann"))
	change := func(how func(*protocol.SignedAllowance)) protocol.SignedAllowance {
		a := valid
		how(&a)
		return a
	}
	decision := activities.Statement{Task: "a", Verdict: activities.Approve, Who: "ann", At: valid.At}
	for name, c := range map[string]struct {
		a   protocol.SignedAllowance
		why string
	}{
		"a bare name":       {change(func(a *protocol.SignedAllowance) { a.Signature = "" }), "it is not signed"},
		"another name":      {change(func(a *protocol.SignedAllowance) { a.Who = "bob" }), `is not that of "bob"`},
		"one more use":      {change(func(a *protocol.SignedAllowance) { a.Uses++ }), "is not over this"},
		"more time":         {change(func(a *protocol.SignedAllowance) { a.Until = a.Until.Add(time.Second) }), "is not over this"},
		"another agent":     {change(func(a *protocol.SignedAllowance) { a.Agent = "bot2" }), "is not over this"},
		"another folder":    {change(func(a *protocol.SignedAllowance) { a.Under = []string{"file:/etc"} }), "is not over this"},
		"another action":    {change(func(a *protocol.SignedAllowance) { a.Actions = []string{"file.*"} }), "is not over this"},
		"another risk":      {change(func(a *protocol.SignedAllowance) { a.Risk = activities.Low }), "is not over this"},
		"a task":            {change(func(a *protocol.SignedAllowance) { a.Tasks = []string{"t"} }), "is not over this"},
		"another reason":    {change(func(a *protocol.SignedAllowance) { a.Why = "" }), "is not over this"},
		"what is over":      {change(func(a *protocol.SignedAllowance) { a.At, a.Until = a.At.Add(-2*time.Hour), a.At.Add(-time.Hour) }), "it is over already"},
		"no bound":          {change(func(a *protocol.SignedAllowance) { a.Uses = 0 }), "uses 0: give 1 to 100"},
		"signed by another": {s.signAllowance("eve", valid.Allowance), "is not one of the worker's signers"},
		"a signed decision": {change(func(a *protocol.SignedAllowance) { a.Signature = s.sign("ann", decision) }), "is not over this"},
		"a long signature":  {change(func(a *protocol.SignedAllowance) { a.Signature = strings.Repeat("x", 1<<20) }), "1048576 bytes"},
		"the time of tomorrow": {change(func(a *protocol.SignedAllowance) { a.At, a.Until = a.At.Add(24*time.Hour), a.At.Add(25*time.Hour) }),
			"it is not given yet"},
	} {
		require.ErrorContains(t, s.askAllowances(protocol.UpdateAllow, c.a, nil), c.why, name)
	}
	require.Empty(t, s.allowances())

	// a keeper that says so itself is not believed
	require.NoError(t, s.Client.TerminateWorkflow(t.Context(), protocol.AllowancesID(t.Name()), "", ""))
	forged := activities.GivenAllowance{Allowance: valid.Allowance, Signature: valid.Signature, Key: "SHA256:abc"}
	forged.Uses = 100
	forged.ID = forged.Allowance.ID()
	_, err := s.Client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: protocol.AllowancesID(t.Name()),
		TaskQueue: t.Name()}, protocol.AllowancesType, protocol.Allowances{Given: []activities.GivenAllowance{forged}})
	require.NoError(t, err)
	require.Len(t, s.allowances(), 1)
	require.Empty(t, s.gateOf(s.run("sqlite.exec", deleteAll)).Assents)
	require.Equal(t, 20, s.rows())
}

// Each group must approve, ahead or at the gate; what was revoked since counts for nothing.
func TestAStandingApprovalOfOneGroupWaitsForTheOther(t *testing.T) {
	s := serveSigned(t, askTwo)
	g := s.allow(s.signAllowance("ann", s.allowance("ann")))
	s.allow(s.signAllowance("bob", s.allowance("bob"))) // of the same group
	run := s.run("sqlite.exec", deleteAll)
	gate := s.gateOf(run)
	require.Equal(t, "1 of 2: still one of sre (cy)", gate.Waits)
	require.Len(t, gate.Assents, 1)

	require.NoError(t, s.askAllowances(protocol.UpdateDisallow, protocol.Disallowing{ID: g.ID, Who: "cy"}, nil))
	require.NoError(t, s.send(run, protocol.UpdateApprove, s.decision(run, gate, activities.Approve, "cy", "")))
	var again protocol.GateView
	require.Eventually(t, func() bool {
		if gates := s.stateOf(run.GetID()).Gates; len(gates) == 1 && gates[0].Opening == 2 {
			again = gates[0]
		}
		return again.Step != ""
	}, waitFor, tick)
	require.Equal(t, "bob", again.Assents[0].Who, "another one covers it still")
	require.Equal(t, 20, s.rows())
	s.hasNoRecord()
	require.Empty(t, s.allowances()[0].Used)

	require.NoError(t, s.send(run, protocol.UpdateApprove, s.decision(run, again, activities.Approve, "cy", "")))
	report, err := s.end(run)
	require.NoError(t, err)
	require.Contains(t, strings.Join(report.Steps[0].Notes, "\n"), "was revoked by cy")
	require.Zero(t, s.rows())
	require.Len(t, s.allowances()[1].Used, 1)

	s.allow(s.signAllowance("cy", s.allowance("cy")))
	s.execute("INSERT INTO plan WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20) SELECT i FROM n")
	report, err = s.end(s.run("sqlite.exec", deleteAll))
	require.NoError(t, err)
	require.Regexp(t, `^approved by standing approval \S+ of bob \(key \S+\): tidy up, standing approval \S+ of cy `,
		report.Steps[0].Notes[0])
}

// A worker asks for a use of what it has read before. If it was revoked in between, its keeper counts none,
// whatever the worker believes.
func TestNoUseIsCountedOnceAStandingApprovalIsRevoked(t *testing.T) {
	s := serveSigned(t, "")
	g := s.allow(s.signAllowance("ann", s.allowance("ann")))
	use := func(step string) error {
		return s.askAllowances(protocol.UpdateUse, protocol.AllowanceUse{ID: g.ID,
			AllowanceUse: activities.AllowanceUse{Key: step, Task: "t", Step: step}}, nil)
	}
	require.NoError(t, use("before"))
	require.NoError(t, s.askAllowances(protocol.UpdateDisallow, protocol.Disallowing{ID: g.ID, Who: "cy"}, nil))
	require.ErrorContains(t, use("after"), "it was revoked by cy")
	require.Len(t, s.allowances()[0].Used, 1)
}

// Who can end workflows ends the keeper, and gives again what was signed once.
func TestAHostKeepsWhatItHasSeenOfAStandingApproval(t *testing.T) {
	s := serveSigned(t, "")
	valid := s.signAllowance("ann", s.allowance("ann"))
	g := s.allow(valid)
	insert := "INSERT INTO plan WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 15) SELECT i FROM n"
	terminate := func() {
		require.NoError(t, s.Client.TerminateWorkflow(t.Context(), protocol.AllowancesID(t.Name()), "", ""))
	}
	for range 2 {
		s.allow(valid)
		_, err := s.end(s.run("sqlite.exec", "DELETE FROM plan WHERE id <= 15"))
		require.NoError(t, err)
		require.Len(t, s.allowances()[0].Used, 1, "the keeper counts anew")
		terminate()
		s.execute(insert)
	}
	require.Empty(t, s.gateOf(s.run("sqlite.exec", deleteAll)).Assents, "without a keeper none counts")
	s.allow(valid)
	require.Empty(t, s.gateOf(s.run("sqlite.exec", deleteAll)).Assents, "it is used up")

	other := s.allowance("bob")
	h := s.allow(s.signAllowance("bob", other))
	require.NoError(t, s.askAllowances(protocol.UpdateDisallow, protocol.Disallowing{ID: h.ID, Who: "cy"}, nil))
	s.gateOf(s.run("sqlite.exec", deleteAll)) // which sees that it is revoked
	terminate()
	s.allow(s.signAllowance("bob", other))
	require.Nil(t, s.allowances()[0].Revoked)
	require.Empty(t, s.gateOf(s.run("sqlite.exec", deleteAll)).Assents, "it was revoked")
	require.NotEqual(t, g.ID, h.ID)
}

// A keeper that lists more than it counts has a person asked, and does not fail the step.
func TestAStandingApprovalThatIsRefusedAgainAndAgainIsAsked(t *testing.T) {
	s := serveSigned(t, "")
	valid := s.signAllowance("ann", s.allowance("ann"))
	gone := worker.New(s.Client, t.Name()+"-false", worker.Options{})
	gone.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
		if err := workflow.SetQueryHandler(ctx, protocol.QueryAllowances, func() ([]activities.GivenAllowance, error) {
			return []activities.GivenAllowance{{Allowance: valid.Allowance, ID: valid.ID(), Signature: valid.Signature}}, nil
		}); err != nil {
			return err
		}
		return workflow.Await(ctx, func() bool { return false })
	}, workflow.RegisterOptions{Name: "False"})
	require.NoError(t, gone.Start())
	t.Cleanup(gone.Stop)
	_, err := s.Client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: protocol.AllowancesID(t.Name()),
		TaskQueue: t.Name() + "-false"}, "False")
	require.NoError(t, err)
	run := s.run("sqlite.exec", deleteAll)
	gate := s.gateOf(run)
	require.Empty(t, gate.Assents)
	require.Equal(t, 20, s.rows())
	require.NoError(t, s.send(run, protocol.UpdateApprove, s.decision(run, gate, activities.Approve, "bob", "")))
	_, err = s.end(run)
	require.NoError(t, err)
	require.Zero(t, s.rows())
}

// named is slow work on one file, which asks a person.
type named struct{ slow }

func (named) Plan(context.Context, activities.Entry, activities.Step) (activities.Change, error) {
	return activities.Change{Digest: activities.DigestOf(), Risk: activities.High, Strategy: activities.Compensation,
		Keys: []string{"file:/srv/site/a"}}, nil
}

// A worker dies in the middle of a step, with what it had noted; another one carries on.
func TestAUseIsCountedOnceThoughItsWorkerDies(t *testing.T) {
	a, state := named{slow{calls: make(chan int, 1)}}, t.TempDir()
	a.calls <- 0
	work := func() (stop func()) { return processOf(t, host.Config{State: state}, a, nil) }
	stop := work()
	c := servertest.Client(t)
	s := &stage{T: t, Server: recovery.Server{Client: c, Namespace: servertest.Shared(t).Namespace}}
	at := time.Now().UTC().Truncate(time.Second)
	s.allow(protocol.SignedAllowance{Allowance: activities.Allowance{Agent: "bot", Actions: []string{"slow.*"},
		Under: []string{"file:/srv/site"}, Risk: activities.High, Uses: 3, At: at, Until: at.Add(time.Hour), Who: "ann"}})
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: t.Name(), TaskQueue: t.Name(),
		TypedSearchAttributes: protocol.ServingAttributes("", "")}, protocol.AgentTaskType,
		json.RawMessage(`{"name": "take long", "agent": "bot", "steps": [{"id": "long", "uses": "slow.work", "gate": "ask"}]}`))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		calls := <-a.calls
		a.calls <- calls
		return calls > 0
	}, waitFor, tick)
	require.Len(t, s.allowances()[0].Used, 1)
	stop()
	require.NoError(t, os.RemoveAll(filepath.Join(state, "passes")))
	t.Cleanup(work())
	report, err := s.end(run)
	require.NoError(t, err)
	require.Equal(t, 2, <-a.calls)
	require.Contains(t, report.Steps[0].Notes[0], "approved by standing approval ")
	require.Contains(t, report.Steps[0].Notes[0], " of ann")
	require.Len(t, s.allowances()[0].Used, 1)
}
