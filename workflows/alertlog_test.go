package workflows_test

import (
	"context"
	"slices"
	"sync"

	"go.temporal.io/sdk/activity"

	"github.com/seed-62bf7108/unwind/workflows"
)

// alertLog keeps the alerts of a task's runs, which can send several side by side.
type alertLog struct {
	mu  sync.Mutex
	all []workflows.Alert
}

func (l *alertLog) keepThoseOf(r *run) {
	r.env.RegisterActivityWithOptions(func(_ context.Context, a []workflows.Alert) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = append(l.all, a...)
		return nil
	}, activity.RegisterOptions{Name: workflows.AlertActivity, DisableAlreadyRegisteredCheck: true})
}

// parks are the alerts without those of gates.
func (l *alertLog) parks() []workflows.Alert {
	return slices.DeleteFunc(l.sent(), func(a workflows.Alert) bool { return a.State == workflows.Gated })
}

func (l *alertLog) sent() []workflows.Alert {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}
