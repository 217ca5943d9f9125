package crash

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// ending is how a task is meant to end.
type ending string

const (
	commits   ending = "commits"
	fails     ending = "fails"    // its last step acts, and then a check of it does not hold
	rejected  ending = "rejected" // at the gate of its last step
	cancelled ending = "canceled" // at some moment
	// terminated is the end of the run at some moment with nothing undone: another workflow recovers
	// it.
	terminated ending = "terminated"
)

// plan is a task with the faults that it meets: everything that the seed decides.
type plan struct {
	ID    string
	Parts []part
	Ends  ending
	// StopAfter is when a task is canceled or terminated that is to be, and StopAgain when what
	// recovers it is; zero: never.
	StopAfter, StopAgain time.Duration
	// Sequel is what is done with the task when it has committed, and StopSequel when that is
	// terminated; zero: never.
	Sequel     sequel
	StopSequel time.Duration
	// Gate is the step that a person is asked about, beside what is always asked; empty: none.
	Gate string
	// AtOnce runs the parts concurrently.
	AtOnce bool
	// Attempts is how often a step is tried.
	Attempts int
	Faults   []fault
	// Site, where it is set, is an environment that is played in the place of a task.
	Site *site
}

// draw draws task i.
func draw(seed uint64, i int, hosts int, worlds []string) plan {
	r := rand.New(rand.NewPCG(seed, uint64(i))) //nolint:gosec // it has to be reproducible, and i counts from 0
	all := targets(worlds)
	first := all[order0(seed, i, len(all))]
	p := plan{ID: fmt.Sprintf("crash-%d-%d", seed, i)}

	endings := []ending{commits, commits, commits, commits, commits, fails, rejected, cancelled, terminated}
	sequels := []sequel{stays, rolledBack, redone}
	switch first.Phase {
	case unwinding:
		endings = []ending{fails, fails, rejected, cancelled, terminated, commits}
		sequels = []sequel{rolledBack, redone}
	case rolling:
		endings, sequels = []ending{commits}, []sequel{rolledBack, redone}
	case redoing:
		endings, sequels = []ending{commits}, []sequel{redone}
	case forward, planning:
	}
	p.Ends = endings[r.IntN(len(endings))]
	if p.Ends == commits {
		p.Sequel = sequels[r.IntN(len(sequels))]
	}
	if r.IntN(4) == 0 {
		p.StopSequel = between(r, 100*time.Millisecond, 3*time.Second)
	}
	p.StopAfter = between(r, 100*time.Millisecond, 5*time.Second)
	if r.IntN(3) == 0 {
		p.StopAgain = between(r, 500*time.Millisecond, 3*time.Second)
	}
	p.AtOnce = r.IntN(3) == 0

	p.Parts = append(p.Parts, partFor(r, first, hosts))
	for range r.IntN(3) {
		p.Parts = append(p.Parts, anyPart(r, hosts, worlds))
	}
	r.Shuffle(len(p.Parts), func(a, b int) { p.Parts[a], p.Parts[b] = p.Parts[b], p.Parts[a] })
	p.Parts = append(p.Parts, &files{Host: r.IntN(hosts), Fails: p.Ends == fails})
	for n, each := range p.Parts {
		each.name(n)
	}
	p.Gate = p.gateFor(r, first)
	p.Faults = p.faults(r, first, all, hosts)
	p.Attempts = 100
	if slices.ContainsFunc(all, func(t target) bool { return !t.Phase.back() && p.freezesAt(t.Label) }) {
		// Another attempt of the same forward would wait for the frozen one, which is woken only when the
		// task has ended: the step has to be given up, and undone, while it sleeps.
		p.Attempts = 1
	}
	return p
}

// order0 is the place of task i in a round of all n points, each round shuffled anew.
func order0(seed uint64, i, n int) int {
	round := rand.New(rand.NewPCG(seed, uint64(2_000_000+i/n))) //nolint:gosec // as above
	return round.Perm(n)[i%n]
}

