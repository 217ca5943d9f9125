package host

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// An undo that waits for its host still waits, as a parked one does.
func TestAnUndoWaitsAsItsAlertSays(t *testing.T) {
	for _, state := range []compensations.UndoState{compensations.Waiting, compensations.Parked} {
		a := protocol.Alert{Step: "b", State: state, Digest: "sha256:1"}
		at := func(s compensations.UndoState, d activities.Digest) protocol.StepNow {
			return protocol.StepNow{Undo: &compensations.StepReport{Step: "b", State: string(s), Digest: d}}
		}
		require.True(t, waitsAt(a, at(state, "sha256:1")), state)
		require.False(t, waitsAt(a, at(state, "sha256:2")), state)
		require.False(t, waitsAt(a, at(compensations.Running, "sha256:1")), state)
	}
}
