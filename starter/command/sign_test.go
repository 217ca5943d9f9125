package command

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/testrun"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// deciders are persons with keys of ssh-keygen, whose signatures count at a worker.
type deciders struct {
	keys string             // their folder, with allowed_signers
	with func(*host.Config) // has a worker take only their decisions
}

func newSigners(t *testing.T, names ...string) deciders {
	testrun.NeedProgram(t, "ssh-keygen", "install openssh-client")
	s := deciders{keys: t.TempDir()}
	var file strings.Builder
	for _, name := range names {
		out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", s.key(name)).CombinedOutput()
		require.NoError(t, err, string(out))
		public, err := os.ReadFile(s.key(name) + ".pub")
		require.NoError(t, err)
		file.WriteString(name + " " + string(public))
	}
	allowed := filepath.Join(s.keys, "allowed_signers")
	require.NoError(t, os.WriteFile(allowed, []byte(file.String()), 0o600))
	s.with = func(c *host.Config) { c.Approvals = &host.ApprovalsConfig{Signers: allowed} }
	return s
}

func (s deciders) key(name string) string { return filepath.Join(s.keys, name) }

// by are the flags with which a person signs.
func (s deciders) by(name string) []string { return []string{"--key", s.key(name), "--as", name} }

// newSigned is a desk whose worker takes only signed decisions, of ann and bob.
func newSigned(t *testing.T) (*desk, deciders) {
	d, s := newDesk(t), newSigners(t, "ann", "bob")
	d.stopWorker()
	d.startWorker(s.with)
	return d, s
}

// notes are those of all steps, and of the report.
func (d *desk) notes(id string) string {
	s := d.state(id)
	all := s.Report.Notes
	for _, r := range s.Report.Steps {
		all = append(all, r.Notes...)
	}
	return strings.Join(all, "\n")
}

func closed(s protocol.State) bool { return s.Phase == protocol.Closed }

func TestOnlyWhatIsSignedWithAKeyThatCountsApproves(t *testing.T) {
	d, s := newSigned(t)
	eve := newSigners(t, "eve")
	id := t.Name()
	d.ok("run", d.file(gated), "--id", id)
	require.True(t, d.until(id, atGate).Gates[0].Signed)
	for why, flags := range map[string][]string{
		"key SHA256:": eve.by("eve"), "sign as ann, with --as": {"--key", s.key("ann"), "--as", "bob"},
		"could not be signed, and nothing was sent: --key: open ": {"--key", s.key("none")},
	} {
		r := d.do(append([]string{"approve", id, "two", "--yes"}, flags...)...)
		require.NotEqual(t, statusOK, r.status)
		require.Contains(t, r.err, why)
	}
	require.Empty(t, d.world.get("b"))
	out := d.ok(append([]string{"approve", id, "two", "--yes", "--why", "tested"}, s.by("ann")...)...)
	require.Contains(t, out, "decisions count only if they are signed")
	require.Contains(t, out, "approved: step two of task "+id+" goes on")
	d.until(id, closed)
	require.Equal(t, [2]string{"x", "y"}, d.values())
	require.Regexp(t, `approved by ann \(key SHA256:\S+\): tested`, d.notes(id))
}

func TestASignedRejectionUnwinds(t *testing.T) {
	d, s := newSigned(t)
	id := t.Name()
	d.ok("run", d.file(gated), "--id", id)
	d.until(id, atGate)
	d.ok(append([]string{"reject", id, "two", "--why", "not today"}, s.by("bob")...)...)
	d.until(id, closed)
	require.Equal(t, [2]string{}, d.values())
	require.Regexp(t, `step two was rejected by bob \(key SHA256:\S+\): not today`, d.state(id).Cause.Text)
}

// drifted runs a task that has set a and b, and is rejected once somebody else has set b.
func (d *desk) drifted(s deciders, id string) {
	d.ok("run", d.file(`name: drifts
steps:
  - {id: one, uses: fake.set, with: {key: a, value: x}}
  - {id: two, uses: fake.set, with: {key: b, value: y}}
  - {id: three, uses: fake.set, with: {key: c, value: z}, gate: ask}
`), "--id", id)
	d.until(id, atGate)
	d.world.set("b", "somebody else's")
	d.ok(append([]string{"reject", id, "three", "--why", "no"}, s.by("ann")...)...)
	d.until(id, parked)
}

