package protocol

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/workflows/payload"
)

func TestLongOutputsLoseTheirMiddle(t *testing.T) {
	long := "first\n" + strings.Repeat("x", 10_000) + "\nlast"
	cut := CutOutputs(map[string]any{"short": "s", "number": 3, "long": long, "list": []any{long}, "none": nil})
	require.Equal(t, "s", cut["short"])
	require.Equal(t, 3, cut["number"])
	require.Nil(t, cut["none"])
	text := cut["long"].(string)
	require.Less(t, len(text), maxShownOutput+100)
	require.True(t, strings.HasPrefix(text, "first\n") && strings.HasSuffix(text, "\nlast"), text)
	require.Contains(t, text, fmt.Sprintf("\n... %d bytes ...\n", len(long)-maxShownOutput))
	require.Less(t, len(cut["list"].(string)), maxShownOutput+100)
	require.Nil(t, CutOutputs(nil))
}

func TestOfManyOutputsTheLastOnesAreShown(t *testing.T) {
	all, steps := map[string]map[string]any{}, []StepView{}
	for i := range 200 {
		id := fmt.Sprint(i)
		all[id] = map[string]any{"stdout": strings.Repeat("x", maxShownOutput)}
		steps = append(steps, StepView{ID: id, State: Done})
	}
	ShowOutputs(steps, all)
	require.Nil(t, steps[0].Outputs)
	require.NotNil(t, steps[199].Outputs)
	require.LessOrEqual(t, payload.SizeOf(steps), maxShownOutputs+4*maxShownOutput+200*100)
}
