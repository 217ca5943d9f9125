package crash

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/seed-62bf7108/unwind/activities/disk"
	"github.com/seed-62bf7108/unwind/activities/unit"
)

// machineProgram is QEMU.
const machineProgram = "qemu-system-x86_64"

func hasMachines() bool {
	_, err := exec.LookPath(machineProgram)
	return err == nil
}

// launcher is the program of the unit of a site with a machine: a QEMU without a guest, which has
// the disk open. It gets a word, the name of the machine, and its disk. QEMU puts itself into the
// background once it answers.
const launcher = `set -e
runs() { grep -qsxzF -- "$2" "/proc/$(cat "$3.pid" 2>/dev/null)/cmdline"; }
case $1 in
running) runs "$@" || exit 1 ;;
start) runs "$@" || exec ` + machineProgram + ` -name "$2" -M none -S -nodefaults -display none -daemonize \
	-pidfile "$3.pid" -drive "if=none,id=root,format=qcow2,file=$3" \
	-qmp "unix:$3.qmp,server=on,wait=off" -qmp "unix:$3.own,server=on,wait=off" ;;
stop) if runs "$@"; then
	kill "$(cat "$3.pid")" || true
	while runs "$@"; do sleep 0.02; done
fi ;;
esac`

// diskOf is the disk of a site.
func (m *member) diskOf(site string) string { return filepath.Join(m.disks(), site+".qcow2") }

// machineUnit is the unit of a site with a machine.
func (m *member) machineUnit(site string) unit.Unit {
	launch := func(word string) []string { return []string{"sh", "-c", launcher, "sh", word, site, m.diskOf(site)} }
	return unit.Unit{Start: launch("start"), Stop: launch("stop"), Running: launch("running")}
}

// machineSocket is a link to the socket of the machine of the site that uses a slot now.
func (m *member) machineSocket(slot int) string {
	return filepath.Join(m.disks(), fmt.Sprintf("slot-%d", slot))
}

// setMachines lets the workers ask the machines of sites, and ends those that are left when the
// workers have ended.
func (r *run) setMachines() {
	for _, m := range r.fleet.members {
		machines := map[string]disk.Machine{}
		for slot := range r.Side {
			machines[fmt.Sprintf("slot-%d", slot)] = disk.Machine{QMP: m.machineSocket(slot)}
		}
		m.Config = m.With(&disk.Settings{Roots: []string{m.disks()}, Machines: machines})
		r.closers = append(r.closers, func() error {
			return m.endThose(context.Background(), "sh -c "+launcher, machineProgram)
		})
	}
}

// endThose kills processes until there are none, and does not count them.
func (m *member) endThose(ctx context.Context, names ...string) error {
	left, err := untilNone(ctx, func() (left []string, err error) {
		for _, name := range names {
			for _, pid := range m.those(name) {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have just ended
				left = append(left, fmt.Sprintf("%s %d", name, pid))
			}
		}
		return left, nil
	})
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%v do not end", left)
	}
	return err
}

// machineName is the beginning of the command of a site's machine.
func (s *site) machineName() string { return machineProgram + " -name " + s.id + " " }

// killMachine kills the site's machine, while nobody else looks at the site or changes it, and waits
// until it is gone.
func (s *site) killMachine(ctx context.Context, r *run) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := r.fleet.members[s.Host]
	s.kills += m.killThose(s.machineName())
	return m.endThose(ctx, s.machineName())
}

// setUpDisk makes the disk of a site.
func (s *site) setUpDisk(ctx context.Context, r *run) error {
	m := r.fleet.members[s.Host]
	s.disk = m.diskOf(s.id)
	if _, err := runQEMU(ctx, "qemu-img", "create", "-q", "-f", "qcow2", s.disk, "16M"); err != nil || !s.Machine {
		return err
	}
	link := m.machineSocket(s.slot)
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Symlink(s.disk+".qmp", link)
}

