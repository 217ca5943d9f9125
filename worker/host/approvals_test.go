package host_test

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hiddeco/sshsig"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"golang.org/x/crypto/ssh"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/seed-62bf7108/unwind/activities"
	world "github.com/seed-62bf7108/unwind/activities/sqlite"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// signed is a worker that takes only signed decisions, of ann, bob and cy.
type signed struct {
	ruled

	signers string // its file
	keys    map[string]ssh.Signer
}

func serveSigned(t *testing.T, rules string, worlds ...activities.World) signed {
	root, s := t.TempDir(), signed{signers: filepath.Join(t.TempDir(), "allowed_signers"), keys: map[string]ssh.Signer{}}
	for _, name := range []string{"ann", "bob", "cy", "eve"} {
		_, private, err := ed25519.GenerateKey(nil)
		require.NoError(t, err)
		s.keys[name], err = ssh.NewSignerFromSigner(private)
		require.NoError(t, err)
	}
	s.admit(t, "ann", "bob", "cy")
	config := host.Config{Worlds: []activities.Settings{&world.Settings{Roots: []string{root}}},
		Approvals: &host.ApprovalsConfig{Signers: s.signers}}
	if rules != "" {
		config.Policy = policyFile(t, rules)
	}
	s.ruled = ruled{serve(t, config, host.Options{Worlds: worlds, Register: func(to worker.Registry) {
		to.RegisterWorkflow(act)
		to.RegisterWorkflow(takeBack)
		to.RegisterWorkflow(letGo)
	}}),
		filepath.Join(root, "shop.db")}
	s.fill()
	return s
}

// admit writes whose signatures count.
func (s signed) admit(t *testing.T, names ...string) {
	var file strings.Builder
	for _, name := range names {
		file.WriteString(name + " " + string(ssh.MarshalAuthorizedKey(s.keys[name].PublicKey())))
	}
	require.NoError(t, os.WriteFile(s.signers, []byte(file.String()), 0o600))
}

func (s signed) sign(by string, about activities.Signable) string {
	sig, err := sshsig.Sign(strings.NewReader(about.Text()), s.keys[by], sshsig.HashSHA512, activities.SignatureNamespace)
	require.NoError(s, err)
	return string(sshsig.Armor(sig))
}

// decision is a signed decision about a gate.
func (s signed) decision(run client.WorkflowRun, g protocol.GateView, verdict, by, why string) protocol.Decision {
	d := protocol.Decision{Step: g.Step, Digest: g.Digest, Who: by, Why: why, At: time.Now().UTC().Truncate(time.Second)}
	d.Signature = s.sign(by, g.Statement(run.GetID(), verdict, d))
	return d
}

// send sends a decision, and returns why it decided nothing.
func (s signed) send(run client.WorkflowRun, name string, decision any) error {
	handle, err := s.Client.UpdateWorkflow(s.Context(), client.UpdateWorkflowOptions{
		WorkflowID: run.GetID(), UpdateName: name, WaitForStage: client.WorkflowUpdateStageCompleted, Args: []any{decision},
	})
	if err == nil {
		err = handle.Get(s.Context(), nil)
	}
	return err
}

