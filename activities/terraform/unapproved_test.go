package terraform

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/terraform/terraformtest"
)

// What a plan destroys or replaces is not touched by a worker before a person has approved it,
// whatever the task file says; what only adds is not before a person has approved it, or the task
// file has left the gate out.
func TestAPlanIsJudgedBeforeAnythingIsWritten(t *testing.T) {
	terraformtest.Require(t)
	t.Parallel()
	for name, c := range map[string]struct {
		configuration string
		waivable      bool
		why           string
		left          map[string]int
	}{
		"destroy": {"", false, "always asked", map[string]int{}},
		"replace": {`resource "fake_thing" "a" { name = "b" }`, false, "always asked", map[string]int{"b": 1}},
		"add": {thingA + "\n" + `resource "fake_thing" "b" { name = "b" }`, true, "its risk is high",
			map[string]int{"a": 1, "b": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBenchIn(t, t.TempDir(), thingA)
			b.apply(Params{})
			state := filepath.Join(b.dir, "conf", "terraform.tfstate")
			before, err := os.ReadFile(state)
			require.NoError(t, err)
			b.configure(c.configuration)
			consents := []activities.Consent{activities.Unasked}
			if !c.waivable {
				consents = append(consents, activities.Waived)
			}
			for _, consent := range consents {
				e, s := b.step(Params{})
				_, err = b.action.Apply(activities.WithApproval(b.ctx, activities.Approval{Consent: consent}), e, s, "")
				require.Equal(t, activities.Asks, activities.TypeOf(err), "%q: %v", consent, err)
				if consent == activities.Unasked {
					require.ErrorContains(t, err, c.why)
				}
				require.Equal(t, map[string]int{"a": 1}, b.names())
				now, err := os.ReadFile(state)
				require.NoError(t, err)
				require.Equal(t, string(before), string(now))
				require.Equal(t, activities.Nothing, b.undo(e).Outcome)
			}
			e, s := b.step(Params{})
			want, consent := activities.Digest(""), activities.Waived
			if !c.waivable {
				change, err := b.action.Plan(b.ctx, e, s)
				require.NoError(t, err)
				require.True(t, change.Ask)
				want, consent = change.Digest, activities.Approved
			}
			_, err = b.action.Apply(activities.WithApproval(b.ctx, activities.Approval{Consent: consent}), e, s, want)
			require.NoError(t, err)
			require.Equal(t, c.left, b.names())
		})
	}
}
