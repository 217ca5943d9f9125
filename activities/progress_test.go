package activities

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProgressIsTheEndOfWhatIsToldWithSecretsMasked(t *testing.T) {
	m := &Masker{}
	m.Add("quite-a-secret")
	p := &progress{step: "s", masker: m}
	require.True(t, p.set([]string{"a", "b", "c", "uses quite-a-secret now"}))
	require.Equal(t, []string{"b", "c", "uses *** now"}, p.last)
	require.False(t, p.set([]string{"z", "b", "c", "uses quite-a-secret now"}), "the same lines are sent once")
	require.True(t, p.set([]string{strings.Repeat("é", 200)}))
	require.LessOrEqual(t, len(p.last[0]), progressLine)
}

func TestAnUnfinishedLineIsNotShown(t *testing.T) {
	for text, want := range map[string][]string{
		"":                   nil,
		"half a sec":         nil,
		"one\ntwo\nhal":      {"one", "two"},
		"one\r\n\n  \ntwo\n": {"one", "two"},
		"10 %\r20 %\r30":     {"10 %", "20 %"},
	} {
		require.Equal(t, want, LastLines(text), "%q", text)
	}
}

func TestProgressOutsideOfACallIsNoMistake(t *testing.T) {
	ShowProgress(context.Background(), func() []string { panic("nobody asks") })()
}