// gateFor is the step that gets a gate: the last of one that is to be rejected, that of a point of
// planning, or any.
func (p plan) gateFor(r *rand.Rand, first target) string {
	switch {
	case p.Ends == rejected:
		return p.last()
	case first.Phase == planning:
		for _, each := range p.Parts {
			if slices.Contains(each.actions(), first.Action) {
				return each.firstStep()
			}
		}
	case r.IntN(4) == 0:
		return p.Parts[r.IntN(len(p.Parts))].firstStep()
	}
	return ""
}

func (p plan) freezesAt(label string) bool {
	return slices.ContainsFunc(p.Faults, func(f fault) bool { return f.Kind == freezeAt && f.At == label })
}

func (p plan) last() string { return p.Parts[len(p.Parts)-1].firstStep() }

// actions are those of all steps.
func (p plan) actions() (all []string) {
	for _, each := range p.Parts {
		all = append(all, each.actions()...)
	}
	return all
}

// partFor is a part with a step that reaches a point.
func partFor(r *rand.Rand, t target, hosts int) part {
	switch activities.WorldOf(t.Action) {
	case "file":
		return &files{Host: r.IntN(hosts), Deletes: t.Action == "file.delete"}
	case "folder", "unit", "disk", "environment":
		return drawOnHost(r, activities.WorldOf(t.Action), hosts)
	case "container":
		c := drawContainer(r, hosts)
		c.Reads = c.Reads || t.Reads
		c.Volume = t.Volumes || c.Volume && !t.Plain
		for n := 0; n < hosts && !t.on(c.Host); n++ { // a fleet of one has no other
			c.Host = (c.Host + 1) % hosts
		}
		return c
	case "terraform":
		return drawInfra(r, hosts)
	case "sqlite":
		s := drawSQLite(r, hosts)
		s.Alters = s.Alters || t.Label == "sqlite.exec:copied"
		return s
	case "postgres":
		return drawPostgres(r)
	case "redis":
		return drawRedis(r)
	case "etcd":
		return drawEtcd(r)
	}
	var kinds []string
	for kind, steps := range purchases {
		if slices.ContainsFunc(steps, func(s purchase) bool { return s.Uses == t.Action }) {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	// What a point of undoing needs is in the simplest of them that has it.
	switch t.Label {
	case "stripe.payment_intent.confirm:given-back":
		kinds = []string{"charge"}
	case "stripe.payment_intent.confirm:canceled":
		kinds = []string{"hold"}
	}
	return &payments{Kind: kinds[r.IntN(len(kinds))]}
}

// anyPart is a part of any world, the costly ones less often.
func anyPart(r *rand.Rand, hosts int, worlds []string) part {
	for {
		switch n := r.IntN(37); {
		case n < 9:
			return &files{Host: r.IntN(hosts), Deletes: r.IntN(3) == 0}
		case n < 16:
			if slices.Contains(worlds, "stripe") {
				return &payments{Kind: purchaseKinds()[r.IntN(len(purchases))]}
			}
		case n < 18:
			if slices.Contains(worlds, "container") {
				return drawContainer(r, hosts)
			}
		case n < 23:
			if slices.Contains(worlds, "postgres") {
				return drawPostgres(r)
			}
		case n < 25:
			if slices.Contains(worlds, "sqlite") {
				return drawSQLite(r, hosts)
			}
		case n < 28:
			if slices.Contains(worlds, "redis") {
				return drawRedis(r)
			}
		case n < 30:
			if slices.Contains(worlds, "etcd") {
				return drawEtcd(r)
			}
		case n < 35:
			world := []string{"folder", "folder", "unit", "unit", "environment"}[r.IntN(5)]
			if slices.Contains(worlds, world) {
				return drawOnHost(r, world, hosts)
			}
		default:
			if slices.Contains(worlds, "terraform") {
				return drawInfra(r, hosts)
			}
		}
	}
}

// drawOnHost is a part of a world of folders and services.
func drawOnHost(r *rand.Rand, world string, hosts int) part {
	switch world {
	case "folder":
		return drawFolders(r, hosts)
	case "unit":
		return drawUnits(r, hosts)
	case "disk":
		return drawDisks(r, hosts)
	}
	return drawEnvironments(r, hosts)
}

func between(r *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(r.Int64N(int64(to-from)))
}
