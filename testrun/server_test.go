package testrun

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestServe is run again by TestAServerIsKilledAndStartedAgain, in a separate process: it serves a
// socket, or ends at once.
func TestServe(t *testing.T) {
	at := os.Getenv("TESTRUN_SERVE")
	if at == "" {
		return
	}
	_ = os.Remove(at)
	l, err := net.Listen("unix", at)
	require.NoError(t, err)
	for {
		conn, err := l.Accept()
		require.NoError(t, err)
		_ = conn.Close()
	}
}

func newTestServer(t *testing.T, serve string) *Server {
	t.Helper()
	s, err := NewServer("testrun")
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	socket := filepath.Join(s.Dir, "socket")
	s.Command = func() *exec.Cmd {
		c := exec.Command(os.Args[0], "-test.v", "-test.run="+serve)
		c.Env = append(os.Environ(), "TESTRUN_SERVE="+socket)
		return c
	}
	s.Answers = func() error {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			err = conn.Close()
		}
		return err
	}
	return s
}

func TestAServerIsKilledAndStartedAgain(t *testing.T) {
	s := newTestServer(t, "^TestServe$")
	require.NoError(t, s.Restart())
	require.NoError(t, s.Answers())
	s.Kill()
	require.Error(t, s.Answers())
	require.NoError(t, s.Restart())
	StopServers()
	require.Error(t, s.Answers())
	require.NoDirExists(t, s.Dir)
}

func TestAServerThatDoesNotStart(t *testing.T) {
	s := newTestServer(t, "^NoSuchTest$")
	err := s.Restart()
	require.ErrorIs(t, err, ErrServerEnded)
	require.ErrorContains(t, err, "no tests to run", "what it says is lost")
	s.Kill() // it has ended

	s = newTestServer(t, "")
	s.Command = func() *exec.Cmd { return exec.Command(filepath.Join(s.Dir, "none")) }
	require.ErrorIs(t, s.Restart(), os.ErrNotExist)
	s.Stop() // nothing was started
}

func TestAChildThatDoesNotStart(t *testing.T) {
	ended, err := StartChild(exec.Command("/nowhere"), syscall.SIGKILL)
	require.True(t, errors.Is(err, os.ErrNotExist), err)
	require.Nil(t, ended, "who waits for it, or kills it, takes it for started")
}
