package boxtest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/testrun"
)

// Disk mounts a filesystem of so many MiB and about so many inodes on a folder, until the test is
// over.
func Disk(t testing.TB, folder string, size, inodes int) {
	t.Helper()
	for _, program := range []string{"mkfs.ext4", "mount"} {
		testrun.NeedProgram(t, program, "full disks are tested with a filesystem in a file")
	}
	image := filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.WriteFile(image, nil, 0o600))
	require.NoError(t, os.Truncate(image, int64(size)<<20))
	for _, c := range [][]string{
		{"mkfs.ext4", "-q", "-b", strconv.Itoa(block), "-N", strconv.Itoa(inodes), image},
		{"mount", "-o", "loop", image, folder},
	} {
		out, err := exec.Command(c[0], c[1:]...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	t.Cleanup(func() {
		require.NoError(t, unix.Unmount(folder, unix.MNT_DETACH)) // a box may have it a moment longer
	})
}

const block = 4096

// Fill takes all blocks of a disk but some, for what is in a new folder there.
func Fill(t testing.TB, folder string, leaves int) {
	t.Helper()
	err := os.Mkdir(folder, 0o700)
	if errors.Is(err, unix.ENOSPC) {
		return
	}
	require.NoError(t, err)
	f, err := os.Create(filepath.Join(folder, "big"))
	require.NoError(t, err)
	for chunk := make([]byte, 1<<20); len(chunk) >= 512; {
		if _, err := f.Write(chunk); err != nil {
			require.ErrorIs(t, err, unix.ENOSPC)
			chunk = chunk[:len(chunk)/2]
		}
	}
	require.NoError(t, f.Sync())
	for i := 0; err == nil; i++ {
		err = os.Mkdir(filepath.Join(folder, strconv.Itoa(i)), 0o700)
	}
	require.ErrorIs(t, err, unix.ENOSPC)
	now, err := f.Stat()
	require.NoError(t, err)
	require.NoError(t, errors.Join(
		f.Truncate(now.Size()-int64(leaves)*block),
		unix.Syncfs(int(f.Fd())), // what is free can be had from here on
		f.Close(),
	))
}
