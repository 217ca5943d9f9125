package supervisor

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/filelock"
)

// chore says which file to make before, and which after, the starter has spoken or is gone.
type chore struct{ Pipe, Last string }

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
		if err != io.EOF {
			return err
		}
		return os.WriteFile(c.Last, nil, 0o600)
	})
	os.Exit(m.Run())
}

// start starts a process in the role that is up when it returns.
func start(t *testing.T, s Setup) (p *Process, last string) {
	t.Helper()
	dir := t.TempDir()
	c := chore{filepath.Join(dir, "pipe"), filepath.Join(dir, "last")}
	require.NoError(t, unix.Mkfifo(c.Pipe, 0o600))
	p, err := role.Start(c, s)
	require.NoError(t, err)
	up, err := os.Open(c.Pipe)
	require.NoError(t, err)
	_, err = io.ReadAll(up)
	require.NoError(t, err)
	require.NoError(t, up.Close())
	return p, c.Last
}

func TestAProcessIsInASessionOfItsOwnAndIsInterrupted(t *testing.T) {
	p, _ := start(t, Setup{})
	session, err := unix.Getsid(p.cmd.Process.Pid)
	require.NoError(t, err)
	require.Equal(t, p.cmd.Process.Pid, session)
	p.Interrupt()
	status, err := p.Wait()
	require.NoError(t, err)
	require.Equal(t, 7, status)
}

func TestAProcessThatIsLeftHoldsTheLockToItsEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	l, err := filelock.Try(path)
	require.NoError(t, err)
	p, last := start(t, Setup{Lock: l})
	l.Release()
	held, err := filelock.Held(path)
	require.NoError(t, err)
	require.True(t, held)
	p.Leave()
	l, err = filelock.Acquire(t.Context(), path)
	require.NoError(t, err)
	defer l.Release()
	require.FileExists(t, last, "it has gone on to the end of its work")
}

func TestAProgramThatDoesNotAttendIsNotStarted(t *testing.T) {
	other := Role[chore]{Name: "unwind-other-role"}
	_, err := other.Start(chore{}, Setup{})
	require.ErrorContains(t, err, "does not call Attend")
}
