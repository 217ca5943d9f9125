package container_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/pkg/stdcopy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
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
		raw, err := os.ReadFile(filepath.Join("testdata", "commands", file))
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
		assert.Equal(t, s.reads, container.ReadScript(s.command), "read-only: %q", s.command)
		if !s.everyday {
			adversarial++
		}
	}
	assert.GreaterOrEqual(t, len(all), 1000)
	assert.GreaterOrEqual(t, 2*adversarial, len(all))
}

// TestCorpusIsRun runs every command of the corpus in a container. What is taken for read-only must not change a thing
// there. The share of commands that are taken for risky and change nothing is what checkpoints cost needlessly; it is
// printed, and stands in the documentation.
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
	t.Logf("needless checkpoints: everyday %d of %d commands (%.0f %%), all %d of %d (%.0f %%)", everydayNeedless, everyday,
		100*float64(everydayNeedless)/float64(everyday), needless, len(all), 100*float64(needless)/float64(len(all)))
}

// runCorpus returns the paths that each command changes.
func runCorpus(t testing.TB) [][]string {
	t.Helper()
	b := containertest.Start(t, inUserland(t), func(config *dockertypes.Config, _ *dockertypes.HostConfig, _ *network.NetworkingConfig) {
		config.Cmd = []string{"/.runner"}
	})
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

// inUserland makes a container of the userland's image.
func inUserland(t testing.TB) func(*dockertypes.Config, *dockertypes.HostConfig, *network.NetworkingConfig) {
	ref := userlandImage(t)
	return func(config *dockertypes.Config, _ *dockertypes.HostConfig, _ *network.NetworkingConfig) {
		config.Image = ref
	}
}