func TestOnlyASignedDecisionOpensAGate(t *testing.T) {
	s := serveSigned(t, "")
	run, elsewhere := s.run("sqlite.exec", deleteAll), s.run("sqlite.exec", deleteAll)
	g, other := s.gateOf(run), s.gateOf(elsewhere)
	valid := s.decision(run, g, activities.Approve, "ann", "tested")
	change := func(how func(*protocol.Decision)) protocol.Decision {
		d := valid
		how(&d)
		return d
	}
	forOther := s.decision(elsewhere, other, activities.Approve, "ann", "")
	for name, c := range map[string]struct {
		d   protocol.Decision
		why string
	}{
		"a bare name":           {change(func(d *protocol.Decision) { d.Signature = "" }), "only a signed decision counts here"},
		"a claimed key":         {change(func(d *protocol.Decision) { d.Signature, d.Key = "", "SHA256:abc" }), "only a signed decision counts here"},
		"another name":          {change(func(d *protocol.Decision) { d.Who = "bob" }), `is not that of "bob", but of ann`},
		"another reason":        {change(func(d *protocol.Decision) { d.Why = "never mind" }), "is not over this decision"},
		"another time":          {change(func(d *protocol.Decision) { d.At = d.At.Add(time.Second) }), "is not over this decision"},
		"for another task":      {change(func(d *protocol.Decision) { d.Signature, d.At, d.Why = forOther.Signature, forOther.At, "" }), "is not over this decision"},
		"a rejection":           {s.decision(run, g, activities.Reject, "ann", "no"), "is not over this decision"},
		"no signature at all":   {change(func(d *protocol.Decision) { d.Signature = strings.Repeat("x", 1<<20) }), "the signature has 1048576 bytes, more than 8192"},
		"a key that none knows": {s.decision(run, g, activities.Approve, "eve", ""), "is not one of the worker's signers"},
	} {
		err := s.send(run, protocol.UpdateApprove, c.d)
		require.ErrorContains(t, err, c.why, name)
	}
	require.ErrorContains(t, s.send(elsewhere, protocol.UpdateApprove, valid), "is not that of the present gate", "a replay")
	require.ErrorContains(t, s.send(run, protocol.UpdateReject, valid), "is not over this decision", "an approval is no rejection")
	require.ErrorContains(t, s.send(run, protocol.UpdateReject, protocol.Decision{Step: g.Step, Digest: g.Digest, Who: "ann"}),
		"only a signed decision counts here")
	s.admit(t, "bob", "cy")
	require.ErrorContains(t, s.send(run, protocol.UpdateApprove, valid), "is not one of the worker's signers", "ann was taken out")
	require.NoError(t, os.WriteFile(s.signers, []byte("ann ssh-ed25519 nonsense"), 0o600))
	require.ErrorContains(t, s.send(run, protocol.UpdateApprove, valid), "nobody's signature counts")
	s.admit(t, "ann", "bob", "cy")
	require.Equal(t, 20, s.rows())
	s.hasNoRecord()

	bad := change(func(d *protocol.Decision) { d.Who = "bob" })
	long := change(func(d *protocol.Decision) { d.Signature = strings.Repeat("x", 1<<20) })
	for _, d := range []protocol.Decision{{Step: g.Step, Digest: g.Digest, Who: "ann"}, long, bad, valid} {
		require.NoError(t, s.Client.SignalWorkflow(t.Context(), run.GetID(), "", protocol.SignalApprove, d))
	}
	report, err := s.end(run)
	require.NoError(t, err)
	require.Equal(t, compensations.Committed, report.Status)
	require.Zero(t, s.rows())
	key := ssh.FingerprintSHA256(s.keys["ann"].PublicKey())
	require.Contains(t, report.Steps[0].Notes, "approved by ann (key "+key+"): tested")
	notes := strings.Join(report.Notes, "\n")
	require.Contains(t, notes, `ignored signal: approve: step "tidy": only a signed decision counts here`)
	require.Contains(t, notes, `ignored signal: approve: step "tidy": key `+key+` is not that of "bob"`)

	require.NoError(t, s.send(elsewhere, protocol.UpdateReject, s.decision(elsewhere, other, activities.Reject, "bob", "enough")))
	_, err = s.end(elsewhere)
	require.ErrorContains(t, err, "was rejected by bob (key SHA256:")
}

