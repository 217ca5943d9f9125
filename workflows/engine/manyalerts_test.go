package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/calls"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

func TestManyAlertsAreSentInParts(t *testing.T) {
	const n = 400
	var undos []protocol.Alert
	for i := range n {
		undos = append(undos, protocol.Alert{Step: fmt.Sprintf("s%d", i), Reason: strings.Repeat("x", activities.MaxText)})
	}
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: time.Minute})
	sent := map[string]int{}
	var mu sync.Mutex
	env.RegisterActivityWithOptions(func(_ context.Context, alerts []protocol.Alert) error {
		mu.Lock()
		defer mu.Unlock()
		for _, a := range alerts {
			sent[a.Step]++
		}
		if len(alerts) > maxBatch {
			return fmt.Errorf("%d are sent at once", len(alerts))
		}
		if size := payload.SizeOf(alerts); size > maxAlerted+len("[]") {
			return fmt.Errorf("it is sent %d at once", size)
		}
		return nil
	}, activity.RegisterOptions{Name: protocol.AlertActivity})
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		a := alerts{isLeaving: func() bool { return false }, changed: func() {}, patience: calls.NewPatience(0)}
		var failed error
		a.note = func(note string) { failed = errors.New(note) }
		a.send(ctx, undos...)
		if len(a.waiting) != n {
			return errors.New("it does not return at once")
		}
		return cmp.Or(workflow.Await(ctx, func() bool { return a.untold() == 0 }), failed)
	})
	require.NoError(t, env.GetWorkflowError())
	require.Len(t, sent, n)
	for step, times := range sent {
		require.Equal(t, 1, times, step)
	}
}
