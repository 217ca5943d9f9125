package compensations

import "github.com/seed-62bf7108/unwind/activities"

// DoneRange is a range of consecutive entries on the ledger whose forwards are known to have
// succeeded: the sequence numbers of the first and the last. A long task has few such ranges.
type DoneRange [2]int

// DoneRanges returns the ranges of the entries whose tokens are in isDone.
func DoneRanges(entries []activities.Entry, isDone map[string]bool) (ranges []DoneRange) {
	open := false
	for _, e := range entries {
		switch {
		case !isDone[e.Token]:
			open = false
		case open:
			ranges[len(ranges)-1][1] = e.Seq
		default:
			ranges, open = append(ranges, DoneRange{e.Seq, e.Seq}), true
		}
	}
	return ranges
}

// AddDone adds the tokens of the entries in ranges to isDone. Since the ranges were made, entries
// may have left the ledger, but none may have joined it.
func AddDone(isDone map[string]bool, entries []activities.Entry, ranges []DoneRange) {
	for _, e := range entries {
		for _, r := range ranges {
			if e.Seq >= r[0] && e.Seq <= r[1] {
				isDone[e.Token] = true
			}
		}
	}
}

// Results are what is known of the results of forwards that succeeded, by token, for those entries
// whose undo needs it.
type Results map[string]activities.Result

// Add adds what is to be known of the result of an entry's forward, if its undo needs any of it.
func (r Results) Add(e activities.Entry, result activities.Result) {
	if known := e.Known(result); known != nil {
		r[e.Token] = *known
	}
}

// Of returns those of the entries; nil if there are none.
func (r Results) Of(entries []activities.Entry) Results {
	of := Results{}
	for _, e := range entries {
		if known, ok := r[e.Token]; ok {
			of[e.Token] = known
		}
	}
	if len(of) == 0 {
		return nil
	}
	return of
}

// Known returns what is known of the results of the forwards on the ledger.
func (s *Saga) Known() Results { return s.results.Of(s.ledger.Entries()) }

// MarkDone records that the forward of an entry has succeeded, and with what result. Its undo is
// told so, and then treats a missing record as lost; it is given the fingerprint and the outputs
// that the entry's UndoOutputs name.
func (s *Saga) MarkDone(e activities.Entry, result activities.Result) {
	s.done[e.Token] = true
	s.results.Add(e, result)
}