// What was signed about the parameters that a step had before it was edited counts for none that it has
// since.
func TestASignedApprovalFromBeforeAnEditIsRefusedAndShown(t *testing.T) {
	s := serveSigned(t, "")
	run := s.run("sqlite.exec", deleteAll)
	g := s.gateOf(run)
	old := s.decision(run, g, activities.Approve, "ann", "tested")
	with, err := json.Marshal(map[string]any{"database": s.database, "sql": "DELETE FROM plan WHERE id > 10"})
	require.NoError(t, err)
	edit := protocol.Resolution{Resolution: compensations.Resolution{Step: g.Step, Digest: g.Digest, Do: protocol.DoEdit,
		Who: "bob", At: time.Now().UTC().Truncate(time.Second)}, With: with}
	edit.Signature = s.sign("bob", g.StatementOfEdit(run.GetID(), edit))
	require.NoError(t, s.send(run, protocol.UpdateResolve, edit))
	var edited protocol.GateView
	require.Eventually(t, func() bool {
		gates := s.stateOf(run.GetID()).Gates
		if len(gates) == 1 && gates[0].Digest != g.Digest {
			edited = gates[0]
		}
		return edited.Edited != ""
	}, waitFor, tick)
	require.True(t, edited.Signed)
	moved := old
	moved.Digest = edited.Digest
	for _, d := range []protocol.Decision{old, moved} {
		require.NoError(t, s.Client.SignalWorkflow(t.Context(), run.GetID(), "", protocol.SignalApprove, d))
	}
	require.ErrorContains(t, s.send(run, protocol.UpdateApprove, old), "is not that of the present gate")
	require.ErrorContains(t, s.send(run, protocol.UpdateApprove, moved), "is not over this decision")
	require.Equal(t, 20, s.rows())
	require.NoError(t, s.send(run, protocol.UpdateApprove, s.decision(run, edited, activities.Approve, "ann", "tested anew")))
	report, err := s.end(run)
	require.NoError(t, err)
	require.Equal(t, compensations.Committed, report.Status)
	require.Equal(t, 10, s.rows())
	notes := strings.Join(report.Notes, "\n")
	require.Contains(t, notes, "ignored signal: approve: digest "+old.Digest.Short()+" is not that of the present gate")
	require.Contains(t, notes, "is not over this decision")
}

func TestGroupsCountProvedPersons(t *testing.T) {
	s := serveSigned(t, askTwo)
	run := s.run("sqlite.exec", deleteAll)
	g := s.gateOf(run)
	require.NoError(t, s.send(run, protocol.UpdateApprove, s.decision(run, g, activities.Approve, "ann", "")))
	require.ErrorContains(t, s.send(run, protocol.UpdateApprove, s.decision(run, g, activities.Approve, "ann", "again")),
		"ann has approved it already")
	require.NoError(t, s.send(run, protocol.UpdateApprove, s.decision(run, g, activities.Approve, "cy", "")))
	_, err := s.end(run)
	require.NoError(t, err)
	require.Zero(t, s.rows())
}

// Whoever calls an action past the engine has to have what a person has signed for exactly this step.
func TestTheWorkerThatActsVerifiesByItself(t *testing.T) {
	s := serveSigned(t, "")
	planned := s.run("sqlite.exec", deleteAll)
	g, place := s.gateOf(planned), s.placeOf(planned)
	d := s.decision(planned, g, activities.Approve, "ann", "")
	with, err := json.Marshal(map[string]any{"database": s.database, "sql": deleteAll})
	require.NoError(t, err)
	for name, assents := range map[string][]activities.Assent{
		"nobody": nil, "a name": {{Who: "ann"}}, "a claimed key": {{Who: "ann", Key: "SHA256:abc"}},
		"what was signed for another task": {{Who: "ann", At: d.At, Opening: g.Digest, Signature: d.Signature}},
	} {
		run, err := s.Client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: s.Name()}, act, place.Queue,
			activities.Forward{
				Entry: activities.Entry{Step: "tidy", Action: "sqlite.exec", UndoType: "sqlite.exec.undo", Place: place,
					Params: json.RawMessage(`{"database": "` + s.database + `"}`)},
				Step: activities.Step{ID: "tidy", With: with}, Consent: activities.Approved, Want: g.Change.Digest,
				Assents: assents,
			})
		require.NoError(t, err)
		var app *temporal.ApplicationError
		require.ErrorAs(t, run.Get(t.Context(), nil), &app, name)
		require.Equal(t, string(activities.Unproved), app.Type(), name)
	}
	require.Equal(t, 20, s.rows())
	s.hasNoRecord()
}

