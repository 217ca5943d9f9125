package stack

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// digestBy is the digest of a file as a new reading tells it, and whether it has read it so that it
// is known from then on.
func digestBy(t testing.TB, known *Digests, file string) (sum string, learned bool) {
	t.Helper()
	it, err := filetree.Open(unix.AT_FDCWD, file)
	require.NoError(t, err)
	defer it.Close()
	r := newDigestReader(known, nil)
	require.NoError(t, r.digest(it, file, &sum))
	require.NoError(t, r.hashers.Wait())
	known.add(r.read)
	return sum, len(r.read) > 0
}

func TestAFileIsReadAgainWhereItCanHaveChanged(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(file, []byte("one"), 0o600))
	then := time.Unix(1e9, 0)
	require.NoError(t, os.Chtimes(file, then, then))
	known := &Digests{}
	first, learned := digestBy(t, known, file)
	require.False(t, learned, "it has changed just now, and may again at the same time")
	require.Eventually(t, func() bool { _, learned = digestBy(t, known, file); return learned }, time.Minute,
		time.Millisecond)
	again, learned := digestBy(t, known, file)
	assert.Equal(t, first, again)
	assert.False(t, learned, "it is not read again")

	require.NoError(t, os.WriteFile(file, []byte("two"), 0o600))
	require.NoError(t, os.Chtimes(file, then, then))
	other, _ := digestBy(t, known, file)
	assert.NotEqual(t, first, other, "of the same size, and written at the same time as far as its owner says")
}

func TestNoMoreDigestsAreKeptThanMany(t *testing.T) {
	t.Parallel()
	known, read := &Digests{}, map[fileState]string{}
	for i := range uint64(maxDigests + 1) {
		read[fileState{ino: i}] = "sum"
	}
	known.add(read)
	assert.Len(t, known.known, maxDigests)
	known.add(map[fileState]string{{dev: 1}: "sum"})
	assert.Len(t, known.known, 1)
}

func TestSharedMappingsThatMayBeWrittenTo(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		"7f00-7f01 rw-s 00000000 00:2b 1234 /data/db\n":        true,
		"7f00-7f01 -w-s 00000000 fe:00 1234 /data/db\n":        true,
		"7f00-7f01 r--s 00000000 00:2b 1234 /data/db\n":        false,
		"7f00-7f01 rw-p 00000000 00:2b 1234 /lib/libc.so\n":    false,
		"7f00-7f01 rw-s 00000000 00:01 77 /dev/zero (deleted)": false,
		"7f00-7f01 rw-p 00000000 00:00 0 [heap]\n":             false,
		"7f00-7f01 rw-p 00000000 00:00 0\n":                    false,
	} {
		assert.Equal(t, want, isSharedMapping(line), line)
	}
}
