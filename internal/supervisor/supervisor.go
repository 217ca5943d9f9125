// Package supervisor starts this program again in another role: a process in a session of its own
// that outlives the one that started it, to finish what must not die with a worker. A worker that
// runs as a systemd unit needs KillMode=process for that.
package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"
)

// Role is what a program does when it is started by itself, with a Job encoded as a JSON object.
type Role[Job any] struct {
	// Name is the process name by which the program recognises its role.
	Name string

	attended atomic.Bool
}

// Attend lets this program play the role: call it first in main and in TestMain. In a process that
// Start has started it runs main and never returns.
//
// The job may hold secrets, so it comes through a pipe and is never on disk or in the environment.
// After it, starter delivers what [Process.Interrupt] sends, and ends when the starting process
// dies.
func (r *Role[Job]) Attend(main func(job Job, starter io.Reader) error) {
	r.attended.Store(true)
	Dispatch(r.Name, func() error {
		signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
		var job Job
		in := json.NewDecoder(os.Stdin)
		if err := in.Decode(&job); err != nil {
			return fmt.Errorf("no job: %w", err) // the starting process died before it had sent all
		}
		return main(job, io.MultiReader(in.Buffered(), os.Stdin))
	})
}

// Attended reports whether this program can play the role.
func (r *Role[Job]) Attended() bool { return r.attended.Load() }

// Dispatch runs main and exits, with status 1 for an error, if the program was started under name.
func Dispatch(name string, main func() error) {
	if filepath.Base(os.Args[0]) != name {
		return
	}
	if err := main(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Setup says how a process is started.
type Setup struct {
	// Env is its environment. Defaults to that of this process.
	Env []string
	// Dir is its working directory. Defaults to that of this process.
	Dir string
	// Stdout and Stderr are files, since the process may outlive the readers of a pipe. Default to
	// /dev/null.
	Stdout, Stderr *os.File
}

// command is this program in a session of its own.
func command(name string, s Setup) *exec.Cmd {
	c := exec.Command("/proc/self/exe")
	c.Args = []string{name}
	c.Env, c.Dir = s.Env, s.Dir
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return c
}

func notAttended(name string) error {
	return fmt.Errorf("this program cannot be started again as %s: its main function does not call Attend", name)
}

// Process is one that was started in a role. It has to be waited for.
type Process struct {
	cmd    *exec.Cmd
	sender *os.File
}

// Start starts the program in the role, and returns when it has handed over the job.
func (r *Role[Job]) Start(job Job, s Setup) (*Process, error) {
	if !r.Attended() {
		return nil, notAttended(r.Name)
	}
	encoded, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	receiver, sender, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer receiver.Close()
	c := command(r.Name, s)
	c.Stdin = receiver
	if s.Stdout != nil {
		c.Stdout = s.Stdout
	}
	if s.Stderr != nil {
		c.Stderr = s.Stderr
	}
	if err := c.Start(); err != nil {
		sender.Close()
		return nil, fmt.Errorf("starting %s: %w", r.Name, err)
	}
	p := &Process{c, sender}
	if _, err := sender.Write(encoded); err != nil {
		sender.Close()
		_, _ = p.Wait()
		return nil, fmt.Errorf("handing %s its job: %w", r.Name, err)
	}
	return p, nil
}

// Interrupt asks the process to end. It does nothing if the process has ended.
func (p *Process) Interrupt() { _, _ = p.sender.Write([]byte{'i'}) }

// Send writes to what the process reads after its job.
func (p *Process) Send(b []byte) error {
	_, err := p.sender.Write(b)
	return err
}

// Kill kills the process. It still has to be waited for.
func (p *Process) Kill() { _ = p.cmd.Process.Kill() } // it may have just ended

// Wait waits for the end of the process and returns its exit status.
func (p *Process) Wait() (status int, err error) {
	defer p.sender.Close()
	err = p.cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), nil
	}
	return 0, err
}
