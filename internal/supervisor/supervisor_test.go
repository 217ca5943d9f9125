package supervisor

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// chore says by which pipe to tell that it has begun.
type chore struct{ Pipe string }

var role = Role[chore]{Name: "unwind-test-role"}

func TestMain(m *testing.M) {
	role.Attend(func(c chore, starter io.Reader) error {
		up, err := os.OpenFile(c.Pipe, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		up.Close()
		said, err := starter.Read(make([]byte, 1))
		if said == 1 {
			os.Exit(7)
		}
		return err
	})
	pool.Attend(do)
	os.Exit(m.Run())
}

// start starts a process in the role that is up when it returns.
func start(t *testing.T) *Process {
	t.Helper()
	c := chore{Pipe: filepath.Join(t.TempDir(), "pipe")}
	require.NoError(t, unix.Mkfifo(c.Pipe, 0o600))
	p, err := role.Start(c, Setup{})
	require.NoError(t, err)
	waitFor(t, c.Pipe)
	return p
}

// waitFor waits until somebody has opened a pipe to write and closed it.
func waitFor(t *testing.T, pipe string) {
	t.Helper()
	up, err := os.Open(pipe)
	require.NoError(t, err)
	_, err = io.ReadAll(up)
	require.NoError(t, err)
	require.NoError(t, up.Close())
}

func TestAProcessIsInASessionOfItsOwnAndIsInterrupted(t *testing.T) {
	p := start(t)
	session, err := unix.Getsid(p.cmd.Process.Pid)
	require.NoError(t, err)
	require.Equal(t, p.cmd.Process.Pid, session)
	p.Interrupt()
	status, err := p.Wait()
	require.NoError(t, err)
	require.Equal(t, 7, status)
}

func TestAProgramThatDoesNotAttendIsNotStarted(t *testing.T) {
	other := Role[chore]{Name: "unwind-other-role"}
	_, err := other.Start(chore{}, Setup{})
	require.ErrorContains(t, err, "does not call Attend")
}
