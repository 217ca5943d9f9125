package command

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// doAsClient types a command into a starter that has no workerSide, as one for another system than
// Linux.
func doAsClient(t *testing.T, o Options, args ...string) typed {
	var out, err bytes.Buffer
	p := &program{options: o, streams: Streams{In: strings.NewReader(""), Out: &out, Err: &err}}
	status := p.run(t.Context(), args)
	return typed{status, out.String(), err.String()}
}

func TestAStarterWithoutAWorkerSideSaysWhereWorkersRun(t *testing.T) {
	file := write(t, good)
	for command, args := range map[string][]string{
		"starter init": {"init"}, "starter dev": {"dev", "--stripe-emulator"}, "starter demo": {"demo", "--exit"},
		"starter postgres": {"postgres", "prepare", "main"}, "--config": {"validate", file, "--config", "worker.yaml"},
	} {
		r := doAsClient(t, fakeOptions(), args...)
		require.Equal(t, statusUsage, r.status, r.err)
		require.Empty(t, r.out)
		require.True(t, strings.HasPrefix(r.err, "starter: "+command+": workers run on Linux"), r.err)
		require.Equal(t, 1, strings.Count(r.err, "\n"), r.err)
		require.Contains(t, r.err, "set TEMPORAL_ADDRESS here")
	}
	help := doAsClient(t, fakeOptions(), "--help").out
	for _, name := range workerCommands {
		require.NotContains(t, help, "\n  "+name+" ")
		require.NotContains(t, help, "starter "+name+" ")
		require.Contains(t, do(t.Context(), fakeOptions(), "--help").out, "\n  "+name+" ")
	}
}

func TestAStarterWithoutAWorkerSideDoesAllThatNeedsOnlyAServer(t *testing.T) {
	d := newDesk(t)
	for _, args := range [][]string{
		{"validate", d.file(good)}, {"plan", d.file(good)}, {"run", d.file(good), "--id", "from-afar", "--watch"},
		{"show", "from-afar"},
		{"list"}, {"rollback", "from-afar", "--watch"}, {"catalog", "file.write"}, {"schema"},
	} {
		r := doAsClient(t, d.options(), args...)
		require.Equal(t, statusOK, r.status, "%v: %s%s", args, r.out, r.err)
		require.NotContains(t, r.out, "not looked at", "the worker is asked")
	}
}

// What a starter for another system than Linux is made of. To build it for one takes minutes: the
// release's deep tests do.
func TestAStarterForAnotherSystemReachesNoWorldAndFewSystemCalls(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,Imports", "..")
	list.Env = append(os.Environ(), "GOOS=darwin", "GOARCH=arm64", "CGO_ENABLED=0")
	out, err := list.Output()
	require.NoError(t, err)
	const module = "github.com/seed-62bf7108/unwind/"
	// These use only what every Unix has. Try `GOOS=darwin go build ./starter` before adding one.
	calling := []string{"activities", "deploy/devserver", "internal/filelock", "starter/command"}
	ours := 0
	for packages := json.NewDecoder(bytes.NewReader(out)); packages.More(); {
		var p struct {
			ImportPath string
			Imports    []string
		}
		require.NoError(t, packages.Decode(&p))
		name, ok := strings.CutPrefix(p.ImportPath, module)
		if !ok {
			continue
		}
		ours++
		require.False(t, strings.HasPrefix(name, "activities/") || name == "worker/host", "%s: only workers reach it", name)
		if slices.Contains(p.Imports, "golang.org/x/sys/unix") || slices.Contains(p.Imports, "syscall") {
			require.Contains(t, calling, name, "%s makes system calls", name)
		}
	}
	require.Greater(t, ours, len(calling))
}