func TestADriftedUndoIsResolvedByASignature(t *testing.T) {
	for do, want := range map[compensations.Do][2]string{
		compensations.Force: {}, compensations.Accept: {"", "somebody else's"}, compensations.Skip: {"x", "somebody else's"},
	} {
		t.Run(string(do), func(t *testing.T) {
			d, s := newSigned(t)
			id := strings.ReplaceAll(t.Name(), "/", "-")
			d.drifted(s, id)
			require.Contains(t, d.do("resolve", id, "two", "--do", string(do), "--yes", "--key", s.key("ann"), "--as", "bob").err,
				"sign as ann, with --as")
			d.ok(append([]string{"resolve", id, "two", "--do", string(do), "--yes", "--why", "seen"}, s.by("bob")...)...)
			if do == compensations.Skip { // what it needs waits for a person too
				d.until(id, func(s protocol.State) bool { return len(parkedSteps(s)) == 1 && parkedSteps(s)[0] == "one" })
				d.ok(append([]string{"resolve", id, "one", "--do", "accept", "--yes"}, s.by("ann")...)...)
			}
			d.until(id, closed)
			require.Equal(t, want, d.values())
			require.Regexp(t, string(do)+` by bob \(key SHA256:\S+\): seen`, d.notes(id))
		})
	}
}

func TestAParkedStepIsResolvedByASignature(t *testing.T) {
	d, s := newSigned(t)
	id := t.Name()
	d.ok("run", d.file(`name: parks
steps:
  - {id: one, uses: fake.set, with: {key: a, value: x, fail: true}, on_failure: ask}
`), "--id", id)
	d.until(id, parked)
	d.ok(append([]string{"resolve", id, "one", "--do", "retry", "--with", "fail=false", "--yes", "--why", "it is up"},
		s.by("ann")...)...)
	d.until(id, closed)
	require.Equal(t, "x", d.world.get("a"))
	require.Regexp(t, `retry by ann \(key SHA256:\S+\) \(changed: fail\): it is up`, d.notes(id))
}

// A task that was under way when its worker's config was given approvals can be decided about: at once by
// who gives a key, and by others once the worker has refused a bare name.
func TestApprovalsAreTurnedOnWhileATaskWaits(t *testing.T) {
	d, s := newDesk(t), newSigners(t, "ann")
	bare, signed := t.Name()+"-bare", t.Name()+"-signed"
	for _, id := range []string{bare, signed} {
		d.ok("run", d.file(gated), "--id", id)
		g := d.until(id, atGate).Gates[0]
		require.False(t, g.Signed)
		require.NotEmpty(t, g.Token)
	}
	d.stopWorker()
	d.startWorker(s.with)
	d.until(signed, atGate) // it answers

	d.ok(append([]string{"approve", signed, "two", "--yes"}, s.by("ann")...)...)
	d.until(signed, closed)
	require.Equal(t, compensations.Committed, d.state(signed).Report.Status)
	d.world.set("b", "")

	d.ok("approve", bare, "two", "--yes")
	again := d.until(bare, func(s protocol.State) bool { return atGate(s) && s.Gates[0].Opening == 2 })
	require.True(t, again.Gates[0].Signed)
	require.Empty(t, d.world.get("b"))
	require.Contains(t, d.ok("show", bare), "(opening 2: what was approved no longer holds)\n  because   the task file asks\n"+
		"  decisions count only if they are signed")
	d.ok(append([]string{"approve", bare, "two", "--yes"}, s.by("ann")...)...)
	d.until(bare, closed)
	require.Equal(t, "y", d.world.get("b"))
}

func TestApprovalsAreTurnedOnWhileAnUndoIsParked(t *testing.T) {
	d, s := newDesk(t), newSigners(t, "ann")
	id := t.Name()
	d.drifted(s, id)
	d.stopWorker()
	d.startWorker(s.with)
	d.until(id, parked) // it answers
	d.ok("resolve", id, "two", "--do", "force", "--yes")
	isSigned := func(s protocol.State) bool {
		r, isThere := findStepReport(s, "two")
		return isThere && resolvable(r) && r.Signed
	}
	r, _ := findStepReport(d.until(id, isSigned), "two")
	require.Contains(t, r.Reason, "this worker takes only signed decisions, and the one to force was not")
	require.Equal(t, "somebody else's", d.world.get("b"))
	bare := d.client.SignalWorkflow(t.Context(), id, "", compensations.SignalResolve,
		compensations.Resolution{Step: "two", Digest: r.Digest, Do: compensations.Retry})
	require.NoError(t, bare)
	d.until(id, func(s protocol.State) bool {
		return strings.Contains(strings.Join(s.Ignored, "\n"), "only a signed decision counts")
	})
	d.ok(append([]string{"resolve", id, "two", "--do", "retry", "--yes"}, s.by("ann")...)...)
	d.until(id, func(s protocol.State) bool { r, _ := findStepReport(s, "two"); return resolvable(r) && r.Drift != nil })
	d.ok(append([]string{"resolve", id, "two", "--do", "force", "--yes"}, s.by("ann")...)...)
	d.until(id, closed)
	require.Equal(t, [2]string{}, d.values())
}
