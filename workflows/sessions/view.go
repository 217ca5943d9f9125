package sessions

import (
	"fmt"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// View is the session in the answer to the query state.
func (t *session) View() *protocol.SessionView {
	return &protocol.SessionView{
		Open: t.Schedule.Open, Savepoints: t.Savepoints.Names(), Heard: t.Silence.Heard, AgentGone: t.Silence.Asked,
		Contexts: t.contexts, Since: t.sinceContext(), Notes: t.notes, TakenBack: t.takenBack(),
	}
}

// Remarks are what the report of the session says of it.
func (t *session) Remarks() []string {
	var remarks []string
	for _, n := range t.notes {
		remarks = append(remarks, n.String())
	}
	if t.dropped > 0 {
		remarks = append(remarks,
			fmt.Sprintf("not listed: %s of the session, rolled back or done with notes", activities.CountOf(t.dropped, "step")))
	}
	return remarks
}

// sinceContext lists the steps on the ledger that came after the last context, or all of them.
func (t *session) sinceContext() (since []string) {
	seq := 0
	if n := len(t.contexts); n > 0 {
		seq = t.contexts[n-1].Seq
	}
	for _, e := range t.Saga.Entries() {
		if e.Seq > seq {
			since = append(since, e.Step)
		}
	}
	return since[max(0, len(since)-maxSince):]
}

// maxSince is how many steps a view lists since the last context.
const maxSince = 1000
