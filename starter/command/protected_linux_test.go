package command

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"github.com/seed-62bf7108/unwind/activities/terraform"
	"github.com/seed-62bf7108/unwind/activities/terraform/terraformtest"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/worker/host"
)

// TestAProtectionThatStaysParksAtOnce: a prevent_destroy in a module outside of the configuration's
// folder, which no undo leaves out.
func TestAProtectionThatStaysParksAtOnce(t *testing.T) {
	terraformtest.Require(t)
	d := newDesk(t)
	root := t.TempDir()
	for name, text := range map[string]string{
		"conf/main.tf": fmt.Sprintf(`
variable "count_of" { type = number }
module "m" {
  source   = %q
  count_of = var.count_of
}`, filepath.Join(root, "shared")),
		"shared/main.tf": `
variable "count_of" { type = number }
resource "terraform_data" "kept" {
  count = var.count_of
  lifecycle { prevent_destroy = true }
}`,
	} {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	d.stopWorker()
	d.startWorker(func(c *host.Config) { *c = c.With(&terraform.Settings{Roots: []string{root}}) })
	d.ok("run", d.file(fmt.Sprintf(`name: protected
steps:
  - {id: one, uses: terraform.apply, with: {dir: %[1]s, vars: {count_of: 1}}, gate: none}
  - {id: two, uses: terraform.apply, with: {dir: %[1]s, vars: {count_of: 2}}, gate: none}
  - {id: three, uses: fake.set, with: {key: a, value: x, fail: true}}
`, filepath.Join(root, "conf"))), "--id", t.Name())
	s := d.until(t.Name(), parked)
	var two compensations.StepReport
	for _, u := range s.Report.Steps {
		if u.Step == "two" {
			two = u
		}
	}
	require.Equal(t, string(compensations.Parked), two.State)
	const reason = "ActionDenied: Resource module.m.terraform_data.kept[1] has lifecycle.prevent_destroy set"
	require.Contains(t, two.Reason, reason)
	shown := d.ok("show", t.Name())
	require.Contains(t, shown, reason)
	require.Contains(t, shown, "Destroy the object by hand, then retry; or accept what there is")
	undos := 0
	for history := d.client.GetWorkflowHistory(t.Context(), t.Name(), "", false,
		enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); history.HasNext(); {
		event, err := history.Next()
		require.NoError(t, err)
		if a := event.GetActivityTaskScheduledEventAttributes(); a.GetActivityType().GetName() == "terraform.apply.undo" {
			undos++
		}
		require.LessOrEqual(t, event.GetActivityTaskStartedEventAttributes().GetAttempt(), int32(1), "no retry helps")
	}
	require.Equal(t, 1, undos, "the undo of the first waits for that of the second")
	for _, step := range []string{"two", "one"} {
		d.until(t.Name(), parked)
		d.ok("resolve", t.Name(), step, "--do", "accept", "--why", "it shall stay", "--yes")
	}
	require.Equal(t, statusFailed, d.do("watch", t.Name()).status)
}
