package mcp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/workflows"
)

func TestAReplyIsPassedOnOnlyWhereItIsTrueOfTheStep(t *testing.T) {
	t.Parallel()
	in := func(state workflows.StepState) Outcome { return Outcome{Steps: []Step{{State: string(state)}}} }
	succeeded, failed, lost := Reply{Succeeded: true}, Reply{}, Reply{Succeeded: true, Lost: true}
	require.True(t, succeeded.isTrueOf(in(workflows.Done)))
	require.False(t, succeeded.isTrueOf(in(workflows.RolledBack)), "it was undone")
	require.False(t, succeeded.isTrueOf(in(workflows.Running)))
	require.True(t, failed.isTrueOf(in(workflows.RolledBack)))
	require.True(t, failed.isTrueOf(in(workflows.StepFailed)))
	require.False(t, lost.isTrueOf(in(workflows.Done)), "there is nothing to pass on")
	require.False(t, failed.isTrueOf(in(workflows.StepParked)), "it may be called again")
	require.False(t, failed.isTrueOf(Outcome{}))
}
