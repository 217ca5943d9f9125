package container_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/docker/enginetest"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/calltest"
	"github.com/seed-62bf7108/unwind/testrun"
)

// updateVariable has what differs as plans tell written down anew, in testdata/alike, by a deep
// run.
const updateVariable = "UPDATE_ALIKE"

// twins are two containers that the same is done in: one by steps, each of which is a layer, and
// one without.
type twins struct {
	*testing.T
	*stage

	layered, bare *containertest.Box
	driver        string
	entries       []activities.Entry
}

// deepLayers is how many layers lie over the container when its twins are compared last.
const deepLayers = 50

// onTwins runs a test on the engine at hand and on one with overlay2.
func onTwins(t *testing.T, test func(x *twins)) {
	t.Helper()
	testrun.NeedRoot(t, "layers over containers")
	t.Run("at hand", func(t *testing.T) {
		t.Parallel()
		s, in := layersStage(t, t.TempDir()), makeTwin(t, containertest.UserlandImage(t))
		test(newTwins(t, s, containertest.Start(t, in), containertest.Start(t, in)))
	})
	t.Run("overlay2", func(t *testing.T) {
		t.Parallel()
		e := enginetest.Start(t)
		s, in := newStageAt(t, container.Config{State: t.TempDir(), Host: e.Host}), makeTwin(t,
			containertest.ImportUserland(t, e))
		test(newTwins(t, s, containertest.StartOn(t, e, in), containertest.StartOn(t, e, in)))
	})
}

// makeTwin makes a container with the userland's programs, the program alike, and a folder for what
// is said.
func makeTwin(t *testing.T, ref string) func(*dockertypes.Config, *dockertypes.HostConfig, *network.NetworkingConfig) {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	return func(config *dockertypes.Config, host *dockertypes.HostConfig, _ *network.NetworkingConfig) {
		config.Image, config.Cmd = ref, []string{"sleep", "infinity"}
		host.Binds, host.Tmpfs = []string{program + ":/usr/local/bin/alike:ro"}, map[string]string{"/says": ""}
	}
}

func newTwins(t *testing.T, s *stage, layered, bare *containertest.Box) *twins {
	t.Helper()
	is, err := bare.Info(t.Context())
	require.NoError(t, err)
	return &twins{T: t, stage: s, layered: layered, bare: bare, driver: is.Driver}
}

// both runs a script in both, beside all steps.
func (x *twins) both(script string) {
	x.Helper()
	x.layered.Run(x, script)
	x.bare.Run(x, script)
}

// step runs a script in both, in one of them as a step.
func (x *twins) step(script string) {
	x.Helper()
	e, _ := x.did(x, x.layered, script)
	x.entries = append(x.entries, e)
	x.bare.Run(x, script)
}

// deepen takes steps until there are so many.
func (x *twins) deepen(steps int) {
	x.Helper()
	for len(x.entries) < steps {
		e, _ := x.did(x, x.layered, "date >/srv/step")
		x.entries = append(x.entries, e)
	}
}

// said reads what has been said in a twin.
func (x *twins) said(b *containertest.Box, name string) string {
	x.Helper()
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(b.Inspect(x).State.Pid), "root/says", name))
	require.NoError(x, err)
	return string(raw)
}

// heard are the texts that a twin has said in a list.
func (x *twins) heard(b *containertest.Box, name string) (all []string) {
	x.Helper()
	require.NoError(x, json.Unmarshal([]byte(x.said(b, name)), &all))
	return all
}

// in is a script that runs another one in a program's folder, and says what that says, its status,
// and what the folder then shows.
func in(p calltest.Program, script string) string {
	return fmt.Sprintf(`export HOME=/srv/%[1]s LC_ALL=C; umask 022; mkdir -p $HOME; cd $HOME
( :; %[2]s
) >/says/%[1]s 2>&1; echo "status $?" >>/says/%[1]s; alike show $HOME >/says/%[1]s.shows`, p.Name, script)
}

// outcome is what a part of a program has said and left.
func (x *twins) outcome(b *containertest.Box, p calltest.Program) string {
	x.Helper()
	return x.said(b, p.Name) + x.shows(b, p)
}

func (x *twins) shows(b *containertest.Box, p calltest.Program) string {
	x.Helper()
	return calltest.Plain(x.heard(b, p.Name+".shows")[0])
}

func TestProgramsDoInLayersWhatTheyDoWithoutButForWhatPlansTell(t *testing.T) {
	t.Parallel()
	onTwins(t, func(x *twins) {
		programs := testrun.DrawShare(x, calltest.Programs...)
		for _, p := range programs {
			x.both(in(p, p.Own))
			require.Equal(x, x.outcome(x.bare, p), x.outcome(x.layered, p), "%s is the same at first", p.Name)
		}
		rest, differ := max(0, deepLayers-3*len(programs)), map[string]string{}
		for n := range 3 {
			for _, p := range programs {
				x.step(in(p, p.Parts[n]))
				differs := difference(x.outcome(x.bare, p), x.outcome(x.layered, p))
				told := p.Told
				if told == "" && x.driver == "fuse-overlayfs" {
					told = calltest.Fuse
				}
				if told == "" {
					assert.Empty(x, differs, "%s, part %d", p.Name, n+1)
				} else if differs != "" {
					differ[fmt.Sprintf("%s, part %d: %s", p.Name, n+1, told)] = differs
				}
			}
			x.deepen(len(x.entries) + rest/(3-n))
			rest -= rest / (3 - n)
		}
		x.compareTold(programs, differ)
		x.Logf("%d parts of programs, %d layers deep: %d differ as plans tell", 3*len(programs), len(x.entries), len(differ))
		x.commitShowsTheSame(programs)
	})
}

