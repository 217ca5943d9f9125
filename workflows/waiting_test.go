package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// elsewhere is a task whose second step belongs to a host without a worker.
func elsewhere(t *testing.T) *live {
	w := &world{steps: chain("a", "b")}
	l := newLive(t, servertest.Client(t), w)
	w.steps[1].Place.Queue, w.steps[1].Place.Host, w.steps[1].Undo.HostWait = l.queue+"@away", "away", time.Second
	l.startWorker()
	l.start()
	return l
}

func waitsForHost(s protocol.State) bool {
	return len(s.Steps) == 2 && s.Steps[1].Waiting == "waiting for host away"
}

func TestAStepWhoseHostIsAwayShowsItAndGoesOnByItself(t *testing.T) {
	l := elsewhere(t)
	l.awaitState(waitsForHost)
	require.Eventually(t, func() bool {
		l.world.mu.Lock()
		defer l.world.mu.Unlock()
		return len(l.alerts) == 1
	}, 20*time.Second, 20*time.Millisecond)
	require.Equal(t, compensations.Waiting, l.alerts[0].State)
	require.Equal(t, "b", l.alerts[0].Step)
	require.Equal(t, "waiting for host away", l.alerts[0].Reason)

	l.serve(l.queue + "@away")
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, compensations.Committed, report.Status)
	require.Equal(t, []string{"do a", "do b"}, l.calls())
	require.Len(t, l.alerts, 1, "once")
}

func TestATaskThatWaitsForAHostCanBeCanceled(t *testing.T) {
	l := elsewhere(t)
	l.awaitState(waitsForHost)
	require.NoError(t, l.client.CancelWorkflow(t.Context(), l.run.GetID(), ""))
	l.awaitState(func(s protocol.State) bool { return s.Phase == protocol.Unwinding })
	l.serve(l.queue + "@away") // its undo waits too: the step may have been taken
	report, err := l.report()
	require.Error(t, err)
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, []string{"do a", "undo b", "undo a"}, l.calls())
}
