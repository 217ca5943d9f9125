package filelock

import (
	"bufio"
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/testrun"
)

func TestALockExcludesOthersOfTheSameProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held, err := Held(path)
	require.NoError(t, err)
	require.False(t, held, "a lock that does not exist")

	first, err := Try(path)
	require.NoError(t, err)
	_, err = Try(path)
	require.ErrorIs(t, err, ErrHeld)
	held, err = Held(path)
	require.NoError(t, err)
	require.True(t, held)

	first.Release()
	held, err = Held(path)
	require.NoError(t, err)
	require.False(t, held)
	second, err := Try(path)
	require.NoError(t, err)
	second.Release()
}

func TestAcquireWaitsForTheHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Try(path)
	require.NoError(t, err)
	got := make(chan *Lock)
	go func() {
		l, err := Acquire(t.Context(), path)
		if err != nil {
			t.Error(err)
		}
		got <- l
	}()
	first.Release()
	(<-got).Release()
}

func TestAcquireEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Try(path)
	require.NoError(t, err)
	defer first.Release()
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	_, err = Acquire(ctx, path)
	require.ErrorIs(t, err, ErrHeld)
	require.ErrorIs(t, err, why)
}

func TestAChildThatInheritedTheLockHoldsIt(t *testing.T) {
	testrun.NeedShell(t)
	path := filepath.Join(t.TempDir(), "lock")
	l, err := Try(path)
	require.NoError(t, err)
	child := exec.Command("sh", "-c", "echo up; read end")
	child.ExtraFiles = append(child.ExtraFiles, l.File())
	in, err := child.StdinPipe()
	require.NoError(t, err)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)

	l.Release()
	held, err := Held(path)
	require.NoError(t, err)
	require.True(t, held, "the child lives")
	require.NoError(t, in.Close())
	_ = child.Wait() // read fails at the end of its input
	held, err = Held(path)
	require.NoError(t, err)
	require.False(t, held, "the child has ended")
}
