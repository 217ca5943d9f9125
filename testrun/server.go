package testrun

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Server is a program that serves the tests of a process, in a folder of its own. It can be killed
// and started again, and ends with this process at the latest.
type Server struct {
	// Dir is its folder. What the program says goes to the file log in it.
	Dir string
	// Command makes the command that starts it.
	Command func() *exec.Cmd
	// Answers returns nil if it answers.
	Answers func() error
	// AtEnd is the signal that ends it when nothing of it is needed any more. Defaults to SIGKILL.
	AtEnd syscall.Signal

	process *exec.Cmd       // nil until it is started
	ended   <-chan struct{} // closed when the process has ended
}

const (
	answerLimit = time.Minute // how long a server may take until it answers
	answerPause = 10 * time.Millisecond
)

// ErrServerEnded is that of a server that ends before it answers.
var ErrServerEnded = errors.New("the server does not start")

var servers sync.Map

// NewServer makes the folder of a server, whose name is short: a socket in it has a long name
// already.
func NewServer(name string) (*Server, error) {
	dir, err := os.MkdirTemp("", name+"-")
	if err != nil {
		return nil, err
	}
	s := &Server{Dir: dir, AtEnd: syscall.SIGKILL}
	servers.Store(s, true)
	return s, nil
}

// StopServers stops all servers. Call it at the end of TestMain.
func StopServers() {
	servers.Range(func(s, _ any) bool {
		s.(*Server).Stop()
		return true
	})
}

// Restart starts a server for the first time, or again once it has ended, and returns when it
// answers.
func (s *Server) Restart() error {
	log, err := os.OpenFile(filepath.Join(s.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	process := s.Command()
	process.Stdout, process.Stderr = log, log
	ended, err := StartChild(process, s.AtEnd)
	if err != nil {
		return err
	}
	s.process, s.ended = process, ended
	again := time.NewTicker(answerPause)
	defer again.Stop()
	for began := time.Now(); ; <-again.C {
		err := s.Answers()
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			said, _ := os.ReadFile(log.Name())
			return fmt.Errorf("%w: %s", ErrServerEnded, said)
		default:
		}
		if time.Since(began) > answerLimit {
			said, _ := os.ReadFile(log.Name())
			return fmt.Errorf("the server does not answer: %w: %s", err, said)
		}
	}
}

// Signal sends the server a signal: SIGSTOP stalls it, SIGCONT lets it go on.
func (s *Server) Signal(signal syscall.Signal) error {
	err := s.process.Process.Signal(signal)
	if err != nil || signal != syscall.SIGSTOP {
		return err
	}
	// Its threads stop one after the other, on a busy machine some milliseconds later.
	return unix.Waitid(unix.P_PID, s.process.Process.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
}

// End sends the server a signal that ends it, and returns when it has ended.
func (s *Server) End(signal syscall.Signal) {
	if s.process == nil {
		return
	}
	_ = s.Signal(signal) // it may have ended
	<-s.ended
}

// Kill kills the server with SIGKILL.
func (s *Server) Kill() { s.End(syscall.SIGKILL) }

// Stop ends the server, and removes all that it has.
func (s *Server) Stop() {
	s.End(s.AtEnd)
	_ = os.RemoveAll(s.Dir)
	servers.Delete(s)
}
