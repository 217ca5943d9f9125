package compensations

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// randomLedger returns a ledger in which every entry needs some earlier ones.
func randomLedger(r *rand.Rand, n int) []activities.Entry {
	var l Ledger
	for i := range n {
		e := activities.Entry{
			Step: fmt.Sprint("s", i), Token: fmt.Sprint(i), UndoType: "undo",
			Place: activities.Place{Queue: fmt.Sprint("q", r.IntN(2))},
		}
		for j := range i {
			if r.IntN(4) == 0 {
				e.Needs = append(e.Needs, fmt.Sprint("s", j))
			}
		}
		l.Push(e)
	}
	return l.Entries()
}

// whyHeld examines the whole plan and returns what keeps an entry from being undone; "" if nothing
// does.
func whyHeld(p *plan, it *item) string {
	why := ""
	for _, d := range p.items {
		if !slices.Contains(d.entry.Needs, it.entry.Step) || d.state == Settled || d.state == Accepted {
			continue
		}
		if d.state != Skipped {
			return "open " + d.entry.Step
		}
		if !it.Alone {
			why = "skipped " + d.entry.Step
		}
	}
	return why
}

// newestFree examines the whole plan and returns the newest entry that may be undone.
func newestFree(p *plan) *item {
	for _, it := range slices.Backward(p.items) {
		waits := slices.ContainsFunc(p.items, func(o *item) bool {
			return o.state == Waiting && o.entry.Place.Queue == it.entry.Place.Queue
		})
		if it.state == Pending && !waits && whyHeld(p, it) == "" {
			return it
		}
	}
	return nil
}

// carryPlan returns the plan with which the next run of a chain continues an interrupted one.
func carryPlan(t *testing.T, p *plan) *plan {
	t.Helper()
	s := &Saga{plan: p}
	for _, it := range p.items {
		s.ledger.insert(it.entry)
	}
	raw, err := json.Marshal(s.Carry())
	require.NoError(t, err)
	var c Carry
	require.NoError(t, json.Unmarshal(raw, &c))
	next := &Saga{past: c.Past, progress: c.Progress}
	next.ledger.Adopt(c.Entries)
	next.plan = newPlan(next.ledger.Entries())
	next.restoreProgress()
	return next.plan
}

// Whatever happens to the undos, whatever a person decides, and whenever the workflow continues as
// new: entries are undone newest first, none before those that need it, each one reaches a final
// state, and none is undone after it was settled.
func TestAnyLedgerUnwindsInOrderWhateverHappens(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 0))
		p := newPlan(randomLedger(r, 1+r.IntN(12)))
		var trace []string
		settled := map[string]bool{}
		for steps := 0; !p.isDone(); steps++ {
			require.Less(t, steps, 1000, "seed %d does not end: %v", seed, trace)
			require.Equal(t, newestFree(p), p.nextReady(), "seed %d: %v", seed, trace)
			for _, it := range p.items {
				require.False(t, it.state == Pending && strings.HasPrefix(whyHeld(p, it), "skipped"),
					"seed %d: %s waits for ever: %v", seed, it.entry.Step, trace)
			}
			byState := map[UndoState][]*item{}
			for _, it := range p.items {
				byState[it.state] = append(byState[it.state], it)
			}
			running, waiting, parked := byState[Running], byState[Waiting], byState[Parked]
			require.Equal(t, len(running), p.running)
			require.ElementsMatch(t, parked, p.parked)
			pick := func(from []*item) *item { return from[r.IntN(len(from))] }
			switch it := p.nextReady(); {
			case it != nil && r.IntN(3) > 0:
				trace = append(trace, "undo "+it.entry.Step)
				require.False(t, settled[it.entry.Step], "seed %d: %v", seed, trace)
				p.setState(it, Running)
			case len(running) > 0:
				switch it := pick(running); r.IntN(6) {
				case 0:
					p.parkItem(it, "failed")
				case 1:
					it.Undone = activities.Undone{Outcome: activities.Drifted, Drift: &activities.Drift{Digest: "sha256:d"}}
					p.parkItem(it, "drifted")
				case 2:
					it.cancel = func() {}
					p.setState(it, Waiting)
				default:
					it.Undone.Outcome = activities.Restored
					settled[it.entry.Step] = true
					p.setState(it, Settled)
				}
			case len(waiting) > 0 && (r.IntN(2) == 0 || waiting[0].chosen != ""):
				it := pick(waiting)
				if it.chosen != "" && r.IntN(2) == 0 {
					trace = append(trace, "taken back "+it.entry.Step)
					settled[it.entry.Step] = it.chosen == Accepted
					p.setState(it, it.chosen)
					continue
				}
				trace = append(trace, "back "+it.entry.Step)
				it.Undone.Outcome = activities.Restored
				settled[it.entry.Step] = true
				p.setState(it, Settled)
			case len(waiting) == 0 && r.IntN(3) == 0:
				trace = append(trace, "carry")
				digests := map[string]activities.Digest{}
				for _, it := range parked {
					digests[it.entry.Step] = it.parkDigest()
				}
				p = carryPlan(t, p)
				for step, digest := range digests {
					require.Equal(t, digest, p.byStep[step].parkDigest(), "what was shown can be resolved later")
				}
			case len(parked)+len(waiting) > 0:
				it := pick(append(parked, waiting...))
				do := []Do{Retry, Force, Skip, Accept, Reset}[r.IntN(5)]
				trace = append(trace, fmt.Sprint(do, " ", it.entry.Step))
				was, chosen := it.state, it.chosen
				require.Error(t, p.resolvePark(Resolution{Step: it.entry.Step, Digest: "sha256:of something else", Do: do}))
				err := p.resolvePark(Resolution{Step: it.entry.Step, Digest: it.parkDigest(), Do: do})
				if chosen != "" || do == Force && it.Undone.Drift == nil || was == Waiting && do != Skip && do != Accept {
					require.Error(t, err)
					require.Equal(t, was, it.state)
					continue
				}
				require.NoError(t, err)
				require.True(t, was == Parked || it.state == Waiting, "what may be at work is not at its end")
			default:
				require.NotNil(t, p.nextReady(), "seed %d: nothing can go on, and nobody is asked: %v", seed, trace)
			}
		}
		require.Zero(t, len(p.parked)+p.running+p.unsettled)
	}
}

