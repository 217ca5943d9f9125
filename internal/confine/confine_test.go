package confine

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/testrun"
)

const execVar = "UNWIND_CONFINE_TEST_EXEC"

func TestMain(m *testing.M) {
	if hidden := os.Getenv(execVar); hidden != "" {
		err := Limits{Hidden: []string{hidden}}.Exec("/bin/sh", []string{"sh", "-c", "cat " + hidden}, os.Environ())
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(m.Run())
}

// shell runs a script within the limits.
func shell(t *testing.T, l Limits, script string) (string, error) {
	t.Helper()
	var said bytes.Buffer
	c := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
	c.Stdout, c.Stderr = &said, &said
	require.NoError(t, l.Start(c))
	err := c.Wait()
	return said.String(), err
}

func needLandlock(t *testing.T) {
	t.Helper()
	if err := Available(); err != nil {
		testrun.Skipf(t, "programs cannot be confined here: %v", err)
	}
}

func TestAConfinedProgram(t *testing.T) {
	needLandlock(t)
	dir := t.TempDir()
	for _, name := range []string{"state/journal", "state/work", "beside", "config"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name, "file"), []byte("content of "+name), 0o600))
	}
	require.NoError(t, os.Symlink(filepath.Join(dir, "state"), filepath.Join(dir, "link")))
	l := Limits{
		Hidden: []string{filepath.Join(dir, "link"), filepath.Join(dir, "config", "file")},
		Open:   []string{filepath.Join(dir, "state", "work")},
	}
	readOnly := l
	readOnly.ReadOnly = true
	readable := l
	readable.Readable = []string{filepath.Join(dir, "state", "journal")}
	for _, c := range []struct {
		name, script string
		limits       Limits
		want         bool
	}{
		{"reads what is beside", "cat DIR/beside/file", l, true},
		{"writes beside",
			"echo x > DIR/beside/new && mkdir DIR/beside/folder && mv DIR/beside/new DIR/beside/folder && rm -r " +
				"DIR/beside/folder", l, true},
		{"reads what is hidden", "cat DIR/state/journal/file", l, false},
		{"reads it through a link", "cat DIR/link/journal/file", l, false},
		{"reads it through another link", "ln -s DIR/state DIR/beside/link; cat DIR/beside/link/journal/file", l, false},
		{"reads it by another name", "ln DIR/state/journal/file DIR/beside/hard && cat DIR/beside/hard", l, false},
		{"reads it moved", "mv DIR/state DIR/beside/ && cat DIR/beside/state/journal/file", l, false},
		{"reads a hidden file", "cat DIR/config/file", l, false},
		{"replaces what is hidden", "echo x > DIR/state/journal/file", l, false},
		{"truncates it", "truncate -s 0 DIR/state/journal/file", l, false},
		{"removes it", "rm DIR/state/journal/file", l, false},
		{"works in what is open", "cat DIR/state/work/file && echo x > DIR/state/work/new && mkdir DIR/state/work/folder", l,
			true},
		{"reads the environment of its parent", fmt.Sprintf("cat /proc/%d/environ", os.Getpid()), l, false},
		{"reads how the memory of its parent is laid out", fmt.Sprintf("cat /proc/%d/maps", os.Getpid()), l, false},
		{"opens the memory of its parent", fmt.Sprintf("exec 3< /proc/%d/mem", os.Getpid()), l, false},
		{"goes through the root of its parent", fmt.Sprintf("cat /proc/%d/root/DIR/state/journal/file", os.Getpid()), l,
			false},
		{"reads its own environment", "cat /proc/self/environ", l, true},
		{"mounts over it", "mount -t tmpfs none DIR/beside", l, false},
		{"reads the kernel's memory", "head -c 1 /proc/kcore", l, false},
		{"makes a device", "mknod DIR/beside/disk b 1 1", l, false},
		{"has a child that reads what is hidden", "sh -c 'cat DIR/state/journal/file'", l, false},
		{"throws away", "echo x > /dev/null && ls / > /dev/null", readOnly, true},
		{"only reads what is beside", "cat DIR/beside/file", readOnly, true},
		{"writes beside though it only reads", "echo x > DIR/beside/other", readOnly, false},
		{"writes in what is open though it only reads", "echo x > DIR/state/work/other", readOnly, true},
		{"reads what is readable", "cat DIR/state/journal/file", readable, true},
		{"writes what is readable", "echo x > DIR/state/journal/file", readable, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			said, err := shell(t, c.limits, strings.ReplaceAll(c.script, "DIR", dir))
			assert.Equal(t, c.want, err == nil, "%v: %s", err, said)
		})
	}
	raw, err := os.ReadFile(filepath.Join(dir, "state", "journal", "file"))
	require.NoError(t, err, "who starts a confined program is not confined")
	assert.Equal(t, "content of state/journal", string(raw))
}

func TestAProgramThatTakesOverIsConfined(t *testing.T) {
	needLandlock(t)
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("4711"), 0o600))
	c := exec.CommandContext(t.Context(), "/proc/self/exe")
	c.Env = append(os.Environ(), execVar+"="+secret)
	said, err := c.CombinedOutput()
	require.Error(t, err)
	assert.Equal(t, 1, c.ProcessState.ExitCode(), "%s", said)
	assert.Contains(t, string(said), "ermission denied")
}
