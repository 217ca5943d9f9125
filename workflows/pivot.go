package workflows

import (
	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

// pivot is the last pivot that is done: the task never unwinds past it.
type pivot struct {
	saga     *compensations.Saga
	schedule *schedule

	seq       int // of its entry; 0: no pivot is done
	committed int // how many steps are off the ledger for good
}

// commitSteps sees to a step that is done. What was registered before a pivot that is done, and is done itself, is never undone.
func (p *pivot) commitSteps(s *stepRun) {
	if s.step.Pivot {
		p.seq = max(p.seq, s.seq)
	}
	if s.seq > p.seq {
		return
	}
	isOpen := map[string]bool{} // since an earlier run
	for _, v := range p.schedule.past {
		isOpen[v.ID] = v.State != Done
	}
	p.saga.CommitEntries(func(e activities.Entry) bool {
		o := p.schedule.byID[e.Step]
		if e.Seq > p.seq || o != nil && o.view.State != Done || isOpen[e.Step] {
			return false
		}
		p.committed++
		return true
	})
}
