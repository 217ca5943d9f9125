package recovery

import (
	"cmp"
	"maps"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// reading is a ledger that is being read.
type reading struct {
	protocol.Ledger

	workflow     string          // the id of the run's
	done         map[string]bool // the steps that are done, by token
	known        map[string]bool // the steps whose forwards have succeeded in a history, by token
	wrongVersion string          // why the carry of the run cannot be read; empty if it can
}

// merge adds the ledger of another run of the same task.
func (r *reading) merge(l protocol.Ledger) {
	compensations.AddDone(r.known, l.Entries, l.Done)
	r.addResults(l.Results)
	isKnown := map[string]bool{}
	for _, e := range r.Entries {
		isKnown[e.Token] = true
	}
	for _, e := range l.Entries {
		if !isKnown[e.Token] {
			r.Entries = append(r.Entries, e)
		}
	}
	slices.SortStableFunc(r.Entries, func(a, b activities.Entry) int { return cmp.Compare(a.Seq, b.Seq) })
	r.Past.Merge(l.Past)
	r.Unknown, r.Completed = r.Unknown || l.Unknown, r.Completed || l.Completed
	r.Committed, r.Pivot = max(r.Committed, l.Committed), max(r.Pivot, l.Pivot)
	for token, progress := range l.Progress {
		if r.Progress == nil {
			r.Progress = map[string]compensations.Progress{}
		}
		r.Progress[token] = progress
	}
}

func (r *reading) addResults(results compensations.Results) {
	if r.Results == nil {
		r.Results = compensations.Results{}
	}
	maps.Copy(r.Results, results)
}

// applyTrace takes off the ledger what the run has undone, what people have accepted, and what its
// pivot has committed. committed is the number of steps that had been committed before.
func (r *reading) applyTrace(trace activities.Trace, committed int) {
	for token := range trace.Done {
		r.done[token], r.known[token] = true, true
	}
	known := compensations.Results{}
	for _, e := range r.Entries {
		if result, isDone := trace.Done[e.Token]; isDone {
			known.Add(e, result)
		}
		if e.Pivot && r.done[e.Token] {
			r.Pivot = max(r.Pivot, e.Seq)
		}
	}
	r.Entries = slices.DeleteFunc(r.Entries, func(e activities.Entry) bool {
		if undone, isSettled := trace.Settled[e.Token]; isSettled {
			end := r.Progress[e.Token]
			end.State, end.Undone = compensations.Settled, undone
			r.Past.AddEnd(e, end)
			delete(r.Progress, e.Token)
			return true
		}
		if progress := r.Progress[e.Token]; progress.State == compensations.Accepted {
			r.Past.AddEnd(e, progress)
			delete(r.Progress, e.Token)
			return true
		}
		isCommitted := e.Seq <= r.Pivot && r.done[e.Token]
		if isCommitted {
			committed++
		}
		return isCommitted
	})
	r.Committed = max(r.Committed, committed)
	r.Done = compensations.DoneRanges(r.Entries, r.known)
	r.addResults(known)
	r.Results = r.Results.Of(r.Entries)
}
