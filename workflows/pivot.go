package workflows

import (
	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// pivot tracks the last pivot that is done: the task never unwinds past it.
type pivot struct {
	saga     *compensations.Saga
	schedule *schedule

	seq       int // of its entry; 0 if no pivot is done
	committed int // how many steps are off the ledger for good
}

// commitSteps takes off the ledger what the done step s puts beyond undoing: the done entries up to the last pivot that is done.
func (p *pivot) commitSteps(s *stepRun) {
	if s.step.Pivot {
		p.seq = max(p.seq, s.seq)
	}
	if s.seq > p.seq {
		return
	}
	isOpen := map[string]bool{} // steps that ended in an earlier run without being done
	for _, v := range p.schedule.past {
		isOpen[v.ID] = v.State != protocol.Done
	}
	p.saga.CommitEntries(func(e activities.Entry) bool {
		o := p.schedule.byID[e.Step]
		if e.Seq > p.seq || o != nil && o.view.State != protocol.Done || isOpen[e.Step] {
			return false
		}
		p.committed++
		return true
	})
}
