package compensations

import (
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// Past is what became of the entries that are off the ledger.
type Past struct {
	// Steps are those that a report must list. The clean ones are included while they are few.
	Steps []StepReport `json:"steps,omitempty"`
	// Count is the number of all entries, Outcomes the number of each outcome.
	Count    int            `json:"count,omitempty"`
	Outcomes map[string]int `json:"outcomes,omitempty"`
	// Rechecks are the undos to be checked again.
	Rechecks []Recheck `json:"again,omitempty"`
}

// Recheck is an undo that found no effect while a request could still have been on its way.
type Recheck struct {
	Entry activities.Entry `json:"entry"`
	// After is how long after the undo it is checked again.
	After time.Duration `json:"after"`
}

// AddEnd records an entry that has left the ledger, settled or accepted.
func (p *Past) AddEnd(e activities.Entry, end Progress) {
	p.addReport(e, end.item(e).report(), end.Undone.LookAgain)
}

// Merge adds what another run knows.
func (p *Past) Merge(other Past) {
	p.Steps = append(p.Steps, other.Steps...)
	p.Count += other.Count
	for outcome, n := range other.Outcomes {
		if p.Outcomes == nil {
			p.Outcomes = map[string]int{}
		}
		p.Outcomes[outcome] += n
	}
	p.Rechecks = append(p.Rechecks, other.Rechecks...)
}

func (p *Past) addReport(e activities.Entry, s StepReport, recheckAfter time.Duration) {
	p.Count++
	if s.Outcome != "" {
		if p.Outcomes == nil {
			p.Outcomes = map[string]int{}
		}
		p.Outcomes[string(s.Outcome)]++
	}
	switch {
	case len(p.Steps) < MaxReported:
		if p.countDrifts() > maxWholeDrifts {
			s.Drift = headOf(s.Drift)
		}
		p.Steps = append(p.Steps, s)
	case !s.isPlain(): // shortened: what is carried must fit
		s.Losses, s.Drift, s.Notes = nil, headOf(s.Drift), nil
		s.Observed, s.Reason = clip(s.Observed, maxName), clip(s.Reason, maxName)
		p.Steps = append(p.Steps, s)
	}
	if recheckAfter > 0 {
		p.Rechecks = append(p.Rechecks, Recheck{e, recheckAfter})
	}
}

func (p *Past) countDrifts() (n int) {
	for _, s := range p.Steps {
		if s.Drift != nil {
			n++
		}
	}
	return n
}

// DropSteps drops steps from the list until at most n remain: first the clean ones, then the last
// ones. They stay counted. It returns how many it dropped.
func (p *Past) DropSteps(n int) (dropped int) {
	before := len(p.Steps)
	if before <= n {
		return 0
	}
	p.Steps = dropSteps(p.Steps, n)
	return before - len(p.Steps)
}
