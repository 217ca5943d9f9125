package file_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/file"
	"github.com/seed-62bf7108/unwind/testrun"
)

const someUser = 12345

// as does something with the rights of an ordinary user. Only this thread gets them.
func as(t *testing.T, user int, do func()) {
	t.Helper()
	testrun.NeedRoot(t, "what an ordinary user may not do")
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	require.NoError(t, unix.Setfsuid(user))
	defer func() { require.NoError(t, unix.Setfsuid(0)) }()
	do()
}

func TestAWorkerThatMayNotGiveFilesAwayRefusesToReplaceTheirs(t *testing.T) {
	shared := t.TempDir()
	require.NoError(t, os.Chmod(shared, 0o777))
	require.NoError(t, os.Chmod(filepath.Dir(shared), 0o755))
	theirs := filepath.Join(shared, "theirs")
	require.NoError(t, os.WriteFile(theirs, []byte("old"), 0o666))
	as(t, someUser, func() {
		b := newBench(t, shared)
		before := describe(t, shared)
		requireError(t, b.apply("write", b.entry(), params{"path": theirs, "content": "new"}), activities.Refused,
			"belongs to user 0", "run it as a user who may")
		require.Equal(t, before, describe(t, shared))

		// To delete it takes no such right, and to bring it back neither.
		e := b.entry()
		require.NoError(t, b.apply("delete", e, params{"path": theirs}))
		require.NoFileExists(t, theirs)
		undone, err := b.undo(e)
		require.NoError(t, err)
		require.Equal(t, activities.Compensated, undone.Outcome, "%+v", undone)
		require.Equal(t, []string{"the time of folder " + shared}, undone.Losses)
		var st unix.Stat_t
		require.NoError(t, unix.Lstat(theirs, &st))
		require.Zero(t, st.Uid)
		require.Equal(t, "old", b.read("theirs"))
	})
}

func TestARootThatIsNotWritableSaysSo(t *testing.T) {
	closed := t.TempDir()
	require.NoError(t, os.Chmod(closed, 0o755))
	as(t, someUser, func() {
		_, err := file.New(file.Config{Roots: []string{closed}})
		require.ErrorIs(t, err, os.ErrPermission)
		require.ErrorContains(t, err, closed)
	})
}
