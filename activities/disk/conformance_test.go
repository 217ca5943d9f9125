package disk_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/disk"
	"github.com/seed-62bf7108/unwind/testrun"
)

func TestMain(m *testing.M) {
	disk.Attend()
	os.Exit(actiontest.Main(m, cases()...))
}

func TestConformance(t *testing.T) {
	needTools(t)
	for _, c := range cases() {
		t.Run(strings.ReplaceAll(c.Name, " ", "_"), func(t *testing.T) { actiontest.Run(t, c) })
	}
}

func needTools(t testing.TB) {
	testrun.NeedProgram(t, "qemu-img", "install the package qemu-utils")
}

type params = map[string]any

func cases() []actiontest.Case {
	restore := actiontest.Case{
		Name: "restore", Action: "disk.restore", Start: startWithCheckpoints,
		With: func(dir string) any { return params{"disk": diskOf(dir), "checkpoint": checkpointOf(dir, "one")} },
		Next: func(dir string) any { return params{"disk": diskOf(dir), "checkpoint": checkpointOf(dir, "two")} },
		Drift: func(t testing.TB, dir string) {
			write(t, diskOf(dir), fmt.Sprintf("write -P %d 3M 64k", content(t, diskOf(dir))[3<<20]+1))
		},
		Meanwhile: func(t testing.TB, dir string) { write(t, diskOf(dir), "write -P 77 5M 64k") },
	}
	keep := actiontest.Case{
		Name: "checkpoint", Action: "disk.checkpoint", Lapses: true, Start: start,
		With: func(dir string) any { return params{"disk": diskOf(dir)} },
		Next: func(dir string) any { return params{"disk": diskOf(dir) + ".other"} },
		Manifest: func(t testing.TB, dir string) string {
			return fmt.Sprint(manifest(t, dir), len(tags(t, diskOf(dir))), len(tags(t, diskOf(dir)+".other")))
		},
	}
	running := keep
	running.Name, running.Start = "checkpoint of a running machine", startRunning
	running.Next = running.With // its other disk is not that of the machine
	running.Manifest = func(t testing.TB, dir string) string {
		require.Eventually(t, func() bool { return !isFrozen(dir) }, time.Minute, 20*time.Millisecond, "the guest stays frozen")
		return fmt.Sprint(len(tags(t, diskOf(dir))))
	}
	resume := restore
	resume.Name, resume.Start = "restore with memory", startWithMachineKept
	resume.With = func(dir string) any {
		return params{"disk": diskOf(dir), "checkpoint": checkpointOf(dir, "one"), "memory": true}
	}
	resume.Next = func(dir string) any {
		return params{"disk": diskOf(dir), "checkpoint": checkpointOf(dir, "two"), "memory": true}
	}
	resume.Drift = func(t testing.TB, dir string) {
		at := &machine{t: t, dir: dir, device: virtio}
		at.write(fmt.Sprintf("write -P %d 3M 64k", content(t, diskOf(dir))[3<<20]+1))
	}
	resume.Meanwhile = nil // what is approved is that all goes which the machine does
	resume.Manifest = func(t testing.TB, dir string) string {
		at := &machine{t: t, dir: dir, device: virtio}
		at.write("flush")
		return manifest(t, dir)
	}
	verify := restore
	verify.Name, verify.Action, verify.Undone, verify.Brief = "verify", "disk.verify", activities.Nothing, true
	verify.Drift, verify.Meanwhile = nil, nil
	compare := verify
	compare.Name, compare.Action = "compare", "disk.compare"
	all := []actiontest.Case{restore, resume, keep, running, verify, compare}
	for i := range all {
		c := &all[i]
		c.Open, c.Anew, c.Sample, c.EitherWay = open, true, 1, true
		if c.Manifest == nil {
			c.Manifest = manifest
		}
	}
	return all
}

func open(dir string) (activities.World, error) {
	return disk.New(disk.Config{
		State: filepath.Join(dir, "state"), Roots: []string{filepath.Join(dir, "data")},
		Machines: map[string]disk.Machine{"shop": {QMP: qmpOf(dir), Agent: agentOf(dir)}},
	})
}

func diskOf(dir string) string { return filepath.Join(dir, "data", "shop,1.qcow2") }

// start makes two disks of small clusters.
func start(t testing.TB, dir string) {
	require.NoError(t, os.Mkdir(filepath.Join(dir, "data"), 0o700))
	for _, at := range []string{diskOf(dir), diskOf(dir) + ".other"} {
		create(t, "-o", "cluster_size=4k", at, "16M")
		write(t, at, "write -P 1 0 1M", "write -P 2 4M 1M")
	}
}

// startRunning starts a machine without a guest, and what stands for the agent in it.
func startRunning(t testing.TB, dir string) {
	start(t, dir)
	startAgent(t, dir, "")
	startMachine(t, dir, "-S", "-m", "16")
}

// startWithCheckpoints makes disks one of which has changed since each of two checkpoints.
func startWithCheckpoints(t testing.TB, dir string) {
	start(t, dir)
	keepAs(t, dir, "one")
	write(t, diskOf(dir), "write -P 3 512k 1M", "discard 4M 64k")
	keepAs(t, dir, "two")
	write(t, diskOf(dir), "write -P 4 0 64k", "write -P 5 9M 1M", "write -z 4M 512k")
}

