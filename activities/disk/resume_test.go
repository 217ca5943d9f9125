package disk_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/testrun"
)

// uefi makes what a machine needs that boots by UEFI, which keeps its variables in a file of a format.
func uefi(t *testing.T, dir, format string) (variables string, args []string) {
	const firmware = "/usr/share/OVMF/OVMF_CODE_4M.fd"
	if _, err := os.Stat(firmware); err != nil {
		testrun.Skipf(t, "%s is not there: install the package ovmf", firmware)
	}
	variables = filepath.Join(dir, "data", "variables")
	run(t, "qemu-img", "convert", "-O", format, "/usr/share/OVMF/OVMF_VARS_4M.fd", variables)
	return variables, []string{"-drive", "if=pflash,format=raw,readonly=on,file=" + firmware,
		"-drive", "if=pflash,format=" + format + ",file=" + variables}
}

// TestAGuestGoesOnInTheMiddleOfItsProgram after it was put back with its memory, and is not booted
// by that, except where its machine was started again. It boots by UEFI.
func TestAGuestGoesOnInTheMiddleOfItsProgram(t *testing.T) {
	dir := needGuest(t)
	variables, firmware := uefi(t, dir, "qcow2")
	keep := params{"disk": diskOf(dir), "memory": true}
	back := func(name string) params {
		return params{"disk": diskOf(dir), "checkpoint": checkpointOf(dir, name), "memory": true}
	}
	g := boot(t, dir, virtio, firmware...)
	g.next(5)
	first, from := g.heard.boot, g.last()
	r, err := apply(t, dir, "disk.checkpoint", "early", keep)
	require.NoError(t, err)
	require.Equal(t, true, r.Outputs["running"])
	kept, err := strconv.Atoi(fmt.Sprint(r.Outputs["memory"]))
	require.NoError(t, err)
	require.Greater(t, kept, 1<<20)
	then := g.last()
	lateFrom := g.next(then + 100)
	_, err = apply(t, dir, "disk.checkpoint", "late", keep)
	require.NoError(t, err)
	late := g.last()
	isBetween := func(n, least, most int) { // what it says may be read late
		t.Helper()
		require.GreaterOrEqual(t, n, least)
		require.Less(t, n, most+50)
	}

	_, err = apply(t, dir, "disk.verify", "verify", back("early"))
	require.NoError(t, err)
	_, err = apply(t, dir, "disk.restore", "back", back("early"))
	require.NoError(t, err)
	isBetween(g.jump(), from, then)
	require.Equal(t, first, g.heard.boot)
	_, err = apply(t, dir, "disk.restore", "back", back("early"))
	require.NoError(t, err, "again, which does nothing")
	g.next(then + 20)
	require.Empty(t, g.jumps)

	_, err = apply(t, dir, "disk.restore", "forward", back("late"))
	require.NoError(t, err)
	isBetween(g.jump(), lateFrom, late)
	left := g.left
	require.Equal(t, first, g.heard.boot)

	// The undo of the way back puts back what was there before it, which a person has seen to go.
	u, err := undo(t, dir, "disk.restore", "forward", back("late"), activities.Decision{Done: true})
	require.NoError(t, err)
	require.Equal(t, activities.Drifted, u.Outcome)
	require.Equal(t, "~ the machine shop has run since the step: what it has done since goes\n", u.Drift.Diff)
	u, err = undo(t, dir, "disk.restore", "forward", back("late"), activities.Decision{Done: true, Force: u.Drift.Digest})
	require.NoError(t, err)
	require.Equal(t, activities.Restored, u.Outcome)
	require.InDelta(t, left, g.jump(), 3)
	u, err = undo(t, dir, "disk.restore", "forward", back("late"), activities.Decision{Done: true})
	require.NoError(t, err)
	require.Equal(t, activities.Restored, u.Outcome, "again, which does nothing")
	g.next(g.heard.n + 5)
	require.Empty(t, g.jumps)

	// Without memory, the disk and the variables are disks like any other; with it, a machine that was
	// started again goes on where the other was.
	_, err = apply(t, dir, "disk.checkpoint", "variables", params{"disk": variables})
	require.NoError(t, err)
	g.stop()
	was := content(t, variables)
	write(t, variables, "write -P 7 0 4k")
	_, err = apply(t, dir, "disk.restore", "variables-back",
		params{"disk": variables, "checkpoint": checkpointOf(dir, "variables")})
	require.NoError(t, err)
	require.Equal(t, was, content(t, variables))
	_, err = apply(t, dir, "disk.restore", "stopped", back("late"))
	require.ErrorContains(t, err, "memory: no machine of disk.machines in the worker's config runs with "+diskOf(dir))
	g = boot(t, dir, virtio, firmware...)
	_, err = apply(t, dir, "disk.restore", "started", back("late"))
	require.NoError(t, err)
	for g.next(0); g.heard.boot != first; g.next(0) { // it may have booted meanwhile
	}
	isBetween(g.heard.n, lateFrom, late)
}

