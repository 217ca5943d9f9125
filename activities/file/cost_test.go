package file_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/file"
)

func BenchmarkWriteAndUndo(b *testing.B) {
	root := b.TempDir()
	w, err := file.New(file.Config{Roots: []string{root}})
	require.NoError(b, err)
	place, err := w.Journal(context.Background())
	require.NoError(b, err)
	with, _ := json.Marshal(params{"path": root + "/app.json", "content": "{}"})
	for _, undo := range []bool{false, true} {
		b.Run(fmt.Sprintf("undo=%t", undo), func(b *testing.B) {
			for i := range b.N {
				e := activities.Entry{Token: activities.NewToken(fmt.Sprint(b.N, undo), "step", i), Place: activities.Place{Journal: place}}
				_, err := w.Actions[0].Apply(b.Context(), e, activities.Step{With: with}, "")
				require.NoError(b, err)
				if undo {
					_, err := w.Actions[0].Undo(b.Context(), e, activities.Decision{})
					require.NoError(b, err)
				}
			}
		})
	}
}
