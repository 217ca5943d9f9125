package compensations

import (
	"maps"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
)

// Carried is a saga as data: what a workflow that continues as new hands to its next run.
type Carried struct {
	// Entries are what is on the ledger; with what that run schedules they are all that undoing needs.
	Entries []activities.Entry `json:"entries,omitempty"`
	// Last is the highest sequence number that was given.
	Last int `json:"last,omitempty"`
	// Left is what is known of entries whose undo has begun and that are still there, by token.
	Left map[string]Left `json:"left,omitempty"`
	// Part are the entries that a paused UnwindSteps has still to undo, by sequence number, the oldest first.
	Part []int `json:"part,omitempty"`
	Past Past  `json:"past,omitzero"`
	// Ignored are the signals that decided nothing.
	Ignored []string `json:"ignored,omitempty"`
}

// Left is what an unwinding knows of an entry that it has left on the ledger.
type Left struct {
	// State is Parked, Skipped, Pending, or Accepted where that was decided between two runs.
	State UndoState `json:"state"`
	progress
}

// Digest is what a resolution of the park that l tells of carries.
func (l Left) Digest(e activities.Entry) activities.Digest { return l.item(e).parkDigest() }

// Resolve is l after a person's resolution of its park. An error says why that decides nothing.
func (l Left) Resolve(e activities.Entry, r Resolution) (Left, error) {
	it := l.item(e)
	next, err := it.decide(r)
	if err != nil {
		return l, err
	}
	return Left{State: next, progress: it.progress}, nil
}

func (l Left) item(e activities.Entry) *item {
	return &item{entry: e, state: l.State, progress: l.progress}
}

// Past is what became of the entries that are off the ledger.
type Past struct {
	// Steps are those that have something to tell; the clean ones are there while they are few.
	Steps []StepReport `json:"steps,omitempty"`
	// Count is how many there are, Outcomes how many of each.
	Count    int            `json:"count,omitempty"`
	Outcomes map[string]int `json:"outcomes,omitempty"`
	// Again are those to look at again.
	Again []Again `json:"again,omitempty"`
}

// Again is an undo whose absence of effects was not yet proof.
type Again struct {
	Entry activities.Entry `json:"entry"`
	// After is how long after the undo it is looked at again.
	After time.Duration `json:"after"`
}

// Settle notes what an undo has done that settled its entry.
func (p *Past) Settle(e activities.Entry, undone activities.Undone) {
	p.End(e, Left{State: Settled, progress: progress{Undone: undone}})
}

// End notes an entry that is off the ledger, settled or accepted.
func (p *Past) End(e activities.Entry, l Left) { p.add(e, l.item(e).report(), l.Undone.LookAgain) }

// Join adds what another run knows.
func (p *Past) Join(other Past) {
	p.Steps = append(p.Steps, other.Steps...)
	p.Count += other.Count
	for outcome, n := range other.Outcomes {
		if p.Outcomes == nil {
			p.Outcomes = map[string]int{}
		}
		p.Outcomes[outcome] += n
	}
	p.Again = append(p.Again, other.Again...)
}

func (p *Past) add(e activities.Entry, s StepReport, again time.Duration) {
	p.Count++
	if s.Outcome != "" {
		if p.Outcomes == nil {
			p.Outcomes = map[string]int{}
		}
		p.Outcomes[string(s.Outcome)]++
	}
	switch {
	case len(p.Steps) < MaxReported:
		p.Steps = append(p.Steps, s)
	case !s.Clean(): // briefly: what is carried must fit
		s.Losses, s.Drift, s.Notes = nil, nil, nil
		s.Observed, s.Reason = clip(s.Observed, maxName), clip(s.Reason, maxName)
		p.Steps = append(p.Steps, s)
	}
	if again > 0 {
		p.Again = append(p.Again, Again{e, again})
	}
}

// Carry is the saga as it stands, for Resume in the next run of the chain. No undo may be running: see Options.Pause.
func (s *Saga) Carry() Carried {
	s.takeSignals()
	if s.plan != nil {
		s.fold()
	}
	return Carried{Entries: s.ledger.Entries(), Last: s.ledger.last, Left: s.left, Part: s.part, Past: s.past, Ignored: s.ignored}
}

// maxShown is how many drifts are carried over with their whole diff.
const maxShown = 20

// fold takes what a plan has brought to an end off the ledger, and keeps what it knows of the rest.
func (s *Saga) fold() {
	ended := map[string]bool{}
	left := maps.Clone(s.left) // that of entries which were not in this plan stays
	if left == nil {
		left = map[string]Left{}
	}
	for _, it := range s.plan.items {
		delete(left, it.entry.Token)
		switch {
		case it.off():
			ended[it.entry.Token] = true
			s.past.add(it.entry, it.report(), it.Undone.LookAgain)
		case it.Parks > 0 || it.state != Pending:
			known := it.progress
			if d := known.Undone.Drift; d != nil && len(left) > maxShown { // its digest is what decides
				known.Undone.Drift = &activities.Drift{Digest: d.Digest, Diff: clip(d.Diff, maxWhy)}
			}
			left[it.entry.Token] = Left{State: it.state, progress: known}
		}
	}
	s.ledger.Drop(func(token string) bool { return ended[token] })
	s.left, s.plan = left, nil
}

// Resume makes a saga of what the run before has carried over.
func Resume(ctx workflow.Context, o Options, c Carried) *Saga {
	s := New(ctx, o)
	s.ledger.Adopt(c.Entries)
	s.ledger.last = max(s.ledger.last, c.Last)
	s.past, s.left, s.part, s.ignored = c.Past, c.Left, c.Part, c.Ignored
	return s
}

// restore puts what is known of entries into a new plan. What a person has decided, or must decide, stays so.
func (s *Saga) restore() {
	for _, it := range s.plan.items {
		if known, ok := s.left[it.entry.Token]; ok {
			it.progress = known.progress
			if known.State != Pending && it.state == Pending {
				s.plan.set(it, known.State)
			}
		}
	}
}

// TakeUp takes over what another run of the same task, which is dead, knew and had done.
func (s *Saga) TakeUp(c Carried) {
	s.Adopt(c.Entries)
	s.past.Join(c.Past)
	if s.left == nil {
		s.left = map[string]Left{}
	}
	maps.Copy(s.left, c.Left)
}

// Skipped tells of the entries that an unwinding of a part has left on the ledger.
func (s *Saga) Skipped() []StepReport {
	var skipped []StepReport
	for _, e := range s.ledger.Entries() {
		if known, ok := s.left[e.Token]; ok && known.State == Skipped {
			skipped = append(skipped, known.item(e).report())
		}
	}
	return skipped
}

// LookAgain are the undos that are to be looked at again when the workflow is over.
func (s *Saga) LookAgain() []Again {
	again := s.past.Again
	if s.plan != nil {
		for _, it := range s.plan.items {
			if it.state == Settled && it.Undone.LookAgain > 0 {
				again = append(slices.Clip(again), Again{it.entry, it.Undone.LookAgain})
			}
		}
	}
	return again
}