// startWithMachineKept starts a machine that writes two disks, which have changed since each of two
// checkpoints with its memory.
func startWithMachineKept(t testing.TB, dir string) {
	start(t, dir)
	m := startMachineWith(t, dir, virtio, nil, "-S", "-m", "16", "-drive",
		"if=virtio,format=qcow2,file="+strings.ReplaceAll(diskOf(dir), ",", ",,")+".other")
	for n, name := range []string{"one", "two"} {
		_, err := apply(t, dir, "disk.checkpoint", name, params{"disk": diskOf(dir), "memory": true})
		require.NoError(t, err)
		m.write(fmt.Sprintf("write -P %d 512k 1M", n+3))
		m.do(`{"execute":"human-monitor-command","arguments":{"command-line":"qemu-io virtio0 \"write -P 9 2M 64k\""}}`)
	}
}

// tokenOf is the token of a step with a name. Calls of one token end what others have started.
func tokenOf(dir, name string) string { return activities.NewToken(dir, name, 0) }

func checkpointOf(dir, name string) string { return "cp-" + tokenOf(dir, name) }

// keepAs takes a checkpoint with a name.
func keepAs(t testing.TB, dir, name string) {
	r, err := apply(t, dir, "disk.checkpoint", name, params{"disk": diskOf(dir)})
	require.NoError(t, err)
	require.Equal(t, checkpointOf(dir, name), r.Outputs["checkpoint"])
}

// stepOf is a step with a name, and its action.
func stepOf(t testing.TB, dir, action, name string, with params) (activities.Action, activities.Entry, activities.Step) {
	t.Helper()
	w, err := open(dir)
	require.NoError(t, err)
	mark, err := w.Journal(context.Background())
	require.NoError(t, err)
	raw, err := json.Marshal(with)
	require.NoError(t, err)
	i := slices.IndexFunc(w.Actions, func(a activities.Action) bool { return a.Spec().Name == action })
	e := activities.Entry{Token: tokenOf(dir, name), Action: action, Params: raw, Place: activities.Place{Journal: mark}}
	return w.Actions[i], e, activities.Step{ID: name, With: raw}
}

func apply(t testing.TB, dir, action, name string, with params) (activities.Result, error) {
	t.Helper()
	a, e, s := stepOf(t, dir, action, name, with)
	return a.Apply(context.Background(), e, s, "")
}

func undo(t testing.TB, dir, action, name string, with params, d activities.Decision) (activities.Undone, error) {
	t.Helper()
	a, e, _ := stepOf(t, dir, action, name, with)
	return a.Undo(context.Background(), e, d)
}

func run(t testing.TB, program string, args ...string) string {
	t.Helper()
	out, err := exec.Command(program, args...).CombinedOutput()
	require.NoError(t, err, "%s %v: %s", program, args, out)
	return string(out)
}

func create(t testing.TB, args ...string) {
	t.Helper()
	run(t, "qemu-img", append([]string{"create", "-q", "-f", "qcow2"}, args...)...)
}

// write has QEMU's own program write to a disk, as a machine would.
func write(t testing.TB, disk string, commands ...string) {
	t.Helper()
	args := []string{"-f", "qcow2", "-d", "unmap"}
	for _, c := range commands {
		args = append(args, "-c", c)
	}
	out := run(t, "qemu-io", append(args, disk)...)
	require.NotContains(t, out, "failed")
}

// content is what a disk holds, as QEMU's own program reads it.
func content(t testing.TB, disk string) []byte {
	t.Helper()
	raw := filepath.Join(t.TempDir(), "raw")
	run(t, "qemu-img", "convert", "-U", "-f", "qcow2", "-O", "raw", disk, raw)
	b, err := os.ReadFile(raw)
	require.NoError(t, err)
	return b
}

func manifest(t testing.TB, dir string) string {
	all, err := filepath.Glob(filepath.Join(dir, "data", "*"))
	require.NoError(t, err)
	var b bytes.Buffer
	for _, at := range all {
		fmt.Fprintf(&b, "%s %x %s\n", filepath.Base(at), sha256.Sum256(content(t, at)), isWhole(t, at))
	}
	return b.String()
}

// isWhole says what QEMU finds wrong with an image. Clusters that nobody refers to are no harm, which
// a killed program may leave for as long as nobody comes back for its step.
func isWhole(t testing.TB, disk string) string {
	out, err := exec.Command("qemu-img", "check", "-U", "--output=json", disk).Output()
	var found struct {
		Corruptions int `json:"corruptions"`
	}
	require.NoError(t, json.Unmarshal(out, &found), "%v %s", err, out)
	return fmt.Sprint(found.Corruptions, " corruptions")
}

// tags are the names of the snapshots of a disk.
func tags(t testing.TB, disk string) (names []string) {
	var info struct {
		Snapshots []struct {
			Name string `json:"name"`
		} `json:"snapshots"`
	}
	require.NoError(t, json.Unmarshal([]byte(run(t, "qemu-img", "info", "-U", "--output=json", disk)), &info))
	for _, s := range info.Snapshots {
		names = append(names, s.Name)
	}
	return names
}
