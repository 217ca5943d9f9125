package crash

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a running worker.
type process struct {
	cmd *exec.Cmd
	// ended is closed when it is gone, stopped when it has stopped itself.
	ended, stopped chan struct{}
}

// startProcess starts this program as a worker. It dies with this process.
func startProcess(orderPath, log string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command("/proc/self/exe"), ended: make(chan struct{}), stopped: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), orderVariable+"="+orderPath)
	// A file and not a pipe: processes that outlive the worker would hold a pipe open.
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error)
	go func() {
		// The kernel signals a child when the thread that started it ends: this one stays until the child
		// has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer out.Close()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // how it ended is read from ProcessState
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	go p.watch()
	return p, nil
}

// watch closes stopped as soon as the process is.
func (p *process) watch() {
	t := time.NewTicker(30 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-p.ended:
			return
		case <-t.C:
			if stateOf(p.cmd.Process.Pid) == 'T' {
				close(p.stopped)
				return
			}
		}
	}
}

// stateOf is the letter of a process's state in proc(5); zero where there is none.
func stateOf(pid int) byte {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0
	}
	if _, rest, ok := bytes.Cut(raw[bytes.LastIndexByte(raw, ')')+1:], []byte(" ")); ok && len(rest) > 0 {
		return rest[0]
	}
	return 0
}

func (p *process) kill() { _ = p.cmd.Process.Kill() }

// wasKilled reports whether SIGKILL ended it.
func (p *process) wasKilled() bool {
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// awaitEnd asks it to finish, and waits at most limit. One that does not finish leaves its stacks
// in its log.
func (p *process) awaitEnd(limit time.Duration) (inTime bool) {
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		return true
	case <-time.After(limit):
	}
	_ = p.cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-p.ended:
	case <-time.After(time.Second):
		p.kill()
		<-p.ended
	}
	return false
}

// processesOf returns the other processes that work below a folder: their environment or arguments
// name it, or they have a file below it open.
func processesOf(folder string) map[int]string {
	found := map[int]string{}
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() || !worksIn(dir, folder) || stateOf(pid) == 'Z' {
			continue
		}
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		found[pid] = strings.TrimSpace(string(bytes.ReplaceAll(line, []byte{0}, []byte(" "))))
	}
	return found
}

func worksIn(dir, folder string) bool {
	environ, err := os.ReadFile(filepath.Join(dir, "environ"))
	if err != nil {
		return false // it is gone
	}
	if bytes.Contains(environ, []byte(orderVariable+"="+folder)) {
		return true
	}
	if args, err := os.ReadFile(filepath.Join(dir, "cmdline")); err == nil && bytes.Contains(args, []byte("\x00"+folder)) {
		return true
	}
	open, _ := filepath.Glob(filepath.Join(dir, "fd", "*"))
	for _, fd := range append(open, filepath.Join(dir, "cwd")) {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, folder+"/") &&
			!strings.Contains(to, "temporal.db") {
			return true
		}
	}
	return false
}
