package process

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// sleeper starts a process that leads a session of its own.
func sleeper(t *testing.T) (*exec.Cmd, Identity) {
	t.Helper()
	c := exec.Command("sleep", "600")
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	require.NoError(t, c.Start())
	t.Cleanup(func() { _ = c.Process.Kill(); _, _ = c.Process.Wait() })
	id, err := Identify(c.Process.Pid)
	require.NoError(t, err)
	return c, id
}

func TestStoppedAndDeadProcessesCannotContinue(t *testing.T) {
	t.Parallel()
	c, id := sleeper(t)
	assert.True(t, id.CanContinue())
	status, err := ReadStatus(id.PID)
	require.NoError(t, err)
	assert.Equal(t, os.Getpid(), status.Parent)

	id.Signal(unix.SIGSTOP)
	require.Eventually(t, func() bool { return !id.CanContinue() }, 10*time.Second, time.Millisecond)
	assert.True(t, id.IsAlive(), "it is only stopped")

	id.Signal(unix.SIGKILL)
	require.Error(t, c.Wait())
	assert.False(t, id.IsAlive())
}

// A PID that is in use again, or was used before a reboot, is another process.
func TestSignalsReachNoOtherProcess(t *testing.T) {
	t.Parallel()
	c, id := sleeper(t)
	for name, other := range map[string]Identity{
		"an earlier process with this PID": {PID: id.PID, Start: "1", Boot: id.Boot},
		"one of an earlier boot":           {PID: id.PID, Start: id.Start, Boot: "earlier"},
	} {
		assert.False(t, other.IsAlive(), name)
		other.Signal(unix.SIGKILL)
		other.KillSession()
	}
	Identity{PID: id.PID, Start: id.Start + "0", Boot: id.Boot}.KillSession() // a later leader with this PID
	ended := make(chan struct{})
	go func() { _ = c.Wait(); close(ended) }()
	select {
	case <-ended:
		t.Error("the process was killed")
	case <-time.After(100 * time.Millisecond): // a signal that was sent takes a moment
	}
}

func TestKillSessionEndsWhatTheLeaderLeft(t *testing.T) {
	t.Parallel()
	c := exec.Command("sh", "-c", "sleep 600 & echo $!")
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	leader, err := Identify(c.Process.Pid)
	require.NoError(t, err)
	line := make([]byte, 16)
	n, err := out.Read(line)
	require.NoError(t, err)
	pid := 0
	for _, d := range line[:n-1] {
		pid = pid*10 + int(d-'0')
	}
	orphan, err := Identify(pid)
	require.NoError(t, err)
	_, _ = c.Process.Wait()

	leader.KillSession()
	require.Eventually(t, func() bool { return !orphan.IsAlive() }, 10*time.Second, time.Millisecond)
}

func TestASessionEndsWithAllThatIsInIt(t *testing.T) {
	t.Parallel()
	c := exec.Command("sh", "-c", "sleep 600 & exec sleep 600")
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	require.NoError(t, c.Start())
	id, err := Identify(c.Process.Pid)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(id.listSession()) == 2 }, 10*time.Second, time.Millisecond)
	require.NoError(t, id.EndSession(t.Context()))
	assert.Empty(t, id.listSession())
	assert.False(t, id.IsAlive())
	require.Error(t, c.Wait())
}
