package terraform

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/terraform/configuration"
	"github.com/seed-62bf7108/unwind/activities/terraform/run"
	"github.com/seed-62bf7108/unwind/internal/process"
)

// workerVar makes the test binary a worker that applies or undoes one step: the task, as JSON.
const workerVar = "UNWIND_TERRAFORM_TEST_WORKER"

type task struct {
	Config Config
	Entry  activities.Entry
	Step   activities.Step
	Undo   bool
}

func work(text string) int {
	var k task
	err := json.Unmarshal([]byte(text), &k)
	if err == nil {
		os.Unsetenv(workerVar)
		var w activities.World
		if w, err = New(k.Config); err == nil {
			a := named(w, k.Entry.Action)
			if k.Undo {
				_, err = a.Undo(context.Background(), k.Entry, activities.Decision{})
			} else {
				_, err = a.Apply(context.Background(), k.Entry, k.Step, "")
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// named is the action with a name.
func named(w activities.World, action string) activities.Action {
	return w.Actions[slices.IndexFunc(w.Actions, func(a activities.Action) bool { return a.Spec().Name == action })]
}

// worker starts a process that applies the step.
func (b *bench) worker(e activities.Entry, s activities.Step, env ...string) *exec.Cmd {
	b.Helper()
	return b.start(task{Config: b.config(), Entry: e, Step: s}, env...)
}

// undoer starts a process that undoes the step.
func (b *bench) undoer(e activities.Entry, env ...string) *exec.Cmd {
	b.Helper()
	return b.start(task{Config: b.config(), Entry: e, Undo: true}, env...)
}

func (b *bench) start(what task, env ...string) *exec.Cmd {
	b.Helper()
	k, err := json.Marshal(what)
	require.NoError(b, err)
	if len(env) > 0 { // it breaks at points of what it starts: that must be this program
		link := filepath.Join(b.dir, "worker", "bin", run.FrontName)
		require.NoError(b, os.Remove(link))
		require.NoError(b, os.Symlink("/proc/self/exe", link))
	}
	c := exec.Command("/proc/self/exe")
	c.Env = append(append(os.Environ(), workerVar+"="+string(k), sleeperVar+"="+b.sleeper()), env...)
	c.Stderr = os.Stderr
	require.NoError(b, c.Start())
	b.Cleanup(func() {
		_ = c.Process.Kill() // it has mostly ended long since
		_ = c.Wait()
	})
	return c
}

// kill ends a worker at once.
func (b *bench) kill(c *exec.Cmd) {
	b.Helper()
	require.NoError(b, c.Process.Kill())
	require.Error(b, c.Wait())
}

// supervisor waits until the step's first run is registered, and returns who supervises it.
func (b *bench) supervisor(e activities.Entry) process.Identity {
	b.Helper()
	var s run.Supervisor
	b.eventually("a supervisor", func() bool {
		found, err := b.run(e).Token.Read(b.run(e).Doc(run.DocProcess), &s)
		require.NoError(b, err)
		return found
	})
	return s.Identity
}

// run is the step's first run.
func (b *bench) run(e activities.Entry) run.Run {
	b.Helper()
	t, err := b.action.(*applyAction).token(e)
	require.NoError(b, err)
	return run.Run{Token: t, Number: 1}
}

// killLastRun kills the supervisor of the step's last run, its terraform and everything that they
// have started.
func (b *bench) killLastRun(e activities.Entry) {
	b.Helper()
	all, err := run.List(b.run(e).Token)
	require.NoError(b, err)
	last := all[len(all)-1]
	var s run.Supervisor
	found, err := last.Token.Read(last.Doc(run.DocProcess), &s)
	require.NoError(b, err)
	require.True(b, found)
	require.NoError(b, unix.Kill(-s.PID, syscall.SIGKILL))
	b.eventually("the end of the supervisor", func() bool { return !s.IsAlive() })
}

// killRun kills the supervisor of the step's first run, its terraform and everything that they have
// started.
func (b *bench) killRun(e activities.Entry) {
	b.Helper()
	p := b.supervisor(e)
	require.NoError(b, unix.Kill(-p.PID, syscall.SIGKILL))
	b.eventually("the end of the supervisor", func() bool { return !p.IsAlive() })
}

// quiet waits until nobody works below the folder any more: who was on the way when all it worked
// for was killed or undone may still write into a journal that the test is about to remove.
func (b *bench) quiet() {
	b.Helper()
	assert.Eventually(b, func() bool {
		all, _ := filepath.Glob("/proc/[0-9]*")
		return !slices.ContainsFunc(all, b.employs)
	}, time.Minute, 20*time.Millisecond, "a process works below the folder after the end of the test")
}

// employs tells whether the folder stands in the environment, the arguments or the working
// directory of another process, given by its folder in /proc.
func (b *bench) employs(proc string) bool {
	if filepath.Base(proc) == strconv.Itoa(os.Getpid()) {
		return false
	}
	environ, _ := os.ReadFile(filepath.Join(proc, "environ")) // empty for who is gone, and for a zombie
	args, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
	cwd, _ := os.Readlink(filepath.Join(proc, "cwd"))
	return strings.Contains(fmt.Sprintf("%s %s %s/", environ, args, cwd), b.dir+"/")
}

func (b *bench) eventually(what string, holds func() bool) {
	b.Helper()
	require.Eventually(b, holds, 2*time.Minute, 5*time.Millisecond, what)
}

// state is the path of the folder's state.
func (b *bench) state() string { return filepath.Join(b.dir, "conf", configuration.StateName) }
