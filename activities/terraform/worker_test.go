package terraform

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
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
			if k.Undo {
				_, err = w.Actions[0].Undo(context.Background(), k.Entry, activities.Decision{})
			} else {
				_, err = w.Actions[0].Apply(context.Background(), k.Entry, k.Step, "")
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
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
	c := exec.Command("/proc/self/exe")
	c.Env = append(append(os.Environ(), workerVar+"="+string(k)), env...)
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
func (b *bench) supervisor(e activities.Entry) process {
	b.Helper()
	var s started
	b.eventually("a supervisor", func() bool {
		found, err := b.run(e).token.Read(b.run(e).doc(docProcess), &s)
		require.NoError(b, err)
		return found
	})
	return s.process
}

// run is the step's first run.
func (b *bench) run(e activities.Entry) run {
	b.Helper()
	t, err := b.action.(*apply).token(e)
	require.NoError(b, err)
	return run{t, 1}
}

// killRun kills the supervisor of the step's first run, its terraform and everything that they have started.
func (b *bench) killRun(e activities.Entry) {
	b.Helper()
	p := b.supervisor(e)
	require.NoError(b, unix.Kill(-p.PID, syscall.SIGKILL))
	b.eventually("the end of the supervisor", func() bool { return !p.alive() })
}

func (b *bench) eventually(what string, holds func() bool) {
	b.Helper()
	require.Eventually(b, holds, 30*time.Second, 5*time.Millisecond, what)
}

// state is the path of the folder's state.
func (b *bench) state() string { return filepath.Join(b.dir, "conf", stateName) }