func TestOnlyASignedResolutionOverwritesDrift(t *testing.T) {
	s := serveSigned(t, "")
	s.execute("CREATE TABLE price (id INTEGER PRIMARY KEY, amount INTEGER); INSERT INTO price VALUES (1, 10)")
	run := s.start(map[string]any{"name": "tidy", "agent": "bot", "steps": []any{
		map[string]any{"id": "tidy", "uses": "sqlite.exec", "with": map[string]any{"database": s.database,
			"sql": "UPDATE price SET amount = 20 WHERE id = 1"}},
		map[string]any{"id": "more", "uses": "sqlite.exec", "gate": "ask", "with": map[string]any{"database": s.database,
			"sql": "DELETE FROM plan WHERE id = 20"}},
	}})
	g := s.gateOf(run)
	s.execute("UPDATE price SET amount = 30") // somebody else's
	require.NoError(t, s.send(run, protocol.UpdateReject, s.decision(run, g, activities.Reject, "ann", "no")))

	var park compensations.StepReport
	require.Eventually(t, func() bool {
		report := s.stateOf(run.GetID()).Report
		if report == nil {
			return false
		}
		for _, r := range report.Steps {
			if r.Step == "tidy" && r.State == string(compensations.Parked) {
				park = r
			}
		}
		return park.Step != ""
	}, waitFor, tick)
	require.NotNil(t, park.Drift)
	resolution := func(do compensations.Do, by string) protocol.Resolution {
		r := compensations.Resolution{Step: park.Step, Digest: park.Digest, Do: do, Who: by,
			At: time.Now().UTC().Truncate(time.Second)}
		r.Signature = s.sign(by, park.Statement(run.GetID(), r))
		return protocol.Resolution{Resolution: r}
	}
	for _, do := range []compensations.Do{compensations.Force, compensations.Skip, compensations.Accept, compensations.Retry} {
		bare := protocol.Resolution{Resolution: compensations.Resolution{Step: park.Step, Digest: park.Digest, Do: do, Who: "ann"}}
		require.ErrorContains(t, s.send(run, protocol.UpdateResolve, bare), "only a signed decision counts here", do)
	}
	other := resolution(compensations.Accept, "ann")
	other.Do = compensations.Force
	require.ErrorContains(t, s.send(run, protocol.UpdateResolve, other), "is not over this decision")
	require.ErrorContains(t, s.send(run, protocol.UpdateResolve, resolution(compensations.Force, "eve")),
		"is not one of the worker's signers")
	require.Equal(t, 30, s.amount())

	require.NoError(t, s.Client.SignalWorkflow(t.Context(), run.GetID(), "", compensations.SignalResolve,
		resolution(compensations.Force, "bob")))
	_, err := s.end(run)
	require.Error(t, err)
	require.Equal(t, 10, s.amount())
	report := s.stateOf(run.GetID()).Report
	require.Contains(t, strings.Join(report.Steps[0].Notes, "\n"), "force by bob (key SHA256:")
}

// takeBack calls undos past the engine, one after the other, and returns what each has come to: an
// outcome, or the type of an error. The last drift that one has seen comes last.
func takeBack(ctx workflow.Context, undos []activities.Backward) (ends []string, err error) {
	drift := activities.Digest("")
	for _, u := range undos {
		ctx := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{TaskQueue: u.Entry.Place.Queue,
			StartToCloseTimeout: cmp.Or(u.Entry.Policy.Attempt, time.Minute), HeartbeatTimeout: 10 * time.Second,
			RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: int32(u.Entry.Policy.Attempts)}})
		var undone activities.Undone
		err := workflow.ExecuteActivity(ctx, u.Entry.UndoType, u).Get(ctx, &undone)
		end := string(undone.Outcome)
		if app, isApp := errors.AsType[*temporal.ApplicationError](err); isApp {
			end = app.Type()
		}
		if ends = append(ends, end); undone.Drift != nil {
			drift = undone.Drift.Digest
		}
	}
	return append(ends, string(drift)), nil
}

func (s signed) takeBack(undos ...activities.Backward) (ends []string, drift activities.Digest) {
	run, err := s.Client.ExecuteWorkflow(s.Context(), client.StartWorkflowOptions{TaskQueue: s.Name()}, takeBack, undos)
	require.NoError(s, err)
	require.NoError(s, run.Get(s.Context(), &ends))
	last := len(ends) - 1
	return ends[:last], activities.Digest(ends[last])
}

