package activities_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
)

// A person decides by what a diff shows: what it does not show is counted.
func TestACutDiffSaysWhatIsMissing(t *testing.T) {
	line := "+" + strings.Repeat("x", 98) + "\n"
	for name, c := range map[string]struct{ diff, ends string }{
		"whole":            {strings.Repeat(line, 100), line},
		"to the last byte": {strings.Repeat("y", activities.MaxDiff), "yyyy"},
		"lines":            {strings.Repeat(line, 1000), line + "... not shown: 674 more lines, 67400 of 100000 bytes\n"},
		"one line":         {strings.Repeat("z", 100_000), "zz\n... not shown: 1 more line, 67306 of 100000 bytes\n"},
		"without a last line": {strings.Repeat(line, 1000) + "end",
			line + "... not shown: 675 more lines, 67403 of 100003 bytes\n"},
	} {
		t.Run(name, func(t *testing.T) {
			drift := activities.Drift{Digest: "sha256:x", Diff: c.diff}
			got := activities.CapDrift(drift).Diff
			require.LessOrEqual(t, len(got), activities.MaxDiff)
			require.True(t, strings.HasSuffix(got, c.ends), got[max(0, len(got)-150):])
		})
	}
}

// A worker may refuse what nobody can read.
func TestACutDiffIsRefusedWhereThePolicyIsSo(t *testing.T) {
	refuse := func(h *activities.Host) { h.RefuseCutDiffs = true }
	for long, refused := range map[int]bool{activities.MaxDiff: false, activities.MaxDiff + 1: true} {
		env := newEnvironment(scripted{change: activities.Change{Diff: strings.Repeat("x", long)}}, refuse)
		_, err := env.ExecuteActivity("echo.say.plan", forwardOfThisRun(withSecret))
		if !refused {
			require.NoError(t, err)
			continue
		}
		failed, isFailed := errors.AsType[*temporal.ApplicationError](err)
		require.True(t, isFailed)
		require.Equal(t, string(activities.Refused), failed.Type())
		require.True(t, failed.NonRetryable())
		require.ErrorContains(t, err, "its diff of 32769 bytes is longer than the 32768 that a person is shown")
	}
}
