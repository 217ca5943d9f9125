package activities_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

func TestWhatIsHiddenIsShown(t *testing.T) {
	for text, want := range map[string]string{
		"plain\ttext\nof äöü, 😀, e\u0301 and \u00a0": "plain\ttext\nof äöü, 😀, e\u0301 and \u00a0",
		"a\r\nb\rc":              "a\nb\\u000dc",
		"\x1b[2J\x00\x7f\u0085":  `\u001b[2J\u0000\u007f\u0085`,
		"pay \u202eevil\u202c":   `pay \u202eevil\u202c`,
		"\u2066a\u2069\u200f":    `\u2066a\u2069\u200f`,
		"\U000e0041\U000e007f":   `\udb40\udc41\udb40\udc7f`,
		"z\u200bz\u200d\ufeff":   `z\u200bz\u200d\ufeff`,
		"\u2028\u2029\u00ad":     `\u2028\u2029\u00ad`,
		"\u3164\u034f\U000e0100": `\u3164\u034f\udb40\udd00`,
		"\ue000\U0010ffff":       `\ue000\udbff\udfff`,
		"cut\xff":                "cut\ufffd",
	} {
		require.Equal(t, want, activities.Visible(text), "%q", text)
		require.Equal(t, want, activities.Visible(activities.Visible(text)))
	}
}

// A JSON text stays the same value.
func TestWhatIsShownOfJSONIsTheSame(t *testing.T) {
	value := "\u202e \U000e0041 \x1b \r\n \x7f é"
	raw, err := json.Marshal(value)
	require.NoError(t, err)
	var back string
	require.NoError(t, json.Unmarshal([]byte(activities.Visible(string(raw))), &back))
	require.Equal(t, value, back)
}