// priced is a task that has set the price to 20, and waits at its next gate. undo is what its step says
// of its undo. It returns the entry of the step as its worker has recorded it.
func (s signed) priced(undo map[string]any) (client.WorkflowRun, activities.Entry) {
	s.execute("CREATE TABLE price (id INTEGER PRIMARY KEY, amount INTEGER); INSERT INTO price VALUES (1, 10)")
	run := s.start(map[string]any{"name": "tidy", "agent": "bot", "steps": []any{
		map[string]any{"id": "tidy", "uses": "sqlite.exec", "undo": undo, "with": map[string]any{"database": s.database,
			"sql": "UPDATE price SET amount = 20 WHERE id = 1"}},
		map[string]any{"id": "more", "uses": "sqlite.exec", "gate": "ask", "with": map[string]any{"database": s.database,
			"sql": "DELETE FROM plan WHERE id = 20"}},
	}})
	s.gateOf(run)
	records, _, err := s.worker.Registry.Records()["sqlite"].Records(s.Context())
	require.NoError(s, err)
	require.Len(s, records, 1)
	return run, records[0].Entry
}

func TestTheDriftPolicyOfTheFileOverwritesWithoutASignature(t *testing.T) {
	s := serveSigned(t, "")
	run, _ := s.priced(map[string]any{"drift": "force"})
	s.execute("UPDATE price SET amount = 30")
	g := s.gateOf(run)
	require.NoError(t, s.send(run, protocol.UpdateReject, s.decision(run, g, activities.Reject, "ann", "no")))
	_, err := s.end(run)
	require.Error(t, err)
	require.Equal(t, 10, s.amount())
}

// Whoever calls an undo past the engine overwrites nothing by an entry of their own, nor by what a person
// has signed for another task, or for another opening of this one.
func TestASignedDecisionAboutAnUndoCountsOnce(t *testing.T) {
	s := serveSigned(t, "")
	run, entry := s.priced(map[string]any{"drift": "ask"})
	s.execute("UPDATE price SET amount = 30")
	ends, drift := s.takeBack(activities.Backward{Entry: entry})
	require.Equal(t, []string{string(activities.Drifted)}, ends)

	forged := activities.Backward{Entry: entry, Decision: activities.Decision{Force: drift, Who: "the step's drift policy"}}
	forged.Entry.Policy.Drift = activities.DriftForce
	decided := func(task string, opening string) activities.Backward { return s.force(task, entry, drift, opening) }
	first := decided(run.GetID(), "the first park")
	s.execute("UPDATE price SET amount = 40") // so that it finds another drift than it may overwrite
	ends, _ = s.takeBack(forged, decided("elsewhere", "its park"), first, first)
	require.Equal(t, []string{"Unproved", "Unproved", string(activities.Drifted), "Unproved"}, ends)

	s.execute("UPDATE price SET amount = 30")
	ends, _ = s.takeBack(forged, first)
	require.Equal(t, []string{"Unproved", "Unproved"}, ends)
	require.Equal(t, 30, s.amount())
	ends, _ = s.takeBack(decided(run.GetID(), "the second park"))
	require.Equal(t, []string{string(activities.Restored)}, ends)
	require.Equal(t, 10, s.amount())
}

// letGo calls releases past the engine, and returns the type of each one's error.
func letGo(ctx workflow.Context, entries []activities.Entry) (ends []string, err error) {
	for _, e := range entries {
		ctx := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{TaskQueue: e.Place.Queue,
			StartToCloseTimeout: time.Minute, HeartbeatTimeout: 10 * time.Second})
		app, _ := errors.AsType[*temporal.ApplicationError](workflow.ExecuteActivity(ctx, e.Action+".release", e).Get(ctx, nil))
		end := ""
		if app != nil {
			end = app.Type()
		}
		ends = append(ends, end)
	}
	return ends, nil
}

