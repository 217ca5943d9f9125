package terraform

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/terraform/configuration"
	"github.com/seed-62bf7108/unwind/activities/terraform/run"
	"github.com/seed-62bf7108/unwind/activities/terraform/workspace"
	"github.com/seed-62bf7108/unwind/internal/process"
	"github.com/seed-62bf7108/unwind/testrun"
)

const one = `resource "fake_thing" "a" { name = "a" }`

// between are the points between a worker that wants terraform to run and the end of that run.
var between = []string{
	"front:ready", "front:passed-on",
	"supervisor:begun", "supervisor:registered", "supervisor:locked", "supervisor:allowed", "supervisor:started",
	"supervisor:ended",
}

// A front or supervisor that is killed or stopped anywhere leaves nothing that acts behind an
// undo's back.
func TestBrokenOnTheWayToTerraform(t *testing.T) {
	for _, at := range between {
		t.Run(at, func(t *testing.T) {
			for _, broken := range testrun.Draw(t, killedOnTheWay, stoppedOnTheWay) {
				t.Run(broken.how, func(t *testing.T) { broken.test(t, at) })
			}
		})
	}
}

type brokenOnTheWay struct {
	how  string
	test func(t *testing.T, at string)
}

var killedOnTheWay = brokenOnTheWay{"killed", func(t *testing.T, at string) {
	b := newBench(t, one)
	e, s := b.step(Params{})
	c := b.worker(e, s, breakVar+"=kill:terraform."+at)
	_ = c.Wait() // how it ends depends on how far terraform came
	b.mustTakeBack(e)
	assert.Eventually(t, func() bool { // a supervisor that is on its way out may take a moment
		var p run.Supervisor
		_, err := b.run(e).Token.Read(b.run(e).Doc(run.DocProcess), &p)
		return err == nil && !p.IsAlive()
	}, time.Minute, 10*time.Millisecond, "nothing of the step is left running")
}}

// The whole worker and what it has started wake up after the undo and after the next generation of
// the step.
var stoppedOnTheWay = brokenOnTheWay{"stopped", func(t *testing.T, at string) {
	b := newBench(t, one)
	e, s := b.step(Params{})
	c := b.worker(e, s, breakVar+"=stop:terraform."+at)
	sleeper := b.stop(c)
	b.mustTakeBack(e)
	require.Error(t, b.outlive(c, sleeper), "the forward came too late")
	assert.Empty(t, b.work(e))
}}

// mustTakeBack undoes a step that was broken.
func (b *bench) mustTakeBack(e activities.Entry) {
	b.Helper()
	u := b.undo(e)
	assert.Contains(b, []activities.Outcome{activities.Restored, activities.Nothing}, u.Outcome, "%v", u.Losses)
	assert.Empty(b, b.names())
	assert.NoFileExists(b, b.state())
}

// The same where they wake up before anything else has changed the state, and before the undo has
// cleared away what they work in: neither is their plan stale, nor their folder gone. Only the
// fence is in the way. All other points are woken by the undo itself.
func TestWokenRightAfterTheUndo(t *testing.T) {
	for _, at := range []string{"front:ready", "supervisor:begun"} {
		t.Run(at, func(t *testing.T) {
			b := newBench(t, one)
			e, s := b.step(Params{})
			c := b.worker(e, s, breakVar+"=stop:terraform."+at)
			sleeper := b.stop(c)
			require.Error(t, b.undoer(e, breakVar+"=kill:terraform.undo:settled").Wait())
			require.Error(t, b.wake(c, sleeper), "the forward came too late")
			assert.Empty(t, b.names())
			assert.NoFileExists(t, b.state())
			assert.Equal(t, activities.Nothing, b.undo(e).Outcome)
		})
	}
}

// The same with the first of two undos.
func TestStoppedUndo(t *testing.T) {
	for _, at := range between {
		t.Run(at, func(t *testing.T) {
			b := newBench(t, one)
			e := b.apply(Params{})
			c := b.undoer(e, breakVar+"=stop:terraform."+at)
			sleeper := b.stop(c)
			u := b.undo(e)
			assert.Equal(t, activities.Restored, u.Outcome, "%v", u.Losses)
			assert.Empty(t, b.names())
			assert.NoFileExists(t, b.state())
			_ = b.outlive(c, sleeper) // it is overtaken, or finds the outcome of the other
			assert.Empty(t, b.work(e))
			assert.Equal(t, u, b.undo(e))
		})
	}
}

