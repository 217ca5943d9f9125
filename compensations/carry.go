package compensations

import (
	"cmp"
	"maps"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations/inbox"
)

// Carry is a saga as data: what a workflow that continues as new hands to its next run.
type Carry struct {
	// Entries are the ledger. Together with what the next run schedules, they are all that undoing
	// needs.
	Entries []activities.Entry `json:"entries,omitempty"`
	// Last is the highest sequence number that was ever assigned.
	Last int `json:"last,omitempty"`
	// Progress is what is known of entries whose undo has begun and that are still on the ledger, by
	// token.
	Progress map[string]Progress `json:"progress,omitempty"`
	// Unfinished are the sequence numbers of the entries that a paused UnwindSteps has yet to undo,
	// the oldest first.
	Unfinished []int `json:"unfinished,omitempty"`
	Past       Past  `json:"past,omitzero"`
	// Done are the entries whose forwards are known to have succeeded.
	Done []DoneRange `json:"done,omitempty"`
	// Results are what is known of their results.
	Results Results `json:"results,omitempty"`
	// Ignored are the signals that decided nothing.
	Ignored inbox.Ignored `json:"ignored,omitzero"`
}

// Progress is what is known of an entry whose undo has begun and that is still on the ledger.
type Progress struct {
	// State is Parked, Skipped, Pending, or, if that was decided between two runs, Accepted.
	State UndoState `json:"state"`
	findings
}

// Digest is the digest that a resolution of the park must carry.
func (p Progress) Digest(e activities.Entry) activities.Digest { return p.item(e).parkDigest() }

// Resolve returns p after a person's resolution of its park. An error says why the resolution
// decides nothing.
func (p Progress) Resolve(e activities.Entry, r Resolution) (Progress, error) {
	it := p.item(e)
	next, err := it.applyResolution(r)
	if err != nil {
		return p, err
	}
	return Progress{State: next, findings: it.findings}, nil
}

func (p Progress) item(e activities.Entry) *item {
	return &item{entry: e, state: p.State, findings: p.findings}
}

// Carry returns the saga for Resume in the next run of the chain. No undo may be running: see
// Options.Pause.
func (s *Saga) Carry() Carry {
	s.inbox.HandleSignals()
	if s.plan != nil {
		s.closePlan()
	}
	return Carry{
		Entries: s.ledger.Entries(), Last: s.ledger.last, Progress: s.progress, Unfinished: s.unfinished, Past: s.past,
		Ignored: s.inbox.Ignored(),
		Done:    DoneRanges(s.ledger.Entries(), s.done), Results: s.Known(),
	}
}

// Resume makes a saga of what the previous run carried over.
func Resume(ctx workflow.Context, o Options, c Carry) *Saga {
	s := New(ctx, o)
	s.ledger.Adopt(c.Entries)
	s.ledger.last = max(s.ledger.last, c.Last)
	s.past, s.progress, s.unfinished = c.Past, c.Progress, c.Unfinished
	s.inbox.Restore(c.Ignored)
	AddDone(s.done, c.Entries, c.Done)
	maps.Copy(s.results, c.Results)
	return s
}

// After returns what is left of a run that was handed c and ended without unwinding: c with what
// the run scheduled, without what it undid. The trace is from its history.
func (c Carry) After(t activities.Trace) Carry {
	var l Ledger
	l.Adopt(c.Entries)
	l.Adopt(t.Entries)
	done := map[string]bool{}
	AddDone(done, c.Entries, c.Done)
	results := Results{}
	maps.Copy(results, c.Results)
	for _, e := range l.Entries() {
		if result, isDone := t.Done[e.Token]; isDone {
			done[e.Token] = true
			results.Add(e, result)
		}
	}
	c.Progress = KeepForced(c.Progress, t)
	c.Past.Outcomes = maps.Clone(c.Past.Outcomes)
	for _, e := range l.Entries() {
		if undone, settled := t.Settled[e.Token]; settled {
			end := c.Progress[e.Token]
			end.State, end.Undone = Settled, undone
			c.Past.AddEnd(e, end)
			delete(c.Progress, e.Token)
		}
	}
	l.Drop(func(token string) bool { _, settled := t.Settled[token]; return settled })
	c.Entries, c.Last, c.Done, c.Results = l.Entries(), max(c.Last, l.last), DoneRanges(l.Entries(), done),
		results.Of(l.Entries())
	return c
}

