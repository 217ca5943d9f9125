package compensations

import "go.temporal.io/sdk/workflow"

// One workflow task schedules a bounded number of alerts, however many undos a single decision
// parks: a server allows about 2,000 pending activities, and fails a workflow task that schedules
// more.
const (
	maxAlerted = 50 // undos that one call of Options.Alert reports
	maxAlerts  = 10 // calls at once, and calls that a paused run still makes
)

// hasAlerts reports whether an alert waits to be sent, and may be.
func (s *Saga) hasAlerts() bool { return len(s.plan.unannounced) > 0 && s.alerts < maxAlerts }

// sendAlerts reports the undos that wait for a person or for their host, in the order in which they
// began to, by at most that many calls. The rest is sent when these are over, or by the next run.
// An alert is sent even if its undo was resolved meanwhile: a recovery needs it to read decisions.
func (s *Saga) sendAlerts(ctx workflow.Context, most int) (calls int) {
	for ; s.hasAlerts() && calls < most; calls++ {
		batch := s.plan.unannounced[:min(maxAlerted, len(s.plan.unannounced))]
		s.plan.unannounced = s.plan.unannounced[len(batch):]
		for _, r := range batch {
			s.countState(ctx, r)
		}
		if s.options.Alert == nil {
			continue
		}
		ctx, _ := workflow.NewDisconnectedContext(ctx)
		s.alerts++
		workflow.GoNamed(ctx, "alert "+batch[0].Step, func(ctx workflow.Context) {
			s.options.Alert(ctx, batch)
			s.alerts--
		})
	}
	return calls
}
