package engine

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// checkIntent refuses a step of a session that has the same purpose as one on the ledger, whatever other words it uses: an agent that has lost
// track would act twice. What was rolled back is no longer on the ledger, so it may be done again.
func checkIntent(ledger []activities.Entry, s task.Step, params json.RawMessage) error {
	if s.Again || len(s.Intent) == 0 {
		return nil
	}
	meant := activities.Meant(params, s.Intent)
	for _, e := range ledger {
		if e.Action == s.Uses && e.Step != s.ID && reflect.DeepEqual(activities.Meant(e.Params, s.Intent), meant) {
			return protocol.Refusef("step %s is for the same: %s with the same %s. Go on with what it has returned, or roll it back first; "+
				"if this is meant to happen once more, add again: true to the step", e.Step, s.Uses, strings.Join(s.Intent, ", "))
		}
	}
	return nil
}
