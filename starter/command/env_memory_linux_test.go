package command

import (
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/disk"
	"github.com/seed-62bf7108/unwind/activities/unit"
	"github.com/seed-62bf7108/unwind/testrun"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/environment"
)

// monitor has the monitor of a machine carry out commands, and returns the last answer.
func (s *site) monitor(commands ...string) (answer map[string]any) {
	s.Helper()
	conn, err := net.Dial("unix", filepath.Join(s.root, "qmp"))
	require.NoError(s, err)
	defer conn.Close()
	in := json.NewDecoder(conn)
	for _, c := range append([]string{`{"execute":"qmp_capabilities"}`}, commands...) {
		_, err := fmt.Fprintln(conn, c)
		require.NoError(s, err)
		for answer = nil; answer["return"] == nil; {
			answer = nil
			require.NoError(s, in.Decode(&answer))
			require.NotContains(s, answer, "error")
		}
	}
	return answer
}

// TestAMachineGoesBackWithItsMemory while it runs, and forward again.
func TestAMachineGoesBackWithItsMemory(t *testing.T) {
	testrun.NeedProgram(t, "qemu-system-x86_64", "install the package qemu-system-x86")
	testrun.NeedProgram(t, "qemu-img", "install the package qemu-utils")
	s := newSite(t)
	s.stopWorker()
	s.startWorker(s.worlds, func(c *host.Config) {
		*c = c.With(&disk.Settings{Roots: []string{s.root},
			Machines: map[string]disk.Machine{"shop": {QMP: filepath.Join(s.root, "qmp")}}})
		*c = c.With(&unit.Settings{Units: map[string]unit.Unit{"app": {
			Start: []string{"false"}, Running: []string{"true"}, Stop: []string{"false"},
			Health: unit.Health{Command: []string{"sh", "-ec",
				"cd " + s.root + "; if test -e well-once; then mv well-once ill; else test ! -e ill; fi"}},
		}}})
	})
	s.write("environment.yaml", "name: "+s.name+"\nunit: app\nhealthy: 100ms\nquiesce: none\n"+
		"parts:\n  machine: {disk: "+s.root+"/root.qcow2, memory: true}\n")
	s.sh("qemu-img create -q -f qcow2 root.qcow2 16M; qemu-img create -q -f qcow2 data.qcow2 16M")
	machine := exec.Command("qemu-system-x86_64", "-M", "q35,accel=tcg", "-nodefaults", "-display", "none", "-m", "16",
		"-drive", "if=none,id=root,format=qcow2,file="+s.root+"/root.qcow2", "-device", "virtio-blk-pci,drive=root",
		"-drive", "if=none,id=data,format=qcow2,file="+s.root+"/data.qcow2", "-device", "virtio-blk-pci,drive=data",
		"-qmp", "unix:"+s.root+"/qmp,server=on,wait=off")
	ended, err := testrun.StartChild(machine, syscall.SIGKILL)
	require.NoError(t, err)
	t.Cleanup(func() { _ = machine.Process.Kill(); <-ended })
	require.Eventually(t, func() bool {
		conn, err := net.Dial("unix", s.root+"/qmp")
		return err == nil && conn.Close() == nil // the monitor has one client at a time
	}, time.Minute, 20*time.Millisecond)
	// The firmware finds nothing to boot, and waits.
	write := func(pattern int) {
		for _, drive := range []string{"root", "data"} {
			s.monitor(fmt.Sprintf(`{"execute":"human-monitor-command","arguments":{"command-line":"qemu-io %s \"write -P %d 0 64k\""}}`,
				drive, pattern))
		}
	}
	is := func() string {
		s.monitor(`{"execute":"human-monitor-command","arguments":{"command-line":"qemu-io root flush"}}`,
			`{"execute":"human-monitor-command","arguments":{"command-line":"qemu-io data flush"}}`)
		return s.sh("for f in root data; do qemu-img convert -U -O raw $f.qcow2 raw && head -c 65536 raw | sha256sum; done")
	}
	s.apply()
	write(1)
	before := is()
	first := s.checkpoint()
	require.False(t, first.Quiesced)
	require.Greater(t, first.Parts[0].Bytes, int64(1<<18), "it has the memory")
	plan := s.ok("plan", s.task("- {id: keep, uses: environment.checkpoint, with: {environment: NAME}}\n"+
		"- {id: back, uses: environment.rollback, with: {environment: NAME, to: "+first.ID+"}}\n"))
	require.Contains(t, plan, "the machine with "+s.root+"/root.qcow2 stands still while its memory is written")
	require.Contains(t, plan, "~ machine (disk "+s.root+"/root.qcow2 and the memory of its machine) is put back, exactly")
	write(2)
	broken := is()
	back := s.rollBack(first.ID)
	require.Equal(t, before, is())
	var stages []string
	for _, stage := range back.Stages {
		stages = append(stages, string(stage.Stage)+" "+stage.Status)
	}
	require.Equal(t, []string{"verify ok", "safety-checkpoint ok", "restore-disks ok", "health-check ok"}, stages)
	require.Contains(t, back.Stages[2].Notes, "the machine shop goes on from "+first.Parts[0].Snapshot)
	require.Equal(t, environment.PreRollback, back.Safety.Trigger)
	s.rollBack(back.Safety.ID)
	require.Equal(t, broken, is())
	require.Equal(t, map[string]any{"running": true, "singlestep": false, "status": "running"},
		s.monitor(`{"execute":"query-status"}`)["return"])

	// A failing health check takes the machine back as well.
	s.sh("touch well-once")
	r := s.do("env", "rollback", s.name, first.ID)
	require.Equal(t, statusFailed, r.status)
	require.Contains(t, r.err, "the unit app is not healthy")
	require.Equal(t, broken, is())
	require.Equal(t, map[string]any{"running": true, "singlestep": false, "status": "running"},
		s.monitor(`{"execute":"query-status"}`)["return"])
	s.ok("env", "remove", s.name)
	require.NotContains(t, s.sh("qemu-img info -U root.qcow2; qemu-img info -U data.qcow2"), "unwind-cp-")
}