// KeepForced adds to what is known of entries the drift that undos in a trace were to overwrite:
// the run that knew of it has made no report.
func KeepForced(known map[string]Progress, t activities.Trace) map[string]Progress {
	all := maps.Clone(known)
	if all == nil && len(t.Forced) > 0 {
		all = map[string]Progress{}
	}
	for token, digests := range t.Forced { // in any order: each is by itself
		found := map[activities.Digest]*activities.Drift{}
		progress := all[token]
		progress.State = cmp.Or(progress.State, Pending)
		if drift := progress.Undone.Drift; drift != nil {
			found[drift.Digest] = drift
		}
		for _, a := range t.Attempts {
			if a.Token == token && a.Undone != nil && a.Undone.Drift != nil {
				found[a.Undone.Drift.Digest] = a.Undone.Drift
			}
		}
		for _, digest := range digests {
			if drift := found[digest]; drift != nil {
				progress.keepForced(*drift)
			}
		}
		all[token] = progress
	}
	return all
}

// Merge adds what another, dead run of the same task knew and had done.
func (s *Saga) Merge(c Carry) {
	s.Adopt(c.Entries)
	AddDone(s.done, c.Entries, c.Done)
	maps.Copy(s.results, c.Results)
	s.past.Merge(c.Past)
	if s.progress == nil {
		s.progress = map[string]Progress{}
	}
	maps.Copy(s.progress, c.Progress)
}

// maxWholeDrifts is how many drifts are carried over with their complete diff.
const maxWholeDrifts = 20

// closePlan takes what a plan has settled off the ledger, and keeps its findings about the rest.
func (s *Saga) closePlan() {
	ended := map[string]bool{}
	progress := maps.Clone(s.progress) // the progress of entries outside this plan stays
	if progress == nil {
		progress = map[string]Progress{}
	}
	for _, r := range s.plan.unannounced {
		it := s.plan.byStep[r.Step]
		it.Silent = it.state == Parked
	}
	for _, it := range s.plan.items {
		delete(progress, it.entry.Token)
		switch {
		case it.leavesLedger():
			ended[it.entry.Token] = true
			s.past.addReport(it.entry, it.report(), it.Undone.LookAgain)
		case it.Parks > 0 || it.state != Pending:
			found := it.findings
			if len(progress) > maxWholeDrifts { // only the digest decides
				found.Undone.Drift, found.ForcedDrift = headOf(found.Undone.Drift), headOf(found.ForcedDrift)
			}
			progress[it.entry.Token] = Progress{State: it.state, findings: found}
		}
	}
	s.ledger.Drop(func(token string) bool { return ended[token] })
	s.progress, s.plan = progress, nil
}

// restoreProgress applies what is known of entries to a new plan. What a person has decided, or
// must decide, stays so.
func (s *Saga) restoreProgress() {
	for _, it := range s.plan.items {
		if known, ok := s.progress[it.entry.Token]; ok {
			it.findings = known.findings
			if known.State != Pending && it.state == Pending {
				s.plan.setState(it, known.State)
			}
			if it.Silent && it.state == Parked {
				s.plan.announceItem(it)
			}
			it.Silent = false
		}
	}
}

// Skipped reports the entries that UnwindSteps was told to leave on the ledger.
func (s *Saga) Skipped() []StepReport {
	var skipped []StepReport
	for _, e := range s.ledger.Entries() {
		if known, ok := s.progress[e.Token]; ok && known.State == Skipped {
			skipped = append(skipped, known.item(e).report())
		}
	}
	return skipped
}

// Rechecks returns the undos to be checked again after the workflow has ended.
func (s *Saga) Rechecks() []Recheck {
	rechecks := s.past.Rechecks
	if s.plan != nil {
		for _, it := range s.plan.items {
			if it.state == Settled && it.Undone.LookAgain > 0 {
				rechecks = append(slices.Clip(rechecks), Recheck{it.entry, it.Undone.LookAgain})
			}
		}
	}
	return rechecks
}
