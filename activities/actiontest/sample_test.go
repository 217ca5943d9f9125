package actiontest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestASampleLeavesNoPointUnbroken draws for tests of a case that come by the same points.
func TestASampleLeavesNoPointUnbroken(t *testing.T) {
	t.Setenv(everyOccurrence, "")
	points := []string{"a", "b", "a", "c"}
	s := &suite{Case: Case{Sample: 1}, broke: map[string]bool{}}
	require.Equal(t, []int{0, 1, 3}, s.draw(breakKill, points, true), "the first test breaks at each, once")
	require.Equal(t, []int{0, 1, 3}, s.draw(breakKill, points, true), "and so does that of an undo")
	require.Equal(t, []int{0, 1, 3}, s.draw(breakStop, points, false), "killed is not stopped")
	require.Len(t, s.draw(breakKill, points, false), 1)
	again := s.draw(breakStop, append(points, "new"), false)
	require.Len(t, again, 2)
	require.Equal(t, 4, again[1], "what no test has broken yet is in no sample, but always")

	brief := &suite{Case: Case{Sample: 2, Brief: true}, broke: map[string]bool{}}
	require.Len(t, brief.draw(breakKill, points, false), 2)
	brief.Own, brief.Sample = []string{"c"}, 1
	for range 10 {
		require.Contains(t, brief.draw(breakKill, points, false), 3, "what is its own is in no sample, but always")
	}
	all := &suite{broke: map[string]bool{}}
	require.Len(t, all.draw(breakKill, points, false), 3)
	require.Len(t, all.draw(breakKill, points, false), 3, "without a sample each test breaks at each")

	t.Setenv(everyOccurrence, "1")
	require.Equal(t, []int{0, 1, 2, 3}, s.draw(breakKill, points, false))
}
