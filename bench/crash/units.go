package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/seed-62bf7108/unwind/activities/unit"
)

// units are steps that stop a unit that runs, and start one that does not.
type units struct {
	Host int

	id               string
	on               string
	stopped, started string
	flags            string // the folder that says which run
}

// manyUnits is how many units a host has: each is used by one task only.
const manyUnits = 2000

var lastUnit atomic.Int64

func unitName(n int64) string { return fmt.Sprintf("unit-%d", n%manyUnits) }

func drawUnits(r *rand.Rand, hosts int) *units { return &units{Host: r.IntN(hosts)} }

func (r *run) setUnits(context.Context) error {
	for _, m := range r.fleet.members {
		named := map[string]unit.Unit{}
		for n := range int64(manyUnits) {
			named[unitName(n)] = m.unit(unitName(n))
		}
		m.Config = m.With(&unit.Settings{Units: named})
	}
	return nil
}

// unit is one that runs while there is a file of its name.
func (m *member) unit(name string) unit.Unit {
	flag := filepath.Join(m.units(), name)
	return unit.Unit{Start: []string{"sh", "-ec", "echo runs >" + flag}, Stop: []string{"rm", "-f", flag},
		Running: []string{"test", "-e", flag}}
}

func (m *member) units() string { return filepath.Join(m.dir, "units") }

func (p *units) name(n int) { p.id = fmt.Sprintf("unit-%d", n) }

func (p *units) actions() []string { return []string{"unit.stop", "unit.start"} }

func (p *units) firstStep() string { return p.id + "-stop" }

func (p *units) host() (int, bool) { return p.Host, true }

func (p *units) setUp(_ context.Context, r *run, _ string) error {
	m := r.fleet.members[p.Host]
	p.on, p.flags = m.Host, m.units()
	p.stopped, p.started = unitName(lastUnit.Add(1)), unitName(lastUnit.Add(1))
	if err := os.MkdirAll(p.flags, 0o750); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(p.flags, p.stopped), []byte("runs\n"), 0o600)
}

func (p *units) steps() []map[string]any {
	step := func(what, name string) map[string]any {
		return map[string]any{"id": p.id + "-" + what, "uses": "unit." + what, "on": p.on,
			"with": map[string]any{"unit": name}}
	}
	return []map[string]any{step("stop", p.stopped), step("start", p.started)}
}

func (p *units) judgePart(_ context.Context, _ *run, e taskEnd) (v verdict, err error) {
	for name, before := range map[string]bool{p.stopped: true, p.started: false} {
		if runs := exists(filepath.Join(p.flags, name)); runs != (before != e.committed()) {
			v.Lost = append(v.Lost, fmt.Sprintf("%s: %s runs: %t, before: %t", p.id, name, runs, before))
		}
	}
	return v, nil
}

func (p *units) clear(context.Context, *run) error { return nil }

func (p *units) String() string { return fmt.Sprintf("%s on host %d", p.id, p.Host) }
