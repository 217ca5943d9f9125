package host_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// A gate for an action that is not there would guard nothing.
func TestGatesOfAConfigNameActionsAndLevels(t *testing.T) {
	t.Parallel()
	own := activities.World{
		Name: "bulk", Journal: func(context.Context) (string, error) { return "j", nil },
		Actions: []activities.Action{bulk{name: "bulk.add"}},
	}
	for gates, want := range map[string]string{
		`{terraform.apply: always, "postgres.*": high, "*": high, bulk.add: always}`: "",
		`{terraform.aply: always}`: "worker.yaml:2: gates.terraform.aply: there is no such action; did you mean " +
			"terraform.apply?",
		`{"postgre.*": high}`:         "worker.yaml:2: gates.postgre.*: there is no such action; did you mean postgres.*?",
		`{nothing.like.it: high}`:     "worker.yaml:2: gates.nothing.like.it: there is no such action; name an action",
		`{terraform.apply: never}`:    `worker.yaml:2: gates.terraform.apply: "never" must be high or always`,
		`{terraform.apply: [always]}`: "worker.yaml:2: gates.terraform.apply: must be text, found a list",
	} {
		c, err := readConfig(t, "host: here\ngates: "+gates+"\n")
		if err == nil {
			c.State = t.TempDir()
			_, err = host.Validate(t.Context(), c, task.Compiled{}, own)
		}
		if want == "" {
			require.NoError(t, err, gates)
		} else {
			require.ErrorContains(t, err, want, gates)
		}
	}
}
