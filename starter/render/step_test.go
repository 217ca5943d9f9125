package render

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOutputsAreTextOrJSON(t *testing.T) {
	require.Equal(t, []string{
		"bytes: 61000000", `files: [{"path":"/srv/a&b"}]`, "name: a <b>", "output:", "| one", "| two",
	}, OutputLines(map[string]any{
		"bytes": float64(61_000_000), "files": []any{map[string]any{"path": "/srv/a&b"}}, "name": "a <b>",
		"output": "one\ntwo\n",
		"none":   nil, "empty": "",
	}, 10))
}
