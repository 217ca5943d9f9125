package disk_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/testrun"
)

// machine is a QEMU that runs, with the disk of a folder.
type machine struct {
	t       testing.TB
	dir     string
	device  string
	process *exec.Cmd
	ended   <-chan struct{}
}

func qmpOf(dir string) string   { return filepath.Join(dir, "qmp") }
func agentOf(dir string) string { return filepath.Join(dir, "agent") }

// startMachine starts a QEMU with the disk of a folder. It answers when this returns.
func startMachine(t testing.TB, dir string, more ...string) *machine {
	return startMachineWith(t, dir, nvme, nil, more...)
}

// The devices that the disk of a machine can be. QEMU keeps no memory of one with the former.
const (
	nvme   = "nvme,drive=root,serial=root,id=root-disk"
	virtio = "virtio-blk-pci,drive=root,serial=root,id=root-disk"
)

// startMachineWith is startMachine of one that has its disk as a device, and a console.
func startMachineWith(t testing.TB, dir, device string, console *os.File, more ...string) *machine {
	testrun.NeedProgram(t, "qemu-system-x86_64", "install the package qemu-system-x86")
	m := &machine{t: t, dir: dir, device: device}
	m.process = exec.Command("qemu-system-x86_64", append([]string{"-M", "q35,accel=tcg", "-nodefaults", "-display", "none",
		"-blockdev", "driver=file,node-name=file,filename=" + strings.ReplaceAll(diskOf(dir), ",", ",,"),
		"-blockdev", "driver=qcow2,node-name=root,file=file", "-device", device,
		"-qmp", "unix:" + qmpOf(dir) + ",server=on,wait=off"}, more...)...)
	m.process.Stderr = os.Stderr
	if console != nil {
		m.process.Stdout = console
	}
	var err error
	m.ended, err = testrun.StartChild(m.process, syscall.SIGKILL)
	require.NoError(t, err)
	t.Cleanup(m.stop)
	require.Eventually(t, func() bool {
		conn, err := net.Dial("unix", qmpOf(dir))
		if err == nil {
			conn.Close()
		}
		return err == nil
	}, time.Minute, 20*time.Millisecond)
	return m
}

// do has the machine's monitor do something.
func (m *machine) do(command string) string {
	m.t.Helper()
	conn, err := net.Dial("unix", qmpOf(m.dir))
	require.NoError(m.t, err)
	defer conn.Close()
	in := bufio.NewReader(conn)
	said := ""
	for _, request := range []string{`{"execute":"qmp_capabilities"}`, command} {
		_, err := fmt.Fprintln(conn, request)
		require.NoError(m.t, err)
		for !strings.Contains(said, `"return"`) {
			said, err = in.ReadString('\n')
			require.NoError(m.t, err)
			require.NotContains(m.t, said, `"error"`)
		}
		if request != command {
			said = ""
		}
	}
	return said
}

// write writes to the disk as the guest would.
func (m *machine) write(commands ...string) {
	m.t.Helper()
	at := "root-disk"
	if m.device == virtio {
		at = "/machine/peripheral/root-disk/virtio-backend"
	}
	for _, c := range commands {
		raw, err := json.Marshal(map[string]any{"execute": "human-monitor-command",
			"arguments": map[string]any{"command-line": fmt.Sprintf("qemu-io -d %s %q", at, c)}})
		require.NoError(m.t, err)
		require.Contains(m.t, m.do(string(raw)), `{"return": ""}`)
	}
}

// stop ends the machine as a unit would: what it has not written yet is written.
func (m *machine) stop() {
	select {
	case <-m.ended:
	default:
		m.do(`{"execute":"quit"}`)
		<-m.ended
	}
}

// newMachine is a folder with a disk that a machine without a guest has open.
func newMachine(t *testing.T) (string, *machine) {
	needTools(t)
	dir := t.TempDir()
	start(t, dir)
	return dir, startMachine(t, dir, "-S", "-m", "16")
}

func TestACheckpointOfARunningMachine(t *testing.T) {
	dir, m := newMachine(t)
	m.write("write -P 21 0 64k")
	r, err := apply(t, dir, "disk.checkpoint", "one", params{"disk": diskOf(dir)})
	require.NoError(t, err)
	require.Equal(t, []any{true, false}, []any{r.Outputs["running"], r.Outputs["frozen"]})
	m.write("write -P 22 32k 64k", "write -P 23 8M 64k")
	_, err = apply(t, dir, "disk.checkpoint", "two", params{"disk": diskOf(dir)})
	require.NoError(t, err)
	m.write("write -P 24 9M 64k")

	both := params{"disk": diskOf(dir), "checkpoint": checkpointOf(dir, "one"), "with": checkpointOf(dir, "two")}
	r, err = apply(t, dir, "disk.compare", "both", both)
	require.NoError(t, err)
	require.Equal(t, "~ bytes 32768 to 98303\n~ bytes 8388608 to 8454143\n", r.Outputs["diff"])
	r, err = apply(t, dir, "disk.compare", "now", params{"disk": diskOf(dir), "checkpoint": checkpointOf(dir, "two")})
	require.NoError(t, err)
	require.Equal(t, "~ bytes 9437184 to 9502719\n", r.Outputs["diff"])

	back := params{"disk": diskOf(dir), "checkpoint": checkpointOf(dir, "one")}
	_, err = apply(t, dir, "disk.verify", "verify", back)
	require.NoError(t, err)
	_, err = apply(t, dir, "disk.restore", "back", back)
	require.ErrorContains(t, err, "is in use by the machine shop; stop it first")
	require.Equal(t, activities.Refused, activities.TypeOf(err))

	u, err := undo(t, dir, "disk.checkpoint", "two", params{"disk": diskOf(dir)}, activities.Decision{Done: true})
	require.NoError(t, err)
	require.Equal(t, activities.Restored, u.Outcome)
	m.stop()
	require.Equal(t, []string{"unwind-" + checkpointOf(dir, "one")}, tags(t, diskOf(dir)))
	ahead := content(t, diskOf(dir))
	_, err = apply(t, dir, "disk.verify", "verify", back)
	require.NoError(t, err, "the map on the disk is that which was read while the machine ran")
	_, err = apply(t, dir, "disk.restore", "again", back)
	require.NoError(t, err)
	is := content(t, diskOf(dir))
	require.Equal(t, []byte{21, 21, 1, 0}, []byte{is[0], is[64<<10-1], is[64<<10], is[8<<20]})
	_, err = undo(t, dir, "disk.restore", "again", back, activities.Decision{Done: true})
	require.NoError(t, err)
	require.Equal(t, ahead, content(t, diskOf(dir)))
	require.Contains(t, run(t, "qemu-img", "check", diskOf(dir)), "No errors were found")
}