// TestMemoryThatCannotBeKept is refused by what the machine says, and nothing stays of it.
func TestMemoryThatCannotBeKept(t *testing.T) {
	dir, m := newMachine(t)
	keep := params{"disk": diskOf(dir), "memory": true}
	_, err := apply(t, dir, "disk.checkpoint", "nvme", keep)
	require.ErrorContains(t, err, "non-migratable")
	require.ErrorContains(t, err, "leave out memory, or give the machine devices that QEMU can keep")
	require.Empty(t, tags(t, diskOf(dir)))
	m.stop()
	_, err = apply(t, dir, "disk.checkpoint", "stopped", keep)
	require.ErrorContains(t, err, "memory: no machine of disk.machines in the worker's config runs with")
	require.Equal(t, activities.Refused, activities.TypeOf(err))

	variables, firmware := uefi(t, dir, "raw")
	m = startMachineWith(t, dir, virtio, nil, append(firmware, "-S", "-m", "64")...)
	_, err = apply(t, dir, "disk.checkpoint", "raw", keep)
	require.ErrorContains(t, err, "memory: the machine shop writes "+variables+" too, which is raw and has no snapshots")
	_, err = apply(t, dir, "disk.checkpoint", "only", params{"disk": diskOf(dir)})
	require.NoError(t, err, "without memory it does not matter")
	_, err = apply(t, dir, "disk.restore", "only-back",
		params{"disk": diskOf(dir), "checkpoint": checkpointOf(dir, "only"), "memory": true})
	require.ErrorContains(t, err, "was taken without; stop the machine shop, and put it back without memory")
	m.stop()

	m = startMachineWith(t, dir, virtio, nil, "-S", "-m", "16")
	_, err = apply(t, dir, "disk.checkpoint", "small", keep)
	require.NoError(t, err)
	m.stop()
	m = startMachineWith(t, dir, virtio, nil, "-S", "-m", "32")
	back := params{"disk": diskOf(dir), "checkpoint": checkpointOf(dir, "small"), "memory": true}
	_, err = apply(t, dir, "disk.restore", "larger", back)
	require.ErrorContains(t, err, "Only a machine of the same type, memory and devices can go on from there")
	m.stop()
	m = startMachineWith(t, dir, virtio, nil, append(other(dir), "-S", "-m", "32")...)
	_, err = undo(t, dir, "disk.restore", "larger", back, activities.Decision{})
	require.ErrorContains(t, err, "writes "+diskOf(dir)+".other, and when the step began, it wrote nothing; start it as it was")
	require.False(t, activities.TypeOf(err).Final(), "it is tried again")
	m.stop()
	startMachineWith(t, dir, virtio, nil, "-S", "-m", "32")
	u, err := undo(t, dir, "disk.restore", "larger", back, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, activities.Restored, u.Outcome)
	require.Equal(t, []string{"unwind-" + checkpointOf(dir, "only"), "unwind-" + checkpointOf(dir, "small")}, tags(t, diskOf(dir)))
}

