package activities_test

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// TestAStreamIsMaskedHoweverItIsCut cuts a text at each two places: what comes out is what masks
// the whole.
func TestAStreamIsMaskedHoweverItIsCut(t *testing.T) {
	m := &activities.Masker{}
	m.Add("correct horse", "correct horse battery", "two\nsecret lines")
	text := "corr correct horse; correct horse battery, correct horse batt " +
		base64.StdEncoding.EncodeToString([]byte("correct horse")) +
		" two\nsecret lines ccorrect horse cor"
	want := m.String(text)
	require.NotContains(t, want, "horse;")
	require.True(t, strings.HasSuffix(want, " cor"))
	for one := range len(text) {
		for two := one; two <= len(text); two += 7 {
			var out bytes.Buffer
			w := activities.Hiding(m.Hidden()).Writer(&out)
			for _, part := range []string{text[:one], text[one:two], text[two:]} {
				n, err := w.Write([]byte(part))
				require.NoError(t, err)
				require.Equal(t, len(part), n)
			}
			require.NoError(t, w.Close())
			require.Equal(t, want, out.String(), "%d %d", one, two)
		}
	}
}

func TestAStreamKeepsBackOnlyWhatMayBeASecret(t *testing.T) {
	m := &activities.Masker{}
	m.Add("correct horse")
	var out bytes.Buffer
	w := m.Writer(&out)
	_, err := w.Write([]byte("line\n"))
	require.NoError(t, err)
	require.Equal(t, "line\n", out.String(), "who watches sees it at once")
	_, err = w.Write([]byte("correct h"))
	require.NoError(t, err)
	require.Equal(t, "line\n", out.String())
	_, err = w.Write([]byte("air"))
	require.NoError(t, err)
	require.Equal(t, "line\ncorrect hair", out.String())
}
