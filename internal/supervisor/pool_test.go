package supervisor

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/filelock"
)

// task says which file to write the process's number to, and for which pipe to wait before that.
type task struct {
	Out  string
	Wait string
	Fail bool
}

var pool = Pool[task]{Name: "unwind-test-pool"}

func do(j task) error {
	if j.Wait != "" {
		goes, err := os.Open(j.Wait)
		if err != nil {
			return err
		}
		if _, err := io.ReadAll(goes); err != nil {
			return err
		}
	}
	if j.Fail {
		return errors.New("it was to fail")
	}
	return os.WriteFile(j.Out, []byte(strconv.Itoa(os.Getpid())), 0o600)
}

// hired is a pool that nobody else uses.
func hired(t *testing.T) *Pool[task] {
	t.Helper()
	p := &Pool[task]{Name: pool.Name}
	p.attended.Store(true)
	t.Cleanup(func() {
		for m := p.take(Setup{}); m != nil; m = p.take(Setup{}) {
			m.dismiss()
		}
	})
	return p
}

func lockIn(t *testing.T) (path string, l *filelock.Lock) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "lock")
	l, err := filelock.Try(path)
	require.NoError(t, err)
	return path, l
}

// did has a job done, and returns the number of the process that has done it.
func did(t *testing.T, p *Pool[task], j task, s Setup) int {
	t.Helper()
	path, lock := lockIn(t)
	j.Out = filepath.Join(t.TempDir(), "out")
	over, err := p.Do(j, lock, s)
	lock.Release()
	require.NoError(t, err)
	<-over
	again, err := filelock.Try(path)
	require.NoError(t, err, "the lock is free when the job is over")
	again.Release()
	if j.Fail {
		require.NoFileExists(t, j.Out)
		return 0
	}
	said, err := os.ReadFile(j.Out)
	require.NoError(t, err)
	pid, err := strconv.Atoi(string(said))
	require.NoError(t, err)
	return pid
}

func TestAProcessOfAPoolDoesOneJobAfterAnother(t *testing.T) {
	p := hired(t)
	first := did(t, p, task{}, Setup{})
	session, err := unix.Getsid(first)
	require.NoError(t, err)
	require.Equal(t, first, session)
	require.Equal(t, first, did(t, p, task{}, Setup{}))
	require.NotEqual(t, first, did(t, p, task{}, Setup{Env: []string{"A=b"}}), "what was started otherwise does not serve")
	require.Equal(t, first, did(t, p, task{}, Setup{}))
}

func TestAJobThatFailsEndsItsProcess(t *testing.T) {
	p := hired(t)
	first := did(t, p, task{}, Setup{})
	did(t, p, task{Fail: true}, Setup{})
	require.Empty(t, p.idle)
	require.ErrorIs(t, unix.Kill(first, 0), unix.ESRCH)
}

func TestAnIdleProcessThatIsKilledIsReplaced(t *testing.T) {
	p := hired(t)
	first := did(t, p, task{}, Setup{})
	m := p.idle[0]
	require.NoError(t, unix.Kill(first, unix.SIGKILL))
	_, err := m.conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	require.NotEqual(t, first, did(t, p, task{}, Setup{}))
}

// TestAJobIsDoneWithoutItsStarter closes what the death of a starter closes.
func TestAJobIsDoneWithoutItsStarter(t *testing.T) {
	p := hired(t)
	path, lock := lockIn(t)
	dir := t.TempDir()
	j := task{Out: filepath.Join(dir, "out"), Wait: filepath.Join(dir, "pipe")}
	require.NoError(t, unix.Mkfifo(j.Wait, 0o600))
	m, err := p.start(Setup{})
	require.NoError(t, err)
	p.keep(m)
	over, err := p.Do(j, lock, Setup{})
	require.NoError(t, err)
	lock.Release()
	end, err := os.OpenFile(j.Wait, os.O_WRONLY, 0)
	require.NoError(t, err)
	require.NoError(t, m.conn.CloseWrite())
	held, err := filelock.Held(path)
	require.NoError(t, err)
	require.True(t, held)
	require.NoError(t, end.Close())
	<-over
	require.FileExists(t, j.Out)
	lock, err = filelock.Acquire(t.Context(), path)
	require.NoError(t, err)
	lock.Release()
}

func TestAProcessThatNobodyHasAJobForEnds(t *testing.T) {
	p := hired(t)
	pid := did(t, p, task{}, Setup{})
	p.end(p.idle[0])
	require.Empty(t, p.idle)
	require.ErrorIs(t, unix.Kill(pid, 0), unix.ESRCH)
}
