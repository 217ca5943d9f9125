package task

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever the bytes: no panic, problems that point into the file, and a document that is the same after its way through
// JSON.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/accepted/*.yml", "testdata/refused/*.yml"} {
		files, err := filepath.Glob(pattern)
		require.NoError(f, err)
		for _, file := range files {
			src, err := os.ReadFile(file)
			require.NoError(f, err)
			if len(src) < 10_000 {
				f.Add(src)
			}
		}
	}
	cat := catalog()
	f.Fuzz(func(t *testing.T, src []byte) {
		doc, err := Parse("task.yml", src)
		if err != nil {
			problems, ok := err.(Problems)
			require.True(t, ok)
			require.NotEmpty(t, problems)
			for _, p := range problems {
				require.Positive(t, p.Line)
				require.Positive(t, p.Column)
				require.NotEmpty(t, p.Message)
			}
			return
		}
		raw, err := doc.JSON()
		require.NoError(t, err)
		again, err := Parse("task.yml", raw)
		require.NoError(t, err, "%s", raw)
		rawAgain, err := again.JSON()
		require.NoError(t, err)
		require.Equal(t, string(raw), string(rawAgain))

		first, err := Compile(doc, cat)
		second, errAgain := Compile(again, cat)
		require.Equal(t, err == nil, errAgain == nil)
		require.Equal(t, first, second)
	})
}
