package examples_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/examples"
	"github.com/seed-62bf7108/unwind/testrun"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// earlier is the commit whose worker leaves tasks open. Today's worker must undo what it writes
// into histories and journals. Until there is a release, it is the last commit that changed one of
// these formats.
const earlier = "e68f7e921735e0ff53e9ee0a3d6eba323379a07f"

// A worker is upgraded while a task waits at its last gate.
func TestATaskThatAnEarlierWorkerLeftOpenIsTakenBackByTodays(t *testing.T) {
	testrun.Sampled(t)
	binary := buildEarlierWorker(t)
	p := newPlayer(t, nil)
	before := p.look()
	stop := p.workWith(binary, p.stage.Config())
	e, err := examples.Named("publish-release")
	require.NoError(t, err)
	_, err = p.start(p.id(), p.example(e))
	require.NoError(t, err)
	p.gate(p.id(), "infrastructure", protocol.SignalApprove)
	p.until(p.id(), func(s protocol.State) bool { return len(s.Gates) == 1 && s.Gates[0].Step == "go-live" })
	stop()

	p.work(p.stage.Config())
	p.gate(p.id(), "go-live", protocol.SignalReject)
	r, err := p.end(p.id())
	require.ErrorContains(t, err, "rejected by ann: it is her call")
	require.Equal(t, compensations.Unwound, r.Status)
	require.Equal(t, []string{
		"configure restored", "install restored", "plans restored", "customer compensated", "product compensated",
		"price compensated",
		"subscription compensated", "infrastructure compensated", "go-live nothing-to-undo",
	}, outcomes(r))
	p.asBefore(before, nil, r)
}

// A worker is upgraded while tasks stand in each way in which they can wait, with something in
// every store: at a gate, with undos that are parked, half rolled back, and committed.
func TestWhatAnEarlierWorkerHasBegunInEveryStoreIsEndedByTodays(t *testing.T) {
	testrun.Sampled(t)
	s := newStores(t)
	before := s.look()
	stop := s.workWith(buildEarlierWorker(t), s.config)
	const atItsGate, toForce, toRetry, halfBack, committed = 1, 2, 3, 4, 5
	for task := range storeTasks {
		s.begin(task+1, task+1 == halfBack)
	}
	for task := range storeTasks {
		s.untilAsked(task + 1)
	}
	s.put(toForce, "of somebody else")
	s.takeAway(toRetry, s.names()...)
	for _, task := range []int{toForce, toRetry} {
		s.gate(s.task(task), "last", protocol.SignalReject)
	}
	for _, task := range []int{halfBack, committed} {
		s.gate(s.task(task), "last", protocol.SignalApprove)
		r, err := s.end(s.task(task))
		require.NoError(t, err)
		require.Equal(t, compensations.Committed, r.Status)
	}
	s.takeAway(halfBack, "postgres")
	back := s.rollBack(halfBack)
	s.parks(back, "postgres")
	s.parks(s.task(toForce), s.names()...)
	s.parks(s.task(toRetry), s.names()...)
	stop()

	s.work(s.config)
	s.gate(s.task(atItsGate), "last", protocol.SignalReject)
	s.resolve(s.task(toForce), compensations.Force, s.names()...)
	s.bringBack(toRetry, s.names()...)
	s.resolve(s.task(toRetry), compensations.Retry, s.names()...)
	s.bringBack(halfBack, "postgres")
	s.resolve(back, compensations.Retry, "postgres")
	for _, id := range []string{s.task(atItsGate), s.task(toForce), s.task(toRetry), back, s.rollBack(committed)} {
		r, _ := s.end(id) // a task that is rejected has failed
		require.Equal(t, compensations.Unwound, r.Status, id)
		for _, each := range s.names() {
			require.Contains(t, outcomes(r), each+" restored", "%s: %+v", id, r.Steps)
		}
	}
	require.Equal(t, before, s.look())
}