// TestAMachineThatEndsMeanwhile is asked for by the undo, and put back once it was started again.
func TestAMachineThatEndsMeanwhile(t *testing.T) {
	needTools(t)
	dir := t.TempDir()
	start(t, dir)
	m := startMachineWith(t, dir, virtio, nil, "-m", "16")
	_, err := apply(t, dir, "disk.checkpoint", "one", params{"disk": diskOf(dir), "memory": true})
	require.NoError(t, err)
	m.write("write -P 8 0 64k", "flush")
	before := content(t, diskOf(dir))
	back := params{"disk": diskOf(dir), "checkpoint": checkpointOf(dir, "one"), "memory": true}
	_, err = apply(t, dir, "disk.restore", "back", back)
	require.NoError(t, err)
	m.stop()
	_, err = undo(t, dir, "disk.restore", "back", back, activities.Decision{Done: true})
	require.ErrorContains(t, err, "runs with "+diskOf(dir)+"; start it")
	require.False(t, activities.TypeOf(err).Final(), "it is tried again")

	m = startMachineWith(t, dir, virtio, nil, "-m", "16")
	m.write("write -P 9 1M 64k")
	u, err := undo(t, dir, "disk.restore", "back", back, activities.Decision{Done: true})
	require.NoError(t, err)
	require.Equal(t, activities.Drifted, u.Outcome, "it was booted, and runs")
	u, err = undo(t, dir, "disk.restore", "back", back, activities.Decision{Done: true, Force: u.Drift.Digest})
	require.NoError(t, err)
	require.Equal(t, activities.Restored, u.Outcome)
	require.Contains(t, m.do(`{"execute":"query-status"}`), `"running": true`)
	m.write("flush")
	require.Equal(t, before, content(t, diskOf(dir)))
	require.Equal(t, []string{"unwind-" + checkpointOf(dir, "one")}, tags(t, diskOf(dir)), "the undo leaves nothing behind")
}

// other is a drive more.
func other(dir string) []string {
	return []string{"-drive", "if=virtio,format=qcow2,file=" + strings.ReplaceAll(diskOf(dir), ",", ",,") + ".other"}
}

// TestADriveMore that a machine has got since a checkpoint began is not touched.
func TestADriveMore(t *testing.T) {
	dir, m := newMachine(t)
	keep := params{"disk": diskOf(dir), "memory": true}
	_, err := apply(t, dir, "disk.checkpoint", "one", keep)
	require.ErrorContains(t, err, "non-migratable")
	m.stop()
	startMachineWith(t, dir, virtio, nil, append(other(dir), "-m", "16")...)
	_, err = apply(t, dir, "disk.checkpoint", "one", keep)
	require.ErrorContains(t, err, "writes "+diskOf(dir)+".other, and when the step began, it wrote nothing; start it as it was")
	require.Empty(t, tags(t, diskOf(dir)+".other"))
}

// noted makes the note of a call that was cut short while it kept a machine paused.
func noted(t *testing.T, dir, name string, lost activities.Digest) {
	j, err := journal.Open(filepath.Join(dir, "state", "journal"))
	require.NoError(t, err)
	token, err := j.Token(tokenOf(dir, name))
	require.NoError(t, err)
	first, err := token.Create("paused", map[string]any{"ran": true, "lost": lost})
	require.NoError(t, err)
	require.True(t, first)
}

// pausedMachine is a machine that somebody has paused, put back to a checkpoint.
func pausedMachine(t *testing.T) (dir string, m *machine, back params) {
	needTools(t)
	dir = t.TempDir()
	start(t, dir)
	m = startMachineWith(t, dir, virtio, nil, "-S", "-m", "16")
	_, err := apply(t, dir, "disk.checkpoint", "one", params{"disk": diskOf(dir), "memory": true})
	require.NoError(t, err)
	m.write("write -P 8 0 64k", "flush")
	back = params{"disk": diskOf(dir), "checkpoint": checkpointOf(dir, "one"), "memory": true}
	r, err := apply(t, dir, "disk.restore", "back", back)
	require.NoError(t, err)
	require.Equal(t, "the machine shop was put back to "+checkpointOf(dir, "one")+", and is paused, as it was before", r.Summary)
	return dir, m, back
}

// TestAnUndoOfAPausedMachineThatHasNoCheckpointAnyMore shows what its disk has lost since.
func TestAnUndoOfAPausedMachineThatHasNoCheckpointAnyMore(t *testing.T) {
	dir, m, back := pausedMachine(t)
	_, err := undo(t, dir, "disk.checkpoint", "one", params{"disk": diskOf(dir), "memory": true}, activities.Decision{Done: true})
	require.NoError(t, err)
	m.write("write -P 7 5M 4k", "flush")
	u, err := undo(t, dir, "disk.restore", "back", back, activities.Decision{Done: true})
	require.NoError(t, err)
	require.Equal(t, activities.Drifted, u.Outcome)
	require.Contains(t, u.Drift.Diff, "~ bytes 5242880 to 5246975\n")
	require.Contains(t, u.Observed, "; the machine shop is paused")
	u, err = undo(t, dir, "disk.restore", "back", back, activities.Decision{Done: true, Force: u.Drift.Digest})
	require.NoError(t, err)
	require.Equal(t, activities.Restored, u.Outcome)
	require.Equal(t, "the machine shop is as it was before the step, and is paused", u.Observed)
	require.Empty(t, tags(t, diskOf(dir)))
}