// TestAMachineThatIsInTheWay is told by name: a monitor that does not answer, and one that does not
// have the disk.
func TestAMachineThatIsInTheWay(t *testing.T) {
	dir, _ := newMachine(t)
	other := params{"disk": diskOf(dir) + ".other"}
	release := occupy(t, diskOf(dir)+".other")
	_, err := apply(t, dir, "disk.checkpoint", "other", other)
	require.ErrorContains(t, err, ".other is in use: a machine or another program has it open")
	release()
	conn, err := net.Dial("unix", qmpOf(dir))
	require.NoError(t, err)
	defer conn.Close()
	_, err = bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err, "another program has the monitor")
	_, err = apply(t, dir, "disk.checkpoint", "one", params{"disk": diskOf(dir)})
	require.ErrorContains(t, err, "machine shop: qmp_capabilities: no answer within 10s; is another program connected")
}

// frozenOf is a file that is there while the guest in a folder is frozen.
func frozenOf(dir string) string { return filepath.Join(dir, "frozen") }

func isFrozen(dir string) bool {
	_, err := os.Stat(frozenOf(dir))
	return err == nil
}

// agent stands for the agent of a guest: it notes what it is told.
type agent struct {
	frozen string
	deaf   string // the command that it does not answer

	mu    sync.Mutex
	heard []string
}

func startAgent(t testing.TB, dir, deaf string) *agent {
	l, err := net.Listen("unix", agentOf(dir))
	require.NoError(t, err)
	a := &agent{frozen: frozenOf(dir), deaf: deaf}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			a.serve(conn)
		}
	}()
	return a
}

func (a *agent) serve(conn net.Conn) {
	defer conn.Close()
	for in := json.NewDecoder(conn); ; {
		var request struct {
			Execute   string         `json:"execute"`
			Arguments map[string]any `json:"arguments"`
		}
		if in.Decode(&request) != nil {
			return
		}
		a.mu.Lock()
		a.heard = append(a.heard, strings.TrimPrefix(request.Execute, "guest-"))
		deaf := a.deaf == request.Execute
		a.mu.Unlock()
		if deaf {
			continue
		}
		answer := any(2)
		switch request.Execute {
		case "guest-fsfreeze-freeze":
			_ = os.WriteFile(a.frozen, nil, 0o600)
		case "guest-fsfreeze-thaw":
			_ = os.Remove(a.frozen)
		case "guest-sync":
			fmt.Fprintln(conn, `{"return": 4711}`) // to somebody else
			answer = json.Number(fmt.Sprintf("%.0f", request.Arguments["id"]))
		}
		_ = json.NewEncoder(conn).Encode(map[string]any{"return": answer})
	}
}

// list is what it was told, without the greetings.
func (a *agent) list() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []string
	for _, what := range a.heard {
		if what != "sync" {
			all = append(all, what)
		}
	}
	return strings.Join(all, " ")
}

func TestAGuestIsFrozenAndThawed(t *testing.T) {
	dir, _ := newMachine(t)
	a := startAgent(t, dir, "")
	r, err := apply(t, dir, "disk.checkpoint", "one", params{"disk": diskOf(dir)})
	require.NoError(t, err)
	require.Empty(t, r.Notes)
	require.Equal(t, []any{true, true}, []any{r.Outputs["running"], r.Outputs["frozen"]})
	require.Equal(t, "fsfreeze-freeze fsfreeze-thaw", a.list())
}

// TestAGuestThatDoesNotFreezeIsThawed in case that it does so late, and the checkpoint is taken.
func TestAGuestThatDoesNotFreezeIsThawed(t *testing.T) {
	dir, _ := newMachine(t)
	a := startAgent(t, dir, "guest-fsfreeze-freeze")
	r, err := apply(t, dir, "disk.checkpoint", "one", params{"disk": diskOf(dir)})
	require.NoError(t, err)
	require.Equal(t, []any{true, false}, []any{r.Outputs["running"], r.Outputs["frozen"]})
	require.Contains(t, r.Notes[0], "the guest was not frozen, and the checkpoint is as after a loss of power")
	require.True(t, strings.HasPrefix(a.list(), "fsfreeze-freeze fsfreeze-thaw"), a.list())
}

// TestAGuestWithoutAnAgentIsKept as after a loss of power.
func TestAGuestWithoutAnAgentIsKept(t *testing.T) {
	dir, _ := newMachine(t)
	r, err := apply(t, dir, "disk.checkpoint", "one", params{"disk": diskOf(dir)})
	require.NoError(t, err)
	require.Contains(t, r.Notes[0], "the guest was not frozen")
}
