package helper

import (
	"context"
	"os"
	"os/exec"
	"syscall"
)

// newClient is a client of helpers that are children of this process and keep layers in dir.
// Started is told of each.
func newClient(dir string, started func(pid int)) *Client {
	return NewClient(func(context.Context) (Process, error) {
		cmd := exec.Command("/proc/self/exe", dir)
		cmd.Args[0] = ProcessName
		cmd.Dir = "/"
		cmd.Stderr = os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		in, err := cmd.StdinPipe()
		if err != nil {
			return Process{}, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return Process{}, err
		}
		if err := cmd.Start(); err != nil {
			return Process{}, err
		}
		started(cmd.Process.Pid)
		return Process{In: in, Out: out, Wait: func() { _ = cmd.Wait() }}, nil
	})
}