// A call that died, or was too late, may leave its work behind a settled undo. Every call that
// comes after clears it away, the late one itself too: it holds variables in plain text.
func TestWorkBehindASettledUndoIsClearedByWhoeverComesNext(t *testing.T) {
	b := newBench(t, one)
	e, s := b.step(Params{})
	require.NoError(t, b.worker(e, s).Wait())
	require.Error(t, b.undoer(e, breakVar+"=kill:terraform.undo:settled").Wait())
	require.NotEmpty(t, b.work(e), "it died before it could clear its work away")
	u := b.undo(e)
	assert.Equal(t, activities.Restored, u.Outcome)
	assert.Empty(t, b.work(e))

	late := workspace.Folder(b.run(e).Token, "undo-002-prior")
	require.NoError(t, os.MkdirAll(late, 0o700))
	require.Error(t, b.worker(e, s).Wait(), "the forward came too late")
	assert.Empty(t, b.work(e))
}

// A look that died leaves its work, which whoever ends the step clears away.
func TestWorkOfALookThatDiedIsCleared(t *testing.T) {
	b := newBench(t, one)
	e, s := b.step(Params{})
	tok := b.run(e).Token
	_, err := b.action.Plan(b.ctx, e, s)
	require.NoError(t, err)
	dead := workspace.Folder(tok, "observe-4711")
	require.NoError(t, os.MkdirAll(dead, 0o700))
	_, err = b.action.Apply(b.ctx, e, s, "")
	require.NoError(t, err)
	assert.Empty(t, b.work(e))

	require.NoError(t, os.MkdirAll(dead, 0o700))
	require.NoError(t, os.MkdirAll(filepath.Join(workspace.ObservationsFolder(tok), "4711"), 0o700))
	require.Equal(t, activities.Restored, b.undo(e).Outcome)
	assert.Empty(t, b.work(e))
	assert.NoDirExists(t, workspace.ObservationsFolder(tok))
}

// A call that is fenced may be ended before it could clear anything away.
func TestAFencedCallLaysOutNothing(t *testing.T) {
	b := newBench(t, one)
	e := b.apply(Params{})
	require.Equal(t, activities.Restored, b.undo(e).Outcome)
	a := b.action.(*applyAction)
	for name, turn := range map[string]int{"forward": 0, "undo-001": 1} {
		_, err := a.openWorkspace(b.ctx, e, name, configuration.Bundle{Dir: filepath.Join(b.dir, "conf")}, turn)
		assert.Equal(t, activities.Fenced, activities.TypeOf(err), "%v", err)
	}
	assert.Empty(t, b.work(e))
}

// work are the working copies of a step that are left.
func (b *bench) work(e activities.Entry) []string {
	b.Helper()
	left, err := filepath.Glob(workspace.Folder(b.run(e).Token, "*"))
	require.NoError(b, err)
	return left
}

// stop waits until what a worker has started has stopped at its point, stops the worker as well,
// and returns the first.
func (b *bench) stop(c *exec.Cmd) (sleeper process.Identity) {
	b.Helper()
	b.eventually("a stopped process of the worker's", func() bool {
		sleeper = b.asleep()
		return sleeper.PID != 0
	})
	require.NoError(b, unix.Kill(c.Process.Pid, unix.SIGSTOP))
	worker, err := process.Identify(c.Process.Pid)
	require.NoError(b, err)
	b.eventually("a stopped worker", func() bool { return !worker.CanContinue() })
	return sleeper
}

// outlive applies the next generation of a step, wakes the worker and the sleeper, and sees to it
// that they change nothing. It returns how the worker has ended.
func (b *bench) outlive(c *exec.Cmd, sleeper process.Identity) error {
	b.Helper()
	next := b.apply(Params{})
	left, state := objects(b, b.dir), b.stateText()
	require.Len(b, left, 1)
	err := b.wake(c, sleeper)
	assert.Equal(b, left, objects(b, b.dir), "who was stopped has changed nothing")
	assert.Equal(b, state, b.stateText())
	u := b.undo(next)
	assert.Equal(b, activities.Restored, u.Outcome, "%v", u.Losses)
	assert.Empty(b, b.names())
	return err
}

// wake lets the sleeper and the worker go on to their ends, and returns the worker's.
func (b *bench) wake(c *exec.Cmd, sleeper process.Identity) error {
	b.Helper()
	sleeper.Signal(unix.SIGCONT)
	require.NoError(b, unix.Kill(c.Process.Pid, unix.SIGCONT))
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	var err error
	select {
	case err = <-ended:
	case <-time.After(time.Minute):
		require.Fail(b, "the worker does not come to its end")
	}
	b.eventually("the end of the sleeper", func() bool { return !sleeper.IsAlive() })
	return err
}

// asleep is the process that has stopped itself; zero as long as none has.
func (b *bench) asleep() process.Identity {
	raw, _ := os.ReadFile(b.sleeper()) // absent or half written at first
	pid, _ := strconv.Atoi(string(raw))
	p, err := process.Identify(pid)
	if err != nil || !p.IsAlive() || p.CanContinue() {
		return process.Identity{}
	}
	return p
}

// sleeper is the file in which it leaves its process id.
func (b *bench) sleeper() string { return filepath.Join(b.dir, "sleeper") }
