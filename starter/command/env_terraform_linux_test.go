package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/terraform"
	"github.com/seed-62bf7108/unwind/activities/terraform/terraformtest"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/environment"
)

// TestATerraformFolderGoesBackWithTheRest and forward again. What that destroys is asked before the unit
// is stopped.
func TestATerraformFolderGoesBackWithTheRest(t *testing.T) {
	terraformtest.Require(t)
	const patience = 5 * time.Minute // each call starts terraform several times
	s := newSite(t)
	s.stopWorker()
	s.startWorker(s.worlds, func(c *host.Config) {
		*c = c.With(&terraform.Settings{Roots: []string{s.root}})
		terraformtest.PlainFront(t, filepath.Join(c.State, "terraform"))
	})
	file, err := os.ReadFile(filepath.Join(s.root, "environment.yaml"))
	require.NoError(t, err)
	s.write("environment.yaml", string(file)+"  infra: {terraform: "+s.root+"/infra}\n")
	s.sh(`mkdir infra; cd infra; cat >main.tf <<'END'
resource "terraform_data" "size" { input = "small" }
END
terraform init >/dev/null; terraform apply -auto-approve >/dev/null`)
	size := func() string {
		return s.sh("cat infra/main.tf; cd infra; terraform state pull | grep -e '\"value\"' -e '\"name\"' -e '\"id\"'")
	}
	s.apply()
	before := size()
	first := s.checkpoint()
	require.Equal(t, "terraform", first.Parts[1].Kind)
	require.Positive(t, first.Parts[1].Bytes)

	// In place: nobody is asked.
	s.sh(`cd infra; sed -i s/small/large/ main.tf; terraform apply -auto-approve >/dev/null; echo other >../uploads/one`)
	large := size()
	back := s.rollBack(first.ID)
	require.Equal(t, before, size())
	require.Equal(t, environment.RestoreInfrastructure, back.Stages[4].Stage)
	require.Equal(t, []string{"infra"}, back.Stages[4].Parts)
	require.Contains(t, s.ok("env", "diff", s.name, first.ID, back.Safety.ID),
		"terraform "+s.root+"/infra: 2 different places\n  ~ terraform_data.size [input output]\n  ~ file main.tf")
	s.rollBack(back.Safety.ID)
	require.Equal(t, large, size())

	// What was added is destroyed: a person is asked first, while the unit runs.
	s.sh(`cd infra; echo 'resource "terraform_data" "more" {}' >more.tf; terraform apply -auto-approve >/dev/null`)
	more := size()
	r := s.begin("env", "rollback", s.name, first.ID, "-o", "json")
	var task string
	require.Eventually(t, func() bool {
		v := s.view()
		if v.Doing == nil || v.Doing.Task == "" {
			return false
		}
		task = v.Doing.Task
		state, err := s.ask(task)
		return err == nil && atGate(state)
	}, patience, tick)
	gate := s.state(task).Gates[0]
	require.Equal(t, "verify-infra", gate.Step)
	require.Contains(t, strings.Join(gate.Change.Losses, "\n"), "terraform_data.more: ")
	require.FileExists(t, filepath.Join(s.root, "running"))
	require.Equal(t, more, size())
	s.ok("approve", task, "verify-infra", "--digest", string(gate.Digest), "--yes")
	var ended typed
	require.Eventually(t, func() bool {
		select {
		case ended = <-r.end:
			return true
		default:
			return false
		}
	}, patience, tick)
	require.Equal(t, statusOK, ended.status, ended.err)
	var done environment.RolledBack
	require.NoError(t, json.Unmarshal([]byte(ended.out), &done))
	require.Equal(t, before, size())
	require.Equal(t, "first\n", s.sh("cat uploads/one"))

	// What is only made is not asked; but what was destroyed is another one.
	again := s.rollBack(done.Safety.ID)
	require.Contains(t, again.Stages[4].Notes, "not as it was: ~ terraform_data.more [id]")
	require.Contains(t, s.sh("ls infra"), "more.tf")
}