// changeDisk writes to the disk, as the machine does if it runs. One that does not is started after
// every other change.
func (s *site) changeDisk(ctx context.Context, r *run, n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := r.fleet.members[s.Host]
	// Whole clusters: of others the map would say what the filesystem has not stored.
	writes := []string{fmt.Sprintf("write -P %d 1M 64k", n+1), fmt.Sprintf("write -P %d %dk 64k", n+1, 2048+64*n), "flush"}
	if len(m.those(s.machineName())) > 0 {
		if err := s.askMachine(ctx, writes); err != nil {
			return err
		}
	} else {
		args := []string{"qemu-io", "-f", "qcow2"}
		for _, w := range writes {
			args = append(args, "-c", w)
		}
		if err := insist(ctx, func() error { _, err := runQEMU(ctx, append(args, s.disk)...); return err }); err != nil {
			return err
		}
		if s.Machine && n%2 == 0 {
			start := m.machineUnit(s.id).Start
			if err := insist(ctx, func() error { _, err := runQEMU(ctx, start...); return err }); err != nil {
				return err
			}
		}
	}
	// A machine does not answer whether a write has failed.
	wrote := strings.Replace(writes[0], "write", "read", 1)
	_, err := runQEMU(ctx, "qemu-io", "-U", "-r", "-f", "qcow2", "-c", wrote, s.disk)
	return err
}

// askMachine has the machine do what qemu-io does.
func (s *site) askMachine(ctx context.Context, commands []string) error {
	conn, err := (&net.Dialer{Timeout: time.Minute}).DialContext(ctx, "unix", s.disk+".own")
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	requests := []any{map[string]any{"execute": "qmp_capabilities"}}
	for _, c := range commands {
		requests = append(requests, map[string]any{"execute": "human-monitor-command",
			"arguments": map[string]any{"command-line": fmt.Sprintf("qemu-io root %q", c)}})
	}
	said := json.NewDecoder(conn)
	for _, q := range requests {
		if err := json.NewEncoder(conn).Encode(q); err != nil {
			return err
		}
		var answer map[string]any
		for answer["return"] == nil {
			answer = nil
			if err := said.Decode(&answer); err != nil {
				return err
			}
			if answer["error"] != nil {
				return fmt.Errorf("%v: %v", q, answer["error"])
			}
		}
	}
	return nil
}

// lookAtDisk describes what the disk holds, by QEMU's own programs.
func (s *site) lookAtDisk(ctx context.Context, r *run) (is string, err error) {
	raw, err := os.CreateTemp(r.dir, "raw-")
	if err != nil {
		return "", err
	}
	defer os.Remove(raw.Name())
	defer raw.Close()
	err = insist(ctx, func() error { // as long as somebody may be writing another snapshot into the image
		if is, err = runQEMU(ctx, "qemu-img", "map", "-U", "--output=json", s.disk); err == nil {
			_, err = runQEMU(ctx, "qemu-img", "convert", "-U", "-f", "qcow2", "-O", "raw", s.disk, raw.Name())
		}
		return err
	})
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, raw); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x %s", sum.Sum(nil), is), nil
}

// judgeDisk stops the machine, and says what is wrong with the image of an environment that is
// removed. The records of its rollbacks are kept for a while, and each has two snapshots.
func (s *site) judgeDisk(ctx context.Context, r *run, rollbacks int) (v verdict, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Machine {
		if _, err := runQEMU(ctx, r.fleet.members[s.Host].machineUnit(s.id).Stop...); err != nil {
			return v, err
		}
	}
	names, err := snapshotsIn(ctx, s.disk)
	if err != nil {
		return v, err
	}
	kept := map[string]int{}
	for _, name := range names {
		kind := name[:strings.LastIndexByte(name, '-')+1]
		if kept[kind]++; kind == "unwind-cp-" || kept[kind] > rollbacks {
			v.Orphaned = append(v.Orphaned, "snapshot "+name+" is left over in the disk")
		}
	}
	said, err := exec.CommandContext(ctx, "qemu-img", "check", "--output=json", s.disk).Output()
	var found struct {
		Corruptions int `json:"corruptions"`
		Leaks       int `json:"leaks"`
	}
	if unreadable := json.Unmarshal(said, &found); unreadable != nil {
		return v, errors.Join(err, unreadable)
	}
	if found.Corruptions > 0 {
		v.Lost = append(v.Lost, fmt.Sprintf("the image of the disk is damaged: %s", said))
	}
	if found.Leaks > 0 && s.kills == 0 { // a QEMU that is killed leaves some
		v.Orphaned = append(v.Orphaned, fmt.Sprintf("clusters of the disk are left over: %s", said))
	}
	return v, nil
}

// snapshotsIn are the names of the snapshots in an image.
func snapshotsIn(ctx context.Context, image string) (names []string, err error) {
	raw, err := runQEMU(ctx, "qemu-img", "info", "--output=json", image)
	if err != nil {
		return nil, err
	}
	var is struct {
		Snapshots []struct {
			Name string `json:"name"`
		} `json:"snapshots"`
	}
	err = json.Unmarshal([]byte(raw), &is)
	for _, s := range is.Snapshots {
		names = append(names, s.Name)
	}
	return names, err
}
