package engine

import (
	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// pivot tracks the last pivot that is done: the task never unwinds past it.
type pivot struct {
	saga     *compensations.Saga
	schedule *schedule

	Seq       int // of its entry; 0 if no pivot is done
	committed int // how many steps are off the ledger for good
}

// commitSteps takes off the ledger what the done step s puts beyond undoing: the done entries up to
// the last pivot that is done.
func (p *pivot) commitSteps(s *Step) {
	if s.Step.Pivot {
		p.Seq = max(p.Seq, s.Seq)
	}
	if s.Seq > p.Seq {
		return
	}
	isOpen := map[string]bool{} // steps that ended in an earlier run without being done
	for _, v := range p.schedule.past {
		isOpen[v.ID] = v.State != protocol.Done
	}
	p.saga.CommitEntries(func(e activities.Entry) bool {
		o := p.schedule.ByID[e.Step]
		if e.Seq > p.Seq || o != nil && o.View.State != protocol.Done || isOpen[e.Step] {
			return false
		}
		p.committed++
		return true
	})
}
