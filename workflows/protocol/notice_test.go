package protocol

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

func TestAChannelKeepsEachOpeningOfAGateOnce(t *testing.T) {
	at := func(step string, opening activities.Digest, from string) Waiting {
		return Waiting{Alert: Alert{Task: "t", Step: step, State: Gated, Digest: opening}, From: from}
	}
	var n Notices
	n.Add([]Waiting{at("a", "1", ""), at("b", "1", "")})
	n.Waiting[0].Told, n.Waiting[1].Told = 1, 1
	n.Add([]Waiting{at("a", "1", ""), at("b", "2", ""), at("a", "1", "team")})
	told := at("a", "1", "")
	told.Told = 1
	require.Equal(t, []Waiting{told, at("b", "2", ""), at("a", "1", "team")}, n.Waiting)
}

func TestWhatAChannelCannotKeepIsCounted(t *testing.T) {
	var n Notices
	for i := range 300 {
		n.Add([]Waiting{{Alert: Alert{Step: fmt.Sprint(i), State: Gated, Reason: strings.Repeat("x", 1000)}}})
	}
	require.Greater(t, len(n.Waiting), 150)
	require.Positive(t, n.More)
	require.Equal(t, 300, len(n.Waiting)+n.More)
}

// What is urgent, or was not told, is kept the longest.
func TestAFullChannelDropsWhatIsToldAndLowFirst(t *testing.T) {
	n := Notices{Waiting: []Waiting{}}
	add := func(step string, risk activities.Risk, size int) {
		n.Add([]Waiting{{Alert: Alert{Step: step, State: Gated, Risk: risk, Reason: strings.Repeat("x", size)}}})
	}
	const quarter = maxWaiting / 4
	add("told", activities.Low, quarter)
	n.Waiting[0].Told = 1
	add("low", activities.Low, quarter)
	add("high", activities.High, quarter)
	add("second", activities.High, quarter)
	steps := func() (steps []string) {
		for _, w := range n.Waiting {
			steps = append(steps, w.Step)
		}
		return steps
	}
	require.Equal(t, []string{"high", "second", "low"}, steps())
	require.Equal(t, 1, n.More)
	add("third", activities.High, quarter)
	require.Equal(t, []string{"high", "second", "third"}, steps())
	require.Equal(t, 2, n.More)
}

func TestOnlyGatesOfALowOrMediumRiskMayWait(t *testing.T) {
	for risk, may := range map[activities.Risk]bool{activities.Low: true, activities.Medium: true, activities.High: false,
		"": false, "of a kind to come": false} {
		require.Equal(t, may, Waiting{Alert: Alert{State: Gated, Risk: risk}}.MayWait(), risk)
		require.False(t, Waiting{Alert: Alert{State: compensations.Parked, Risk: risk}}.MayWait(), risk)
	}
}
