package terraform

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/terraform/terraformtest"
)

func TestProvisionersAreAskedAndNeverRestored(t *testing.T) {
	b := newBench(t, "")
	write(t, b.dir, "conf/main.tf", `module "m" {
  source   = "./m"
  for_each = toset(["a.b"])
}`)
	write(t, b.dir, "conf/m/main.tf", fmt.Sprintf(`resource "terraform_data" "site" {
  provisioner "local-exec" { command = "touch '%[1]s/site'" }
  provisioner "local-exec" {
    when    = destroy
    command = "rm '%[1]s/site'"
  }
}
resource "terraform_data" "plain" {}`, filepath.Join(b.dir, "objects")))
	e, s := b.step(Params{})
	change := b.plan(e, s)
	const site = `module.m["a.b"].terraform_data.site`
	assert.True(t, change.Ask)
	assert.Equal(t, []string{site + " has provisioners, which run programs when it is made or destroyed: local-exec"},
		change.Facts)
	_, err := b.action.Apply(b.ctx, e, s, change.Digest)
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(b.dir, "objects", "site"))

	unchanged := b.plan(b.step(Params{}))
	assert.True(t, unchanged.Unchanged)
	assert.False(t, unchanged.Ask, "nothing runs")

	u := b.undo(e)
	assert.Equal(t, activities.Compensated, u.Outcome)
	assert.Equal(t,
		[]string{site + ": its provisioners (local-exec) ran when the step made it and when the undo destroyed it; " +
			"what they have changed outside of Terraform was not looked at, and may still be there"}, u.Losses)
	assert.NoFileExists(t, b.state())
}

func TestAnExternalDataSourceIsAskedAndNeverRestored(t *testing.T) {
	b := newBench(t, "")
	write(t, b.dir, "conf/main.tf", fmt.Sprintf(`terraform {
  required_providers { external = { source = %q } }
}
provider "external" { dir = "%[2]s/objects" }
data "external" "release" { program = ["sh", "-c", "touch '%[2]s/objects/ran' 2>/dev/null; echo '{\"version\": \"1\"}'"] }
resource "terraform_data" "a" { input = data.external.release.result.version }
`, terraformtest.Source, b.dir))
	const fact = "data.external.release runs a program on the worker's host, also to make this plan"
	e, s := b.step(Params{})
	change := b.plan(e, s)
	assert.True(t, change.Ask)
	assert.Equal(t, []string{fact}, change.Facts)
	_, err := b.action.Apply(b.ctx, e, s, change.Digest)
	require.NoError(t, err)

	unchanged := b.plan(b.step(Params{}))
	assert.True(t, unchanged.Unchanged)

	u := b.undo(e)
	assert.Equal(t, activities.Compensated, u.Outcome)
	require.Len(t, u.Losses, 1)
	assert.Contains(t, u.Losses[0], "data.external.release")
	assert.NoFileExists(t, b.state())
}
