package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/seed-62bf7108/unwind/activities/disk"
)

// disks are steps that keep a disk of a machine, and put it back as it was kept.
type disks struct {
	Host int

	id     string
	on     string
	path   string
	before string // what it holds
}

func drawDisks(r *rand.Rand, hosts int) *disks { return &disks{Host: r.IntN(hosts)} }

func hasQEMU() error {
	_, err := exec.LookPath("qemu-img")
	return err
}

func (r *run) setDisks(context.Context) error {
	for _, m := range r.fleet.members {
		if err := os.MkdirAll(m.disks(), 0o750); err != nil {
			return err
		}
		m.Config = m.With(&disk.Settings{Roots: []string{m.disks()}})
	}
	return nil
}

func (m *member) disks() string { return filepath.Join(m.dir, "disks") }

// runQEMU runs one of QEMU's own programs, which share nothing with the world.
func runQEMU(ctx context.Context, args ...string) (string, error) {
	said, err := exec.CommandContext(ctx, args[0], args[1:]...).Output()
	if err != nil {
		return "", fmt.Errorf("%v: %w: %s", args, err, said)
	}
	return string(said), nil
}

func (p *disks) name(n int) { p.id = fmt.Sprintf("disk-%d", n) }

func (p *disks) actions() []string { return []string{"disk.checkpoint", "disk.restore"} }

func (p *disks) firstStep() string { return p.id + "-keep" }

func (p *disks) host() (int, bool) { return p.Host, true }

func (p *disks) setUp(ctx context.Context, r *run, task string) error {
	m := r.fleet.members[p.Host]
	p.on, p.path = m.Host, filepath.Join(m.disks(), task+"-"+p.id)
	if _, err := runQEMU(ctx, "qemu-img", "create", "-q", "-f", "qcow2", p.path, "16M"); err != nil {
		return err
	}
	_, err := runQEMU(ctx, "qemu-io", "-f", "qcow2", "-c", "write -P 7 1M 4M", p.path)
	if err == nil {
		p.before, err = runQEMU(ctx, "qemu-img", "map", "--output=json", p.path)
	}
	return err
}

func (p *disks) steps() []map[string]any {
	step := func(what, uses string, with map[string]any) map[string]any {
		return map[string]any{"id": p.id + "-" + what, "uses": uses, "on": p.on, "with": with}
	}
	return []map[string]any{
		step("keep", "disk.checkpoint", map[string]any{"disk": p.path}),
		step("restore", "disk.restore", map[string]any{"disk": p.path,
			"checkpoint": "${{ steps." + p.id + "-keep.outputs.checkpoint }}"}),
	}
}

func (p *disks) judgePart(ctx context.Context, _ *run, e taskEnd) (v verdict, err error) {
	now, err := runQEMU(ctx, "qemu-img", "map", "--output=json", p.path)
	if err != nil {
		return v, err
	}
	if now != p.before {
		v.Lost = append(v.Lost, p.id+": the disk does not hold what it held")
	}
	if said, err := runQEMU(ctx, "qemu-img", "check", p.path); err != nil {
		v.Orphaned = append(v.Orphaned, fmt.Sprintf("%s: the image is not whole: %v %s", p.id, err, said))
	}
	names, err := snapshotsIn(ctx, p.path)
	if err != nil {
		return v, err
	}
	var wanted []string
	if e.committed() {
		keep, restore := e.token(p.id+"-keep"), e.token(p.id+"-restore")
		wanted = []string{"unwind-cp-" + keep, "unwind-before-" + restore, "unwind-left-" + restore}
	}
	for _, name := range names {
		if !slices.Contains(wanted, name) {
			v.Orphaned = append(v.Orphaned, p.id+": snapshot "+name+" is left over")
		}
	}
	return v, nil
}

func (p *disks) clear(context.Context, *run) error { return nil }

func (p *disks) String() string { return fmt.Sprintf("%s on host %d", p.id, p.Host) }
