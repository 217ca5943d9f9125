package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/testrun"
)

// unpack returns the files of an archive by their names below its folder.
func unpack(t *testing.T, content []byte) (folder string, files map[string]tar.Header) {
	t.Helper()
	files = map[string]tar.Header{}
	uncompressed, err := gzip.NewReader(bytes.NewReader(content))
	require.NoError(t, err)
	for r := tar.NewReader(uncompressed); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return folder, files
		}
		require.NoError(t, err)
		var name string
		folder, name, _ = strings.Cut(h.Name, "/")
		files[name] = *h
		if slices.Contains([]string{"starter", "worker"}, name) &&
			strings.HasSuffix(folder, "_"+runtime.GOOS+"_"+runtime.GOARCH) {
			program, err := io.ReadAll(r)
			require.NoError(t, err)
			runAlone(t, name, program)
		}
	}
}

// runAlone runs the program in an empty folder, with no other program on PATH and an empty home.
func runAlone(t *testing.T, name string, content []byte) {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(program, content, 0o700))
	alone := func(args ...string) (string, error) {
		c := exec.CommandContext(t.Context(), program, args...)
		c.Dir, c.Env = t.TempDir(), []string{"HOME=" + dir, "PATH=" + dir}
		out, err := c.CombinedOutput()
		return string(out), err
	}
	if name == "worker" {
		out, err := alone()
		require.Error(t, err)
		require.Contains(t, out, "it opens no world")
		return
	}
	out, err := alone("--version")
	require.NoError(t, err, out)
	out, err = alone("init")
	require.NoError(t, err, out)
	require.Contains(t, out, "starter dev --config ")
	out, err = alone("dev", "--port", "0", "--ui-port", "0")
	require.Error(t, err)
	require.Contains(t, out, "install the temporal CLI")
	require.NotContains(t, out, "go list")
}

func TestAnArchiveHoldsProgramsCompletionAndManPages(t *testing.T) {
	if !testrun.Deep() {
		t.Skip("it builds the programs anew, which takes minutes: UNWIND_TEST_DEEP=1 runs it")
	}
	out := t.TempDir()
	here := platform{runtime.GOOS, runtime.GOARCH}
	c := newCommand()
	mac := platform{"darwin", "arm64"}
	c.SetArgs([]string{"--out", out, "--only", here.String(), "--only", mac.String()})
	var said bytes.Buffer
	c.SetOut(&said)
	require.NoError(t, c.ExecuteContext(t.Context()))
	var names []string
	var checksums strings.Builder
	for _, p := range []platform{here, mac} {
		archives, err := filepath.Glob(filepath.Join(out, "unwind_*_"+p.os+"_"+p.arch+".tar.gz"))
		require.NoError(t, err)
		require.Len(t, archives, 1)
		content, err := os.ReadFile(archives[0])
		require.NoError(t, err)
		checkArchive(t, p, filepath.Base(archives[0]), content)
		names = append(names, archives[0])
		fmt.Fprintf(&checksums, "%x  %s\n", sha256.Sum256(content), filepath.Base(archives[0]))
	}
	require.Equal(t, strings.Join(append(names, filepath.Join(out, "SHA256SUMS")), "\n")+"\n", said.String())
	sums, err := os.ReadFile(filepath.Join(out, "SHA256SUMS"))
	require.NoError(t, err)
	require.Equal(t, checksums.String(), string(sums))
}

func checkArchive(t *testing.T, p platform, archive string, content []byte) {
	t.Helper()
	folder, files := unpack(t, content)
	require.Equal(t, strings.TrimSuffix(archive, ".tar.gz"), folder)
	for _, name := range []string{
		"LICENSE", "README.md", "completions/_starter", "completions/starter.bash", "completions/starter.fish",
		"man/man1/starter.1", "man/man1/starter-run.1", "man/man1/starter-session-open.1",
	} {
		require.Contains(t, files, name)
		require.NotZero(t, files[name].Size, name)
		require.Equal(t, int64(0o644), files[name].Mode, name)
	}
	var programs []string
	for name, f := range files {
		if f.Mode == 0o755 {
			programs = append(programs, name)
		}
	}
	require.ElementsMatch(t, p.programs(), programs)
	_, explainsDev := files["man/man1/starter-dev.1"]
	require.Equal(t, slices.Contains(programs, "worker"), explainsDev)
}

func TestTheSameFilesMakeTheSameArchive(t *testing.T) {
	one, err := archive("folder", []file{{"b", 0o644, []byte("2")}, {"a", 0o755, []byte("1")}})
	require.NoError(t, err)
	other, err := archive("folder", []file{{"a", 0o755, []byte("1")}, {"b", 0o644, []byte("2")}})
	require.NoError(t, err)
	require.Equal(t, one, other)
}

func TestAnUnknownPlatformIsRefusedWithTheKnown(t *testing.T) {
	_, err := choosePlatforms([]string{"plan9/386"})
	require.EqualError(t, err,
		"--only plan9/386: there is no such platform; there are linux/amd64, linux/arm64, darwin/amd64, darwin/arm64")
	chosen, err := choosePlatforms([]string{"linux/arm64"})
	require.NoError(t, err)
	require.Equal(t, []platform{{"linux", "arm64"}}, chosen)
}