// TestAForcedUndoThatWasCutShort goes on: nobody is asked again about a machine that it keeps paused.
func TestAForcedUndoThatWasCutShort(t *testing.T) {
	dir, m, back := pausedMachine(t)
	m.do(`{"execute":"cont"}`)
	u, err := undo(t, dir, "disk.restore", "back", back, activities.Decision{Done: true})
	require.NoError(t, err)
	require.Equal(t, activities.Drifted, u.Outcome)
	m.write("write -P 7 5M 4k")
	noted(t, dir, "back", u.Drift.Digest)
	m.do(`{"execute":"stop"}`)
	other, err := undo(t, dir, "disk.restore", "back", back, activities.Decision{Done: true, Force: "sha256:another"})
	require.NoError(t, err)
	require.Equal(t, activities.Drifted, other.Outcome, "what was not shown is not overwritten")
	u, err = undo(t, dir, "disk.restore", "back", back, activities.Decision{Done: true, Force: u.Drift.Digest})
	require.NoError(t, err)
	require.Equal(t, activities.Restored, u.Outcome)
	require.Contains(t, m.do(`{"execute":"query-status"}`), `"running": true`)
}

// TestAMachineThatNoSocketLeadsTo any more stays paused until one does, and the undo says so.
func TestAMachineThatNoSocketLeadsTo(t *testing.T) {
	needTools(t)
	dir := t.TempDir()
	start(t, dir)
	m := startMachineWith(t, dir, virtio, nil, "-S", "-m", "16")
	noted(t, dir, "back", "")
	back := params{"disk": diskOf(dir), "checkpoint": checkpointOf(dir, "one"), "memory": true}
	require.NoError(t, os.Rename(qmpOf(dir), qmpOf(dir)+".other"))
	_, err := undo(t, dir, "disk.restore", "back", back, activities.Decision{})
	require.NoError(t, os.Rename(qmpOf(dir)+".other", qmpOf(dir)))
	require.ErrorContains(t, err, "was paused by the step, and cannot be continued")
	require.False(t, activities.TypeOf(err).Final(), "it is tried again")
	_, err = undo(t, dir, "disk.restore", "back", back, activities.Decision{})
	require.NoError(t, err)
	require.Contains(t, m.do(`{"execute":"query-status"}`), `"running": true`)
}

// TestAJobOfUnknownEnd is tried again: the machine has refused nothing, and has not said that it is done.
func TestAJobOfUnknownEnd(t *testing.T) {
	for saving, want := range map[string]string{
		"":   "ActionFailed: machine shop: snapshot-save: EOF",
		"{}": "ActionFailed: machine shop: snapshot-save: another program has dismissed the job unwind",
	} {
		t.Run(want, func(t *testing.T) {
			needTools(t)
			dir := t.TempDir()
			start(t, dir)
			answerAsMonitor(t, dir, map[string]string{
				"qmp_capabilities": `{}`, "query-jobs": `[]`, "query-memory-size-summary": `{"base-memory":1}`, "snapshot-save": saving,
				"query-block": fmt.Sprintf(`[{"device":"root","inserted":{"node-name":"root","drv":"qcow2","file":%q}}]`, diskOf(dir)),
			})
			_, err := apply(t, dir, "disk.checkpoint", "one", params{"disk": diskOf(dir), "memory": true})
			require.EqualError(t, err, want)
			require.False(t, activities.TypeOf(err).Final())
		})
	}
}

// answerAsMonitor answers one connection as the monitor of a machine, and ends it at what has no answer.
func answerAsMonitor(t *testing.T, dir string, answers map[string]string) {
	socket, err := net.Listen("unix", qmpOf(dir))
	require.NoError(t, err)
	t.Cleanup(func() { socket.Close() })
	go func() {
		conn, err := socket.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		for in := json.NewDecoder(conn); ; {
			var command struct {
				Execute string `json:"execute"`
			}
			if in.Decode(&command) != nil || answers[command.Execute] == "" {
				return
			}
			fmt.Fprintf(conn, `{"return":%s}`, answers[command.Execute])
		}
	}()
}
