package readonly_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/pkg/stdcopy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/container/readonly"
)

// sample is a command of the corpus with its expected verdict.
type sample struct {
	command  string
	reads    bool
	everyday bool
}

var written = strings.NewReplacer("␤", "\n", "␍", "\r", "␀", "\x00")

// corpus are the commands in testdata/commands.
func corpus(t testing.TB) []sample {
	t.Helper()
	var all []sample
	for _, file := range []string{"everyday.txt", "adversarial.txt"} {
		raw, err := os.ReadFile(filepath.Join("testdata", file))
		require.NoError(t, err)
		for line := range strings.Lines(string(raw)) {
			if strings.HasPrefix(line, "#") {
				continue
			}
			verdict, command, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
			require.True(t, ok && (verdict == "risky" || verdict == "read-only"), "%s: %q", file, line)
			all = append(all, sample{written.Replace(command), verdict == "read-only", file == "everyday.txt"})
		}
	}
	return all
}

func TestCorpusHasTheVerdictsThatWereWritten(t *testing.T) {
	t.Parallel()
	all, adversarial := corpus(t), 0
	for _, s := range all {
		assert.Equal(t, s.reads, reads(s.command), "read-only: %q", s.command)
		if !s.everyday {
			adversarial++
		}
	}
	assert.GreaterOrEqual(t, len(all), 1000)
	assert.GreaterOrEqual(t, 2*adversarial, len(all))
}

// TestCorpusIsRun runs every command of the corpus in a container. What is taken for read-only must
// not change a thing there. The share of commands that are taken for risky and change nothing is
// what checkpoints cost needlessly; it is printed, and stands in the documentation.
func TestCorpusIsRun(t *testing.T) {
	t.Parallel()
	all, ran := corpus(t), runCorpus(t)
	require.Len(t, ran, len(all))
	var everyday, needless, everydayNeedless int
	for i, s := range all {
		if s.everyday {
			everyday++
		}
		switch {
		case s.reads && len(ran[i]) > 0:
			t.Errorf("FALSE SKIP: %q is taken for read-only and changes %v", s.command, ran[i])
		case s.reads || len(ran[i]) > 0:
		case s.everyday:
			everydayNeedless++
			needless++
		default:
			needless++
		}
	}
	t.Logf("needless checkpoints: everyday %d of %d commands (%.0f %%), all %d of %d (%.0f %%)", everydayNeedless,
		everyday,
		100*float64(everydayNeedless)/float64(everyday), needless, len(all), 100*float64(needless)/float64(len(all)))
}

// runCorpus returns the paths that each command changes.
func runCorpus(t testing.TB) [][]string {
	t.Helper()
	image := containertest.UserlandImage(t)
	b := containertest.Create(t, func(config *dockertypes.Config, _ *dockertypes.HostConfig, _ *network.NetworkingConfig) {
		config.Image, config.Cmd = image, []string{"/.runner"}
	})
	b.Put(t, "/", runnerFiles(t))
	require.NoError(t, b.ContainerStart(t.Context(), b.ID, dockertypes.StartOptions{}))
	ended, failed := b.ContainerWait(t.Context(), b.ID, dockertypes.WaitConditionNotRunning)
	select {
	case e := <-ended:
		log, err := b.ContainerLogs(t.Context(), b.ID, dockertypes.LogsOptions{ShowStdout: true, ShowStderr: true})
		require.NoError(t, err)
		defer log.Close()
		var out, said bytes.Buffer
		_, err = stdcopy.StdCopy(&out, &said, log)
		require.NoError(t, err)
		require.Zero(t, e.StatusCode, "%s", said.String())
		var ran [][]string
		for lines := bufio.NewScanner(&out); lines.Scan(); {
			var changed []string
			require.NoError(t, json.Unmarshal(lines.Bytes(), &changed))
			ran = append(ran, changed)
		}
		return ran
	case err := <-failed:
		require.NoError(t, err)
	}
	return nil
}

// runnerFiles are the program that runs the corpus, and the corpus.
func runnerFiles(t testing.TB) map[string]string {
	t.Helper()
	runner := filepath.Join(t.TempDir(), "runner")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", runner, "./testdata/runner")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	said, err := build.CombinedOutput()
	require.NoError(t, err, "%s", said)
	program, err := os.ReadFile(runner)
	require.NoError(t, err)
	var commands []string
	for _, s := range corpus(t) {
		commands = append(commands, s.command)
	}
	list, err := json.Marshal(commands)
	require.NoError(t, err)
	return map[string]string{".runner": string(program), ".commands": string(list)}
}

func reads(command string) bool {
	_, ok := readonly.ParseScript(command)
	return ok
}
