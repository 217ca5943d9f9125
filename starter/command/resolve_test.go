package command

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

func TestAnUndoThatWaitsForItsHostCanBeGivenUp(t *testing.T) {
	waiting := compensations.StepReport{Step: "one", State: string(compensations.Waiting), Reason: "waiting for host far",
		Digest: "d"}
	s := protocol.State{Phase: protocol.Unwinding, Report: &compensations.Report{Steps: []compensations.StepReport{
		waiting, {Step: "two", State: string(compensations.Settled)},
	}}}
	found, err := findPark(s, "one")
	require.NoError(t, err)
	require.Equal(t, waiting, found)
	require.Equal(t, []string{"one"}, parkedSteps(s))
	_, err = findPark(s, "two")
	require.ErrorContains(t, err,
		"the undo of step two of task  is not parked, it is settled: nothing was sent; parked: one")
	for do, ok := range map[compensations.Do]bool{
		compensations.Skip: true, compensations.Accept: true, compensations.Retry: false, compensations.Force: false,
		compensations.Reset: false,
	} {
		err := checkDecision(waiting, do)
		if ok {
			require.NoError(t, err, do)
		} else {
			require.ErrorContains(t, err,
				"step one is waiting for host far, and continues by itself: nothing was sent; use skip or accept to end it", do)
		}
	}
}
