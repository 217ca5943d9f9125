package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities/stripe/emulator"
)

// fault is one thing that goes wrong while a task runs.
type fault struct {
	Kind  kind
	Host  int           // the host that it hits
	World string        // the world whose server of databases it hits
	Site  *site         // the site whose machine it hits
	After time.Duration // since the task was started; a fault at a point is armed before
	For   time.Duration
	// At is the point, and Nth counts, from 1, how often processes of the host reach it until the
	// fault strikes.
	At  string
	Nth int
}

func (f fault) String() string {
	if f.At != "" {
		return fmt.Sprintf("%s crash-%d at %s (%d)", f.Kind, f.Host, f.At, f.Nth)
	}
	if f.World != "" {
		return fmt.Sprintf("%s of %s after %s for %s", f.Kind, f.World, f.After.Round(time.Millisecond),
			f.For.Round(time.Millisecond))
	}
	return fmt.Sprintf("%s crash-%d after %s for %s", f.Kind, f.Host, f.After.Round(time.Millisecond),
		f.For.Round(time.Millisecond))
}

// kind names a fault.
type kind string

const (
	killAt      kind = "kill at"       // a process of the host, at a point
	freezeAt    kind = "freeze at"     // the same, stopped there and woken when the task has ended
	killWorker  kind = "kill worker"   // at some moment
	killAll     kind = "kill all"      // every host's worker at once
	killExecs   kind = "kill execs"    // what supervises the commands of the host
	killHelper  kind = "kill helper"   // what keeps the layers of its containers
	cutOff      kind = "cut off"       // the connections of the host's worker to the server break
	killServer  kind = "kill server"   // and start it again
	stallEngine kind = "stall engine"  // it answers nothing for a while
	dropEngine  kind = "drop engine"   // every connection to it breaks
	dropBefore  kind = "stripe before" // Stripe drops connections before it has acted
	dropAfter   kind = "stripe after"  // or after
	killCalls   kind = "kill calls"    // the processes that work on the host's SQLite databases and disks
	killMachine kind = "kill machine"  // the QEMU that has the disk of a site

	killDatabase  kind = "kill database"  // the server of a world, and start it again
	stallDatabase kind = "stall database" // it answers nothing for a while
	dropDatabase  kind = "drop database"  // every connection to it breaks
)

// injectors do a fault when its time has come. Those of a point are armed beforehand, and are not
// here.
var injectors = map[kind]func(context.Context, *run, fault) error{
	killWorker: func(_ context.Context, r *run, f fault) error {
		r.fleet.members[f.Host].kill()
		return nil
	},
	killAll: func(_ context.Context, r *run, _ fault) error {
		for _, m := range r.fleet.members {
			m.kill()
		}
		return nil
	},
	killExecs: func(_ context.Context, r *run, f fault) error {
		r.fleet.members[f.Host].killThose("unwind-exec-supervisor")
		return nil
	},
	killHelper: func(ctx context.Context, r *run, f fault) error { return r.killSidecars(ctx, r.fleet.members[f.Host]) },
	cutOff: func(_ context.Context, r *run, f fault) error {
		r.fleet.members[f.Host].wire.drop()
		return nil
	},
	killServer: func(ctx context.Context, r *run, f fault) error { return r.restartServer(ctx, f.For) },
	stallEngine: func(ctx context.Context, r *run, f fault) error {
		r.wire.stall(ctx, f.For)
		return nil
	},
	dropEngine: func(_ context.Context, r *run, _ fault) error {
		r.wire.drop()
		return nil
	},
	killCalls: func(_ context.Context, r *run, f fault) error {
		for _, name := range []string{"unwind-sqlite", "unwind-disk", "qemu-img snapshot"} {
			r.fleet.members[f.Host].killThose(name)
		}
		return nil
	},
	killMachine:  func(ctx context.Context, r *run, f fault) error { return f.Site.killMachine(ctx, r) },
	killDatabase: func(ctx context.Context, r *run, f fault) error { return r.restartDatabase(ctx, f.World, f.For) },
	stallDatabase: func(ctx context.Context, r *run, f fault) error {
		r.databases[f.World].wire.stall(ctx, f.For)
		return nil
	},
	dropDatabase: func(_ context.Context, r *run, f fault) error {
		r.databases[f.World].wire.drop()
		return nil
	},
	dropBefore: func(_ context.Context, r *run, f fault) error { return r.dropStripe(emulator.DropBefore, f.Nth) },
	dropAfter:  func(_ context.Context, r *run, f fault) error { return r.dropStripe(emulator.DropAfter, f.Nth) },
}

