package protocol

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
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
