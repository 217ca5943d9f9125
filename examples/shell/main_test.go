package main_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestShell runs the program as an image would: under several names, in an empty environment.
func TestShell(t *testing.T) {
	dir := t.TempDir()
	sh := filepath.Join(dir, "sh")
	build := exec.Command("go", "build", "-o", sh, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	said, err := build.CombinedOutput()
	require.NoError(t, err, "%s", said)
	for _, name := range []string{"cat", "sleep", "ls"} {
		require.NoError(t, os.Symlink("sh", filepath.Join(dir, name)))
	}
	script := filepath.Join(dir, "script")
	require.NoError(t, os.WriteFile(script, []byte("echo got $1 $#"), 0o600))
	for _, c := range []struct {
		argv   []string
		stdin  string
		stdout string
		status int
	}{
		{argv: []string{"sh", "-c", "echo a | cat; mkdir -p d/e && ls d"}, stdout: "a\ne\n"},
		{argv: []string{"sh", "-c", "exit 3"}, status: 3},
		{argv: []string{"sh", "-c", "echo $1-$2", "name", "x", "y z"}, stdout: "x-y z\n"},
		{argv: []string{"sh", "-c", "sh -c 'echo inner'"}, stdout: "inner\n"},
		{argv: []string{"sh", "-c", "no-such-program"}, status: 127},
		{argv: []string{"sh", "-c", "echo 'unclosed"}, status: 2},
		{argv: []string{"sh", "-c"}, status: 2},
		{argv: []string{"sh", "-x"}, status: 2},
		{argv: []string{"sh"}, stdin: "echo from stdin", stdout: "from stdin\n"},
		{argv: []string{"sh", script, "one", "two"}, stdout: "got one 2\n"},
		{argv: []string{"sh", "/no/such/script"}, status: 127},
		{argv: []string{"cat", script}, stdout: "echo got $1 $#"},
		{argv: []string{"cat", "it's $HOME"}, status: 1},
		{argv: []string{"sleep", "0.01"}},
		{argv: []string{"sleep", "soon"}, status: 1},
		{argv: []string{"sleep"}, status: 1},
	} {
		cmd := exec.Command(filepath.Join(dir, c.argv[0]), c.argv[1:]...)
		cmd.Env, cmd.Dir, cmd.Stdin = []string{"PATH=" + dir}, t.TempDir(), bytes.NewBufferString(c.stdin)
		stdout, err := cmd.Output()
		status := 0
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			status = exit.ExitCode()
		} else {
			require.NoError(t, err, "%q", c.argv)
		}
		assert.Equal(t, c.status, status, "%q", c.argv)
		assert.Equal(t, c.stdout, string(stdout), "%q", c.argv)
	}
}