// A release that does not drop the record of the decision's own step lets no signature count again.
func TestASignedDecisionIsForgottenWithItsRecordOnly(t *testing.T) {
	s := serveSigned(t, "")
	run, entry := s.priced(map[string]any{"drift": "ask"})
	s.execute("UPDATE price SET amount = 30")
	_, drift := s.takeBack(activities.Backward{Entry: entry})
	signed := s.force(run.GetID(), entry, drift, "the first park")
	s.execute("UPDATE price SET amount = 40")
	ends, _ := s.takeBack(signed)
	require.Equal(t, []string{string(activities.Drifted)}, ends)

	reader, elsewhere := entry, entry
	reader.Action, reader.UndoType, elsewhere.Place.Journal = "sqlite.query", "sqlite.query.undo", "another"
	require.Equal(t, []string{string(activities.Fenced), string(activities.WrongPlace), string(activities.Fenced)},
		s.letGo(reader, elsewhere, entry), "its undo has begun")
	s.execute("UPDATE price SET amount = 30")
	ends, _ = s.takeBack(signed, s.force(run.GetID(), entry, drift, "the second park"))
	require.Equal(t, []string{"Unproved", string(activities.Restored)}, ends)
	require.Equal(t, []string{""}, s.letGo(reader))
	require.Len(t, s.notes(), 2)
	require.Equal(t, []string{""}, s.letGo(entry))
	require.Empty(t, s.notes())
}

func (s signed) letGo(entries ...activities.Entry) (ends []string) {
	run, err := s.Client.ExecuteWorkflow(s.Context(), client.StartWorkflowOptions{TaskQueue: s.Name()}, letGo, entries)
	require.NoError(s, err)
	require.NoError(s, run.Get(s.Context(), &ends))
	return ends
}

// notes are the names of what the worker remembers of the decisions that it has carried out.
func (s signed) notes() (names []string) {
	files, err := os.ReadDir(filepath.Join(s.state, "decisions"))
	require.NoError(s, err)
	for _, f := range files {
		names = append(names, f.Name())
	}
	return names
}

// force is an undo of an entry that ann has decided to force.
func (s signed) force(task string, entry activities.Entry, drift activities.Digest, opening string) activities.Backward {
	about := activities.Statement{Task: task, Step: entry.Step, Action: entry.Action, Token: entry.Token,
		Opening: activities.DigestOf([]byte(opening)), Change: drift, Verdict: "force", Who: "ann",
		At: time.Now().UTC().Truncate(time.Second)}
	return activities.Backward{Entry: entry, Decision: activities.Decision{Force: drift, Who: "ann",
		Signing: &activities.Signing{Task: task, Opening: about.Opening, At: about.At, Signature: s.sign("ann", about)}}}
}

// execute changes the database as somebody else.
func (s signed) execute(script string) {
	conn, err := sqlite.OpenConn(s.database)
	require.NoError(s, err)
	require.NoError(s, sqlitex.ExecuteScript(conn, script, nil))
	require.NoError(s, conn.Close())
}

// amount is the price.
func (s signed) amount() (n int) {
	conn, err := sqlite.OpenConn(s.database, sqlite.OpenReadOnly)
	require.NoError(s, err)
	defer conn.Close()
	n, err = sqlitex.ResultInt(conn.Prep("SELECT amount FROM price"))
	require.NoError(s, err)
	return n
}

func TestABadFileOfSignersKeepsAWorkerFromStarting(t *testing.T) {
	file := filepath.Join(t.TempDir(), "allowed_signers")
	require.NoError(t, os.WriteFile(file, []byte("# persons\n* ssh-ed25519 AAAA\n"), 0o600))
	_, err := host.Start(t.Context(), host.Config{Host: "build-1", Queue: t.Name(), State: t.TempDir(),
		Approvals: &host.ApprovalsConfig{Signers: file}},
		host.Options{Client: servertest.Client(t), Namespace: servertest.Shared(t).Namespace})
	require.ErrorContains(t, err, "config: approvals: "+file+":2: ")
}

// toy is an action whose undos end as a test says, one after the other, and which keeps such records.
type toy struct {
	activities.Action

	undos    []func(context.Context) error
	records  []activities.Record
	problems []error
}

func (w *toy) Spec() activities.Spec { return activities.Spec{Name: "toy.do"} }

func (w *toy) Undo(ctx context.Context, _ activities.Entry, _ activities.Decision) (activities.Undone, error) {
	undo := w.undos[0]
	w.undos = w.undos[1:]
	return activities.Undone{Outcome: activities.Restored}, undo(ctx)
}

// toyJournal is that of a toy. The problems are there once.
type toyJournal struct {
	unused

	*toy
}

