package protocol

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/payload"
)

// Bounds on the outputs in the answer to a query, in bytes of JSON: of one output, and of all.
const (
	maxShownOutput  = 2 << 10
	maxShownOutputs = 128 << 10
)

// ShowOutputs adds to the views of steps what they have returned; where it is too much, the last
// steps come first.
func ShowOutputs(steps []StepView, returned map[string]map[string]any) {
	left := maxShownOutputs
	for i := range slices.Backward(steps) {
		if steps[i].State == Done && left > 0 {
			steps[i].Outputs = CutOutputs(returned[steps[i].ID])
			left -= payload.SizeOf(steps[i].Outputs)
		}
	}
}

// CutOutputs returns outputs without the middle of long ones. Of a command, the beginning and the
// end are what people read.
func CutOutputs(all map[string]any) map[string]any {
	if len(all) == 0 {
		return nil
	}
	cut := make(map[string]any, len(all))
	for name, value := range all {
		text, isText := value.(string)
		if !isText {
			raw, err := json.Marshal(value)
			if err != nil || len(raw) <= maxShownOutput {
				cut[name] = value
				continue
			}
			text = string(raw)
		}
		cut[name] = cutMiddle(text, maxShownOutput)
	}
	return cut
}

func cutMiddle(s string, most int) string {
	if len(s) <= most {
		return s
	}
	head, tail := strings.ToValidUTF8(s[:most/2], ""), strings.ToValidUTF8(s[len(s)-most/2:], "")
	return fmt.Sprintf("%s\n... %s ...\n%s", head, activities.CountOf(len(s)-len(head)-len(tail), "byte"), tail)
}
