package exactjson_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/internal/exactjson"
)

func TestWhatGoWouldChangeIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": {"b": ["x", "\ud800"]}}`:                               `a.b[1]: a string has \ud800 without the other half of its surrogate pair`,
		`{"a": "\uDC00\uD800"}`:                                       `a: a string has \udc00 without the other half`,
		`{"a": "\ud83d\u0041"}`:                                       `a: a string has \ud83d without`,
		`{"a": "\ud83d\\ude00"}`:                                      `a: a string has \ud83d without`,
		"{\"a\": [1, {\"b\": \"\xff\"}]}":                             `a[1].b: a string is not valid UTF-8`,
		`{"\ud800": 1}`:                                               `a string has \ud800 without`,
		`{"a": {"x": 1, "\u0078": 2}}`:                                `a.x: the object has two fields of this name`,
		`{"a` + "\u202e" + `": {"b": 1,"b":2}}`:                       `"a\u202e".b: the object has two fields`,
		strings.Repeat("[", 200) + strings.Repeat("]", 200):           `it is nested deeper than 100`,
		`{"a": [` + strings.Repeat("0,", exactjson.MaxValues) + `0]}`: `it has more values than 100000`,
		`{"a": 1`:          `unexpected EOF`,
		`"` + "\x00" + `"`: `invalid character`,
	} {
		_, err := exactjson.Check([]byte(text))
		require.ErrorContains(t, err, want, "%.60s", text)
	}
}

// What is not refused comes out of encoding/json as it went in.
func FuzzWhatIsTakenIsKept(f *testing.F) {
	for _, text := range []string{
		`null`, `{}`, `[]`, `[{}, [], ""]`, `{"a": {"a": 1}, "b": [{"a": 1}, {"a": 2}]}`,
		`"\ud83d\ude00 😀 \u0000 \\ud800 \""`, `"\\\ud800"`,
		`[9007199254740993, -0, 1e400, 1.10, 100000000000000000000000000000000000000001]`, `"\u202e"`, `{"":{"":[]}}`,
		`"\ud800\ud83d\ude00"`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := exactjson.Check([]byte(text)); err != nil || !json.Valid([]byte(text)) {
			return
		}
		var first, second any
		require.NoError(t, exactjson.Decode([]byte(text), &first))
		kept, err := json.Marshal(first)
		require.NoError(t, err)
		require.NoError(t, exactjson.Decode(kept, &second))
		require.Equal(t, first, second)
		require.Equal(t, strings.Count(text, `\ufffd`)+strings.Count(text, `\uFFFD`)+strings.Count(text, "\ufffd") > 0,
			strings.Contains(string(kept), "\ufffd"), "%q", text)
	})
}

func TestNumbersThatAreRounded(t *testing.T) {
	for n, want := range map[json.Number]bool{
		"0": false, "-0": false, "0.0e5": false, "1": false, "1.10": false, "100": false, "1e2": false, "1E+02": false,
		"-12.5e-3": false, "0.001": false,
		"9007199254740992": false, "9007199254740993": true, "1e400": true, "1e-400": true, "0.1": false,
		"0.10000000000000000001": true,
		"123456789012345678901":  true, "1e21": false, "100000000000000000000000": false, "1e99999999999999": true,
		"0e99999999999999": true,
	} {
		require.Equal(t, want, exactjson.Rounds(n), n)
	}
}

func TestNumbersThatDoNotFit(t *testing.T) {
	require.EqualError(t, exactjson.CheckFits([]byte(`{"a":[1,1e400]}`)), "a[1]: the number 1e400 is out of range")
	require.NoError(t, exactjson.CheckFits([]byte(`{"a":[9007199254740993,-0]}`)))
}
