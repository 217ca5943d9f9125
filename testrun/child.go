package testrun

import (
	"os/exec"
	"runtime"
	"syscall"
)

// StartChild starts a command that gets a signal when this process ends, however that happens.
// Ended is closed once the command has ended; it is nil if the command does not start.
func StartChild(c *exec.Cmd, atEnd syscall.Signal) (ended <-chan struct{}, err error) {
	attr := syscall.SysProcAttr{}
	if c.SysProcAttr != nil {
		attr = *c.SysProcAttr
	}
	attr.Pdeathsig = atEnd
	c.SysProcAttr = &attr
	over, started := make(chan struct{}), make(chan error)
	go func() {
		runtime.LockOSThread() // the signal comes when the thread ends that has started the command
		defer runtime.UnlockOSThread()
		defer close(over)
		err := c.Start()
		started <- err
		if err == nil {
			_ = c.Wait() // how it ended is in c.ProcessState
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return over, nil
}
