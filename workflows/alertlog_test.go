package workflows_test

import (
	"context"
	"slices"
	"sync"

	"go.temporal.io/sdk/activity"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// alertLog keeps the alerts of a task's runs, which can send several side by side.
type alertLog struct {
	mu  sync.Mutex
	all []protocol.Alert
}

func (l *alertLog) keepThoseOf(r *run) {
	r.env.RegisterActivityWithOptions(func(_ context.Context, a []protocol.Alert) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = append(l.all, a...)
		return nil
	}, activity.RegisterOptions{Name: protocol.AlertActivity, DisableAlreadyRegisteredCheck: true})
}

// parks are the alerts without those of gates.
func (l *alertLog) parks() []protocol.Alert {
	return slices.DeleteFunc(l.sent(), func(a protocol.Alert) bool { return a.State == protocol.Gated })
}

func (l *alertLog) sent() []protocol.Alert {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}