// dropStripe breaks the next few requests that change something, whosoever they are.
func (r *run) dropStripe(how emulator.Effect, times int) error {
	r.emulator.Inject(emulator.Fault{Do: how, Times: times,
		On: func(q emulator.Received) bool { return q.Method != http.MethodGet }})
	return nil
}

// faults draws what a task meets: a break at its own point, often another at a point of the same
// task, and what comes at any moment.
func (p plan) faults(r *rand.Rand, first target, all []target, hosts int) (faults []fault) {
	faults = p.breakAt(r, first, hosts)
	if r.IntN(5) < 3 {
		if others := p.reachable(all); len(others) > 0 {
			faults = append(faults, p.breakAt(r, others[r.IntN(len(others))], hosts)...)
		}
	}
	last := 6 * time.Second
	if p.Sequel != stays {
		last = 12 * time.Second
	}
	moment := func() time.Duration { return between(r, 100*time.Millisecond, last) }
	for range r.IntN(3) {
		faults = append(faults, fault{Kind: killWorker, Host: r.IntN(hosts), After: moment()})
	}
	chance := func(one int, f fault) {
		f.After = moment()
		f.For = between(r, 300*time.Millisecond, 3*time.Second)
		f.Nth = 1 + r.IntN(2)
		if f.Host = r.IntN(hosts); r.IntN(one) == 0 {
			faults = append(faults, f)
		}
	}
	chance(12, fault{Kind: killAll})
	chance(20, fault{Kind: killServer})
	chance(10, fault{Kind: cutOff})
	if p.uses("stripe.") {
		chance(3, fault{Kind: dropBefore})
		chance(3, fault{Kind: dropAfter})
	}
	if p.uses("container.") {
		chance(4, fault{Kind: stallEngine})
		chance(4, fault{Kind: dropEngine})
		chance(4, fault{Kind: killExecs})
		chance(4, fault{Kind: killHelper})
	}
	if p.uses("sqlite.") || p.uses("disk.") {
		chance(3, fault{Kind: killCalls})
	}
	for _, world := range []string{"postgres", "redis", "etcd"} {
		if p.uses(world + ".") {
			chance(4, fault{Kind: killDatabase, World: world})
			chance(4, fault{Kind: stallDatabase, World: world})
			chance(4, fault{Kind: dropDatabase, World: world})
		}
	}
	return faults
}

func (p plan) uses(prefix string) bool {
	return slices.ContainsFunc(p.actions(), func(a string) bool { return strings.HasPrefix(a, prefix) })
}

// reachable are the points that the task can come to.
func (p plan) reachable(all []target) (some []target) {
	for _, t := range all {
		if p.comesBy(t.Phase) && slices.ContainsFunc(p.Parts, func(each part) bool { return comesTo(each, t) }) {
			some = append(some, t)
		}
	}
	return some
}

// comesTo says whether a part has a step that comes to a point, where it runs.
func comesTo(p part, t target) bool {
	on, _ := p.host()
	if c, ok := p.(*inContainer); ok && (t.Volumes && !c.Volume || t.Plain && c.Volume) {
		return false
	}
	if s, ok := p.(*inSQLite); ok && !s.comesTo(t.Label) {
		return false
	}
	return slices.Contains(p.actions(), t.Action) && t.on(on)
}

// comesBy says whether a step of the task is in that phase at some time.
func (p plan) comesBy(when phase) bool {
	switch when {
	case planning:
		return p.Gate != ""
	case unwinding:
		return p.Ends != commits || p.Sequel != stays
	case rolling:
		return p.Sequel != stays
	case redoing:
		return p.Sequel == redone
	case forward:
	}
	return true
}

// breakAt breaks a process at a point, on the host of the step, or on all hosts where any can run
// it.
func (p plan) breakAt(r *rand.Rand, t target, hosts int) (faults []fault) {
	f := fault{Kind: killAt, At: t.Label, Nth: 1}
	if r.IntN(4) == 0 {
		f.Nth = 2
	}
	if r.IntN(6) == 0 && !t.supervised() {
		f.Kind = freezeAt
	}
	for _, each := range p.Parts {
		if !comesTo(each, t) {
			continue
		}
		on, bound := each.host()
		for h := range hosts {
			if f.Host = h; !bound || h == on {
				faults = append(faults, f)
			}
		}
		if f.Host = on; t.Reruns && bound {
			faults = append(faults, fault{Kind: killExecs, Host: on, After: between(r, time.Second, 3*time.Second)})
		}
		return faults
	}
	return nil
}