// buildEarlierWorker builds the worker of an earlier commit, which a shallow clone does not have.
func buildEarlierWorker(t *testing.T) string {
	t.Helper()
	testrun.NeedProgram(t, "git", "install git: the test builds the worker of an earlier commit")
	testrun.NeedProgram(t, "tar", "install tar: the test unpacks an earlier commit")
	source := t.TempDir()
	archive := exec.CommandContext(t.Context(), "git", "archive", "--format=tar", earlier)
	archive.Dir = ".." // the root of the repository: git archive packs the folder that it runs in
	packed, err := archive.Output()
	if err != nil {
		why := fmt.Sprintf("no upgrade is tested: git archive %s: %v", earlier[:12], err)
		if isShallow(t) { // in CI too: what a clone leaves out, nothing that is installed brings
			t.Skip("SKIPPED: " + why + "; git fetch --unshallow brings the commit")
		}
		testrun.Skipf(t, "%s; the test needs a clone of the repository", why)
	}
	unpack := exec.CommandContext(t.Context(), "tar", "-x", "-C", source)
	unpack.Stdin = bytes.NewReader(packed)
	said, err := unpack.CombinedOutput()
	require.NoError(t, err, "%s", said)
	binary := filepath.Join(t.TempDir(), "worker")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./worker")
	build.Dir = source
	said, err = build.CombinedOutput()
	require.NoError(t, err, "%s", said)
	return binary
}

// workWith starts a worker in a process of its own. The function that it returns stops it as an
// upgrade does.
func (p *player) workWith(binary string, c host.Config) (stop func()) {
	p.Helper()
	c.Schedules = "off"
	set := settingsIn(p, c)
	for _, world := range c.Worlds {
		set[world.World()] = settingsIn(p, world)
	}
	removeZeros(set) // among them what it does not know yet
	raw, err := yaml.Marshal(set)
	require.NoError(p, err)
	config := filepath.Join(p.TempDir(), "worker.yaml")
	require.NoError(p, os.WriteFile(config, raw, 0o600))
	server := servertest.Shared(p.T)
	worker := exec.CommandContext(p.Context(), binary, "--config", config)
	worker.Env = append(os.Environ(), "TEMPORAL_ADDRESS="+server.Address, "TEMPORAL_NAMESPACE="+server.Namespace)
	var said buffer
	worker.Stdout, worker.Stderr = &said, &said
	worker.Cancel = func() error { return worker.Process.Signal(syscall.SIGTERM) }
	worker.WaitDelay = 30 * time.Second
	require.NoError(p, worker.Start())
	p.Cleanup(func() {
		if p.Failed() {
			p.Log("the earlier worker said:\n" + said.String())
		}
	})
	return func() {
		p.Helper()
		require.NoError(p, worker.Process.Signal(syscall.SIGTERM))
		require.NoError(p, worker.Wait(), "%s", &said)
	}
}

// settingsIn are the fields of a config, or of its section for a world, by their names in the file.
func settingsIn(t require.TestingT, config any) (set map[string]any) {
	raw, err := yaml.Marshal(config)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(raw, &set))
	return set
}

// removeZeros removes from a config what says nothing.
func removeZeros(config map[string]any) {
	for name, value := range config {
		switch v := value.(type) {
		case map[string]any:
			if len(v) == 0 {
				delete(config, name)
			}
			removeZeros(v) // what is empty then is a world whose config is its defaults
		case []any:
			if len(v) == 0 {
				delete(config, name)
			}
		case nil, bool, int, string:
			if v == nil || v == false || v == 0 || v == "" || v == "0s" {
				delete(config, name)
			}
		}
	}
}

// isShallow reports whether the repository is a clone without its history.
func isShallow(t *testing.T) bool {
	t.Helper()
	said, err := exec.CommandContext(t.Context(), "git", "rev-parse", "--is-shallow-repository").Output()
	return err == nil && strings.TrimSpace(string(said)) == "true"
}
