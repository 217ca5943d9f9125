package compensations

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// graph is a random ledger: every entry needs some of those before it.
func graph(r *rand.Rand, n int) []activities.Entry {
	var l Ledger
	for i := range n {
		e := activities.Entry{Step: fmt.Sprint("s", i), Token: fmt.Sprint(i), UndoType: "undo"}
		for j := range i {
			if r.IntN(4) == 0 {
				e.Needs = append(e.Needs, fmt.Sprint("s", j))
			}
		}
		l.Push(e)
	}
	return l.Entries()
}

// Whatever happens to the undos, and whatever a person decides: no entry is undone before what needs it is out of the
// way, each one comes to an end, and none is undone twice after it was settled.
func TestAnyLedgerUnwindsInOrderWhateverHappens(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 0))
		p := newPlan(graph(r, 1+r.IntN(12)))
		var trace []string
		settled := map[*item]bool{}
		for steps := 0; !p.done(); steps++ {
			require.Less(t, steps, 1000, "seed %d does not end: %v", seed, trace)
			if it := p.next(); it != nil {
				trace = append(trace, "undo "+it.entry.Step)
				require.False(t, settled[it], "seed %d: %v", seed, trace)
				for _, d := range p.dependents[it.entry.Step] {
					ok := d.state == Settled || d.state == Accepted || d.state == Skipped && it.alone
					require.True(t, ok, "seed %d: %s is undone while %s is %s: %v", seed, it.entry.Step, d.entry.Step, d.state, trace)
				}
				for _, later := range p.items[slices.Index(p.items, it)+1:] {
					require.False(t, later.state == Pending && p.free(later), "seed %d: %s is newer and free", seed, later.entry.Step)
				}
				switch r.IntN(4) {
				case 0:
					p.park(it, "failed")
				case 1:
					it.undone = activities.Undone{Outcome: activities.Drifted, Drift: &activities.Drift{Digest: "sha256:d"}}
					p.park(it, "drifted")
				default:
					it.state, it.undone.Outcome = Settled, activities.Restored
					settled[it] = true
				}
				continue
			}
			if p.held() != nil {
				continue
			}
			var parked []*item
			for _, it := range p.items {
				if it.state == Parked {
					parked = append(parked, it)
				}
			}
			require.NotEmpty(t, parked, "seed %d: nothing can go on, and nobody is asked: %v", seed, trace)
			it := parked[r.IntN(len(parked))]
			do := []Do{Retry, Force, Skip, Accept}[r.IntN(4)]
			trace = append(trace, fmt.Sprint(do, " ", it.entry.Step))
			require.Error(t, p.resolve(Resolution{Step: it.entry.Step, Digest: "sha256:of something else", Do: do}))
			err := p.resolve(Resolution{Step: it.entry.Step, Digest: it.parkDigest(), Do: do})
			if do == Force && it.undone.Drift == nil {
				require.Error(t, err)
				require.Equal(t, Parked, it.state)
				continue
			}
			require.NoError(t, err)
		}
		pending, parkedCount := p.counts()
		require.Zero(t, pending+parkedCount)
	}
}

func TestAParkHasADigestOfItsOwnEachTime(t *testing.T) {
	p := newPlan([]activities.Entry{{Step: "a", Token: "1", UndoType: "undo"}})
	it := p.items[0]
	p.park(it, "down")
	first := it.parkDigest()
	require.NoError(t, p.resolve(Resolution{Step: "a", Digest: first, Do: Retry}))
	p.park(it, "down")
	require.NotEqual(t, first, it.parkDigest())
	require.ErrorContains(t, p.resolve(Resolution{Step: "a", Digest: first, Do: Accept}), "is not that of the present park")
	require.ErrorContains(t, p.resolve(Resolution{Step: "a", Digest: it.parkDigest(), Do: "reset"}), `"reset" is not one of retry, force, skip, accept`)
	require.ErrorContains(t, p.resolve(Resolution{Step: "b"}), `step "b" is not in the ledger`)
}

func TestAReportCountsWhatIsCleanAndListsWhatIsNot(t *testing.T) {
	var entries []activities.Entry
	for i := range MaxReported + 1 {
		entries = append(entries, activities.Entry{Step: fmt.Sprint(i), Token: fmt.Sprint(i), UndoType: "undo"})
	}
	p := newPlan(entries)
	for _, it := range p.items {
		it.state, it.undone.Outcome = Settled, activities.Restored
	}
	p.items[7].undone = activities.Undone{Outcome: activities.Residue, Losses: []string{"an invoice"}}
	r := p.report(Cause{Kind: Failure})
	require.Equal(t, map[string]int{"restored": MaxReported, "residue": 1}, r.Outcomes)
	require.Len(t, r.Steps, 1)
	require.Equal(t, "7", r.Steps[0].Step)
	require.Equal(t, Remains, r.Status)
}
