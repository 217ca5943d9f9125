package mcp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

func TestAReplyIsPassedOnOnlyWhereItIsTrueOfTheStep(t *testing.T) {
	t.Parallel()
	in := func(state protocol.StepState) Outcome { return Outcome{Steps: []Step{{State: string(state)}}} }
	succeeded, failed, lost := Reply{Succeeded: true}, Reply{}, Reply{Succeeded: true, Lost: true}
	require.True(t, succeeded.isTrueOf(in(protocol.Done)))
	require.False(t, succeeded.isTrueOf(in(protocol.RolledBack)), "it was undone")
	require.False(t, succeeded.isTrueOf(in(protocol.Running)))
	require.True(t, failed.isTrueOf(in(protocol.RolledBack)))
	require.True(t, failed.isTrueOf(in(protocol.StepFailed)))
	require.False(t, lost.isTrueOf(in(protocol.Done)), "there is nothing to pass on")
	require.False(t, failed.isTrueOf(in(protocol.StepParked)), "it may be called again")
	require.False(t, failed.isTrueOf(Outcome{}))
}
