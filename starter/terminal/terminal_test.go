package terminal

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDurationsForPeople(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0ms", 0: "0ms", 40 * time.Millisecond: "40ms", 1500 * time.Millisecond: "1.5s", 12300 * time.Millisecond: "12s",
		3 * time.Minute: "3m", 90 * time.Second: "1m30s", 2 * time.Hour: "2h", 2*time.Hour + 90*time.Second: "2h2m", 30 * time.Minute: "30m",
		100 * time.Hour: "100h", 50 * time.Second: "50s",
	} {
		require.Equal(t, want, Duration(d), d)
	}
}

func TestWordsForAShell(t *testing.T) {
	for word, want := range map[string]string{"a-b.1": "a-b.1", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$(x)": "'$(x)'"} {
		require.Equal(t, want, ShellQuote(word))
	}
}
