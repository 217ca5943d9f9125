package devserver

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// tinyModule makes a module that builds fast and prints text.
func tinyModule(t *testing.T, text string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	write(t, filepath.Join(folder, "go.mod"), "module tiny\n\ngo 1.26\n")
	writeMain(t, folder, text)
	return folder
}

func writeMain(t *testing.T, folder, text string) {
	t.Helper()
	write(t, filepath.Join(folder, "main.go"), "package main\n\nfunc main() { println("+text+") }\n")
}

func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

func TestOneBuildsAndTheOthersWait(t *testing.T) {
	source, cache := tinyModule(t, `"one"`), filepath.Join(t.TempDir(), "cache")
	const callers = 4
	var logs [callers]bytes.Buffer
	var paths [callers]string
	var g errgroup.Group
	for i := range callers {
		g.Go(func() (err error) {
			paths[i], err = buildInto(t.Context(), cache, source, &logs[i])
			return err
		})
	}
	require.NoError(t, g.Wait())
	builds := 0
	for i := range callers {
		require.Equal(t, paths[0], paths[i])
		builds += strings.Count(logs[i].String(), "building the Temporal server, once: this takes")
	}
	require.Equal(t, 1, builds)
	out, err := exec.Command(paths[0]).CombinedOutput()
	require.NoError(t, err)
	require.Equal(t, "one\n", string(out))
}

func TestOtherSourcesAreBuiltAnew(t *testing.T) {
	source, cache := tinyModule(t, `"one"`), t.TempDir()
	var log bytes.Buffer
	one, err := buildInto(t.Context(), cache, source, &log)
	require.NoError(t, err)

	write(t, filepath.Join(source, "main_test.go"), "package main\n")
	same, err := buildInto(t.Context(), cache, source, &log)
	require.NoError(t, err)
	require.Equal(t, one, same, "tests are no part of the binary")

	long := time.Now().Add(-2 * unusedAfter)
	require.NoError(t, os.Chtimes(one, long, long))
	writeMain(t, source, `"two"`)
	two, err := buildInto(t.Context(), cache, source, &log)
	require.NoError(t, err)
	require.NotEqual(t, one, two)
	require.NoFileExists(t, one, "nobody has used it for long")
	require.FileExists(t, two)
}

func TestAFailedBuildNamesTheWayOut(t *testing.T) {
	source, cache := tinyModule(t, `nonsense`), t.TempDir()
	var log bytes.Buffer
	_, err := buildInto(t.Context(), cache, source, &log)
	require.ErrorContains(t, err, "undefined: nonsense")
	require.ErrorContains(t, err, "install the temporal CLI")

	t.Setenv("PATH", t.TempDir())
	_, err = buildInto(t.Context(), cache, source, &log)
	require.ErrorIs(t, err, exec.ErrNotFound)
	require.ErrorContains(t, err, "install the temporal CLI")
}

func TestWithoutGoTheServerThatWasUsedLastServes(t *testing.T) {
	source, cache := tinyModule(t, `"one"`), t.TempDir()
	var log bytes.Buffer
	one, err := buildInto(t.Context(), cache, source, &log)
	require.NoError(t, err)
	writeMain(t, source, `"two"`)
	two, err := buildInto(t.Context(), cache, source, &log)
	require.NoError(t, err)
	before := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(two, before, before))
	write(t, filepath.Join(cache, binaryPrefix+"x.draft"), "half of a build")

	t.Setenv("PATH", t.TempDir())
	log.Reset()
	found, err := buildInto(t.Context(), cache, source, &log)
	require.NoError(t, err)
	require.Equal(t, one, found)
	require.Equal(t, "using the Temporal server "+one+", which was built earlier\n", log.String())
}

func TestWaitingForTheBuildEndsWithTheContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lockFile(t.Context(), path, func() {})
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the user left")
	_, err = lockFile(ctx, path, func() { cancel(gone) })
	require.ErrorIs(t, err, gone)
	unlock()
	unlock, err = lockFile(t.Context(), path, func() { t.Error("a lock that was given back is free") })
	require.NoError(t, err)
	unlock()
}

func TestTheSourceIsThisCheckout(t *testing.T) {
	source, err := serverSource(t.Context())
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(source, "main.go"))
	working, err := os.Getwd()
	require.NoError(t, err)
	require.Equal(t, filepath.Join(filepath.Dir(working), "server"), source)
}
