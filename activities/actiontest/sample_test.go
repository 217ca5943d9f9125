package actiontest

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestASampleLeavesNoPointUnbroken draws for tests of a case that reach the same points.
func TestASampleLeavesNoPointUnbroken(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	points := []string{"a", "b", "a", "c"}
	s := &suite{Case: Case{Sample: 1}, broke: map[string]bool{}}
	require.Equal(t, []int{0, 1, 2, 3}, s.draw(random, breakKill, points, true), "the first test breaks at each, once, and at one again")
	require.Equal(t, []int{0, 1, 2, 3}, s.draw(random, breakStop, points, false), "killed is not stopped")
	require.Len(t, s.draw(random, breakKill, points, false), 1)
	again := s.draw(random, breakStop, append(points, "new"), false)
	require.Len(t, again, 2)
	require.Equal(t, 4, again[1], "what no test has broken yet is in no sample, but always")

	s = &suite{Case: Case{Sample: 1}, broke: map[string]bool{}}
	require.Subset(t, s.draw(random, breakKill, []string{"a", "a", "a", "a", "b"}, true), []int{0, 4})

	brief := &suite{Case: Case{Sample: 2, Brief: true}, broke: map[string]bool{}}
	require.Len(t, brief.draw(random, breakKill, points, false), 2)
	brief.Own, brief.Sample = []string{"c"}, 1
	for range 10 {
		require.Contains(t, brief.draw(random, breakKill, points, false), 3, "what is its own is in no sample, but always")
	}
	all := &suite{broke: map[string]bool{}}
	require.Equal(t, []int{0, 1, 2, 3}, all.draw(random, breakKill, points, false))
	require.Equal(t, []int{0, 1, 2, 3}, all.draw(random, breakKill, points, false), "without a sample each test breaks at each")
}

// TestADrawIsRepeated draws twice from one source.
func TestADrawIsRepeated(t *testing.T) {
	points := []string{"a", "b", "c", "d", "e", "f", "g"}
	draw := func() []int {
		s := &suite{Case: Case{Sample: 3, Brief: true}, broke: map[string]bool{}}
		return s.draw(rand.New(rand.NewPCG(3, 4)), breakKill, points, false)
	}
	require.Equal(t, draw(), draw())
}