func TestALowCriticalityUndoIsAcceptedInsteadOfParked(t *testing.T) {
	p := newPlan([]activities.Entry{
		{Step: "a", Token: "1"},
		{Step: "b", Token: "2", Needs: []string{"a"}, Policy: activities.UndoPolicy{Criticality: activities.LowCritical}},
	})
	b := p.nextReady()
	require.Equal(t, "b", b.entry.Step)
	b.Undone.Outcome = activities.Failed
	p.parkItem(b, "down")
	require.Equal(t, Accepted, b.state)
	require.Equal(t, "a", p.nextReady().entry.Step)
	p.parkItem(p.nextReady(), "down")
	require.Equal(t, Parked, p.items[0].state)
	r := p.report(Past{}, Cause{})
	require.Equal(t, []string{"accepted as it is: its criticality is low"}, r.Steps[1].Notes)
	require.Equal(t, activities.Failed, r.Steps[1].Outcome)
}

func TestUndoingTakesTheSameTimeForEveryEntry(t *testing.T) {
	const n = 20_000
	entries := make([]activities.Entry, n)
	for i := range entries {
		entries[i] = activities.Entry{Seq: i + 1, Step: fmt.Sprint(i), Token: fmt.Sprint(i)}
		if i > 0 {
			entries[i].Needs = []string{fmt.Sprint(i - 1)}
		}
	}
	p := newPlan(entries)
	for i := range n {
		it := p.nextReady()
		require.Equal(t, n-1-i, it.entry.Seq-1)
		require.LessOrEqual(t, len(p.ready), 1, "only what is free is looked at")
		p.setState(it, Running)
		p.setState(it, Settled)
	}
	require.True(t, p.isDone())
}

// A server fails a workflow task that leaves more than 2,000 activities pending, again and again.
// Undos that wait for their hosts do not count to those that run at once.
func TestHostsThatAreAwayHoldABoundedNumberOfUndos(t *testing.T) {
	const parallel, n = 10, maxPending + 15
	entries := make([]activities.Entry, n)
	for i := range entries {
		entries[i] = activities.Entry{Seq: i + 1, Step: fmt.Sprint(i), Token: fmt.Sprint(i),
			Place: activities.Place{Queue: fmt.Sprint(i / parallel)}}
	}
	s := &Saga{plan: newPlan(entries), options: Options{Parallel: parallel}}
	pending := 0
	for s.mayStart() {
		var started []*item
		for s.mayStart() && s.plan.nextReady() != nil {
			it := s.plan.nextReady()
			s.plan.setState(it, Running)
			started = append(started, it)
		}
		require.NotEmpty(t, started)
		for _, it := range started { // their time on the queue is over
			s.plan.setState(it, Waiting)
		}
		pending += len(started)
	}
	require.Equal(t, maxPending, pending)
	back := s.plan.items[n-1] // its host is back
	s.plan.setState(back, Running)
	s.plan.setState(back, Settled)
	require.True(t, s.mayStart())
	require.NotNil(t, s.plan.nextReady())
}

func TestEachParkHasItsOwnDigest(t *testing.T) {
	p := newPlan([]activities.Entry{{Step: "a", Token: "1", UndoType: "undo"}})
	it := p.items[0]
	p.parkItem(it, "down")
	first := it.parkDigest()
	require.NoError(t, p.resolvePark(Resolution{Step: "a", Digest: first, Do: Retry}))
	p.parkItem(it, "down")
	require.NotEqual(t, first, it.parkDigest())
	require.ErrorContains(t, p.resolvePark(Resolution{Step: "a", Digest: first, Do: Accept}),
		"is not that of the present park")
	require.ErrorContains(t, p.resolvePark(Resolution{Step: "a", Digest: it.parkDigest(), Do: "undo"}),
		`"undo" is not one of retry, force, skip, accept, reset`)
	require.ErrorContains(t, p.resolvePark(Resolution{Step: "b"}), `step "b" is not in the ledger`)
}

func TestAReportListsWhatIsNotCleanAndCountsTheRest(t *testing.T) {
	var entries []activities.Entry
	for i := range MaxReported + 1 {
		entries = append(entries, activities.Entry{Step: fmt.Sprint(i), Token: fmt.Sprint(i), UndoType: "undo"})
	}
	p := newPlan(entries)
	for _, it := range p.items {
		it.Undone.Outcome = activities.Restored
		p.setState(it, Settled)
	}
	p.items[7].Undone = activities.Undone{Outcome: activities.Residue, Losses: []string{"an invoice"}}
	r := p.report(Past{}, Cause{Kind: Failure})
	require.Equal(t, map[string]int{"restored": MaxReported, "residue": 1}, r.Outcomes)
	require.Len(t, r.Steps, 1)
	require.Equal(t, "7", r.Steps[0].Step)
	require.Equal(t, Remains, r.Status)
}
