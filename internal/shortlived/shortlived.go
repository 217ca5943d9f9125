// Package shortlived runs programs that end with the call that started them, and whatever they
// started with them: the programs of checks.
package shortlived

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/childenv"
)

// drain is how long the output is read after the program and its group have ended: a process that
// has left the group may hold the pipe for as long as it likes.
const drain = time.Second

// Output runs a program in a folder and returns what it and its children have printed by the time it
// ends. What it leaves running in its process group is killed. If it ran and failed, the error is an
// *exec.ExitError.
func Output(ctx context.Context, dir string, env map[string]string, argv ...string) ([]byte, error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, childenv.List(env), &out, &out
	cmd.WaitDelay = drain
	// A session of its own is a group of its own, and has no terminal to ask a person at.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// Until it is waited for, its id stays its own: the group that is killed cannot be another's.
	var mu sync.Mutex
	hasEnded := false
	cmd.Cancel = func() error {
		mu.Lock()
		defer mu.Unlock()
		if hasEnded {
			return os.ErrProcessDone
		}
		return unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	awaitEnd(cmd.Process.Pid)
	_ = cmd.Cancel()
	mu.Lock()
	hasEnded = true
	mu.Unlock()
	err := cmd.Wait()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // the program itself has succeeded
	}
	return out.Bytes(), err
}

// awaitEnd returns once a child has ended, and leaves it to be waited for.
func awaitEnd(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