// difference lists the lines that only one of two texts has.
func difference(bare, layered string) string {
	var lines []string
	only := func(sign, has, lacks string) {
		left := strings.Split(lacks, "\n")
		for line := range strings.SplitSeq(has, "\n") {
			if at := slices.Index(left, line); at >= 0 {
				left = slices.Delete(left, at, at+1)
			} else {
				lines = append(lines, sign+line+"\n")
			}
		}
	}
	only("-", bare, layered)
	only("+", layered, bare)
	return strings.Join(lines, "")
}

// compareTold compares what differs with what is written down for the storage driver, and the plan.
func (x *twins) compareTold(programs []calltest.Program, differ map[string]string) {
	x.Helper()
	change, err := x.action.Plan(x.Context(), x.layersEntry(),
		step(x, map[string]any{"container": x.layered.Name, "command": "touch /x"}))
	require.NoError(x, err)
	for _, told := range append([]calltest.Program{{Told: calltest.FolderCounts}, {Told: calltest.Filesystems},
		{Told: calltest.Fuse}}, programs...) {
		assert.Contains(x, strings.Join(change.Facts, "\n"), told.Told)
	}
	at := filepath.Join("testdata", "alike", x.driver+".json")
	if testrun.Deep() && os.Getenv(updateVariable) != "" {
		raw, err := json.MarshalIndent(differ, "", " ")
		require.NoError(x, err)
		require.NoError(x, os.WriteFile(at, append(raw, '\n'), 0o600))
	}
	raw, err := os.ReadFile(at)
	require.NoError(x, err, "%s=1 makes it", updateVariable)
	var told map[string]string
	require.NoError(x, json.Unmarshal(raw, &told))
	for _, what := range slices.Sorted(maps.Keys(differ)) {
		assert.Equal(x, withoutCounts(told[what]), withoutCounts(differ[what]), what)
	}
}

var counts = regexp.MustCompile(` \d+ names, as "[^"]*"`)

// withoutCounts leaves out of differences what differs in the count of its names alone. Whether a
// file keeps a count follows from whether a program happens to touch it once more.
func withoutCounts(differences string) string {
	var lines []string
	for line := range strings.Lines(counts.ReplaceAllString(differences, "")) {
		other := map[byte]string{'-': "+", '+': "-"}[line[0]] + line[1:]
		if at := slices.Index(lines, other); at >= 0 {
			lines = slices.Delete(lines, at, at+1)
		} else {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// commitShowsTheSame commits all steps, and compares what a restarted container shows with what its
// layers showed.
func (x *twins) commitShowsTheSame(programs []calltest.Program) {
	x.Helper()
	before := map[string]string{}
	shown := func(p calltest.Program) string { return counts.ReplaceAllString(x.shows(x.layered, p), "") }
	for _, p := range programs {
		before[p.Name] = shown(p)
	}
	x.commit(x.T, x.entries...)
	x.layered.Restart(x)
	for _, p := range programs {
		x.layered.Run(x, in(p, ""))
		assert.Equal(x, before[p.Name], shown(p), "%s after the commit", p.Name)
	}
}

func TestSystemCallsDoInLayersOfContainersWhatTheyDoWithoutButForWhatPlansTell(t *testing.T) {
	t.Parallel()
	testrun.Sampled(t)
	onTwins(t, func(x *twins) {
		all := calltest.Cases()
		x.both("mkdir /srv/own && alike make-objects /srv/own")
		x.step("mkdir /srv/made && alike make-objects /srv/made")
		x.deepen(deepLayers - 1)
		x.step("alike call /srv/own >/says/own; alike call /srv/made >/says/made")
		for madeBy, own := range map[string]bool{"own": true, "made": false} {
			told, bare := 0, x.heard(x.bare, madeBy)
			for i, came := range x.heard(x.layered, madeBy) {
				switch {
				case calltest.Plain(came) == calltest.Plain(bare[i]):
				case all[i].IsTold(bare[i], came, own) || x.driver == "fuse-overlayfs" && all[i].IsToldOverFuse(bare[i]):
					told++
				default:
					assert.Equal(x, bare[i], came, "%s, of what is %s", all[i], madeBy)
				}
			}
			assert.NotZero(x, told)
			x.Logf("%d calls, of what is %s, %d layers deep: %d differ as plans tell", len(all), madeBy, len(x.entries), told)
		}
	})
}
