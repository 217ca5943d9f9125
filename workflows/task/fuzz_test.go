package task

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever the bytes: no panic, problems that point into the file, and a document that is the same
// after its way through JSON.
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
	for _, back := range []string{"{unwind_to: p, times: 2}", "{unwind_to: p, times: -1}", "{unwind_to: q}", "[unwind]",
		"continue", "{}"} {
		f.Add([]byte("on_failure: rollback_step\nunwind: parallel\nkeep: 90m\n" + stepsOf(
			"uses: stripe.customer.create, savepoint: p, undo: {attempts: 3, criticality: low}",
			"uses: stripe.customer.create, needs: [], pivot: false, with: {email: '${{ steps.s0.outputs.id }}'}, on_failure: "+
				back,
			"uses: stripe.customer.create, savepoint: q, pivot: true, on_failure: "+back)))
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
		if err == nil {
			refersBack(t, first)
		}
	})
}

// refersBack holds where each step needs, refers to and goes back to what stands above it, and past
// no pivot.
func refersBack(t *testing.T, c *Compiled) {
	steps, savepoints := map[string]bool{}, map[string]bool{}
	for _, s := range c.Steps {
		for _, id := range append(s.References(), s.Needs...) {
			require.True(t, steps[id], id)
		}
		steps[s.ID] = true
		if s.Savepoint != "" {
			require.NotContains(t, savepoints, s.Savepoint)
			savepoints[s.Savepoint] = true
		}
		if back := s.OnFailure; back.Do == FailUnwindTo {
			require.True(t, savepoints[back.To], back.To)
			require.True(t, back.Times >= 1 && back.Times <= MaxTimes)
		} else {
			require.Zero(t, OnFailure{To: back.To, Times: back.Times})
		}
		if s.Pivot {
			for name := range savepoints {
				savepoints[name] = false // there is no way back to it
			}
		}
	}
}
