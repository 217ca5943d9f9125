package actiontest

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestASampleLeavesNoPointUnbroken draws for tests of a case that reach the same points.
func TestASampleLeavesNoPointUnbroken(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	points := []string{"a", "b", "a", "c"}
	s := &suite{Case: Case{Sample: 1, EitherWay: true}, covered: map[string]bool{}}
	for range 10 {
		killing, stopping := s.dealPoints(random, points)
		for label := range killing {
			require.NotEqual(t, killing[label], stopping[label], "each point is broken in one way: %s", label)
		}
		require.Len(t, killing, 3)
		killed, stopped := s.drawPoints(random, breakKill, points, killing), s.drawPoints(random, breakStop, points, stopping)
		require.Subset(t, append(killed, stopped...), []int{0, 1, 3})
		require.Equal(t, killing["a"], slices.Contains(killed, 2), "and once more where it is reached again")
		require.Equal(t, stopping["a"], slices.Contains(stopped, 2))
	}
	for _, how := range []string{breakKill, breakStop} {
		again := s.drawPoints(random, how, append(points, "new"), nil)
		require.Len(t, again, 2)
		require.Equal(t, 4, again[1], "what no test has broken in this way yet is in no sample, but always")
	}

	brief := &suite{Case: Case{Sample: 2, Brief: true}, covered: map[string]bool{}}
	killing, _ := brief.dealPoints(random, points)
	require.Len(t, brief.drawPoints(random, breakKill, points, killing), 2)
	brief.Own, brief.Sample = []string{"c"}, 1
	for range 10 {
		require.Contains(t, brief.drawPoints(random, breakKill, points, killing), 3,
			"what is its own is in no sample, but always")
	}
	all := &suite{covered: map[string]bool{}}
	killing, stopping := all.dealPoints(random, points)
	require.Equal(t, []int{0, 1, 2, 3}, all.drawPoints(random, breakKill, points, killing))
	require.Equal(t, []int{0, 1, 2, 3}, all.drawPoints(random, breakStop, points, stopping),
		"without a sample each test breaks at each, in each way")
	require.Equal(t, []int{0, 1, 2, 3}, all.drawPoints(random, breakKill, points, nil))
}

// TestADrawIsRepeated draws twice from one source.
func TestADrawIsRepeated(t *testing.T) {
	points := []string{"a", "b", "c", "d", "e", "f", "g"}
	draw := func() []int {
		s := &suite{Case: Case{Sample: 3, Brief: true}, covered: map[string]bool{}}
		return s.drawPoints(rand.New(rand.NewPCG(3, 4)), breakKill, points, nil)
	}
	require.Equal(t, draw(), draw())
}