// unused is activities.Records under a name that its method Records leaves free.
type unused interface{ activities.Records }

func (j toyJournal) Records(context.Context) (records []activities.Record, problems []error, err error) {
	if problems, j.problems = j.problems, nil; problems != nil {
		return nil, problems, nil
	}
	return j.records, nil, nil
}

// serveToy returns also an entry of the toy that nobody has recorded.
func serveToy(t *testing.T) (signed, *toy, activities.Entry) {
	w := &toy{}
	s := serveSigned(t, "", activities.World{Name: "toy", Actions: []activities.Action{w}, Records: toyJournal{toy: w},
		Journal: func(context.Context) (string, error) { return "toys", nil }})
	return s, w, activities.Entry{Version: activities.EntryVersion, Step: "tidy", Action: "toy.do", UndoType: "toy.do.undo",
		Token: activities.NewToken("run", "tidy", 1), Place: activities.Place{Queue: s.Name()},
		Params: json.RawMessage(`{"of":"us"}`), Policy: activities.UndoPolicy{Attempts: 1}}
}

func restores(context.Context) error { return nil }

// Where a run ends before the action has begun, the next one carries the decision out; where it may have
// begun, a person signs again.
func TestASignedDecisionOutlivesARunThatTouchedNothing(t *testing.T) {
	s, w, entry := serveToy(t)
	for name, c := range map[string]struct {
		first func(context.Context) error
		want  []string
	}{
		"breaker open": {func(context.Context) error { return activities.Errorf(activities.BreakerOpen, "down") },
			[]string{"BreakerOpen", "restored"}},
		"failed":   {func(context.Context) error { return errors.New("lost") }, []string{"ActionFailed", "Unproved"}},
		"too late": {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, []string{"", "Unproved"}},
	} {
		about := s.force("elsewhere", entry, "sha256:theirs", name)
		if name == "too late" {
			about.Entry.Policy.Attempt = time.Second
		}
		w.records = []activities.Record{{Entry: entry, Owner: activities.Owner{Workflow: "elsewhere"}}}
		w.undos = []func(context.Context) error{c.first, restores}
		first, _ := s.takeBack(about)
		second, _ := s.takeBack(about)
		require.Equal(t, c.want, append(first, second...), name)
	}
	about := s.force("elsewhere", entry, "sha256:theirs", "twice")
	about.Entry.Policy.Attempts = 2
	w.undos = []func(context.Context) error{func(context.Context) error { return errors.New("lost") }, restores, restores}
	ends, _ := s.takeBack(about, about)
	require.Equal(t, []string{"restored", "Unproved"}, ends, "a second attempt follows the first")
}

func TestTheDriftPolicyIsThatOfTheStepsOwnRecord(t *testing.T) {
	s, w, entry := serveToy(t)
	own, theirs := activities.Record{Entry: entry}, activities.Record{Entry: entry}
	own.Entry.Policy.Drift, theirs.Entry.Policy.Drift = activities.DriftForce, activities.DriftForce
	theirs.Entry.Params = json.RawMessage(`{"of":"others"}`)
	asks := activities.Record{Entry: entry}
	forced := activities.Backward{Entry: entry, Decision: activities.Decision{Force: "sha256:theirs"}}
	for name, c := range map[string]struct {
		records []activities.Record
		want    string
	}{
		"its own": {[]activities.Record{own}, "restored"}, "another's": {[]activities.Record{theirs}, "Unproved"},
		"another's first": {[]activities.Record{theirs, asks}, "Unproved"},
		"both":            {[]activities.Record{theirs, own}, "restored"},
		"its own first":   {[]activities.Record{own, asks}, "Unproved"}, "none": {nil, "Unproved"},
	} {
		w.records, w.undos = c.records, []func(context.Context) error{restores}
		ends, _ := s.takeBack(forced)
		require.Equal(t, []string{c.want}, ends, name)
	}
	w.records, w.problems = []activities.Record{own}, []error{errors.New("no answer")}
	w.undos, forced.Entry.Policy.Attempts = []func(context.Context) error{restores}, 2
	ends, _ := s.takeBack(forced)
	require.Equal(t, []string{"restored"}, ends, "it asks again when its records can be read")
}
