package terraform

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/terraform/run"
	"github.com/seed-62bf7108/unwind/activities/terraform/workspace"
	"github.com/seed-62bf7108/unwind/internal/confine"
	"github.com/seed-62bf7108/unwind/testrun"
)

func TestTerraformGetsNothingOfTheWorkersEnvironment(t *testing.T) {
	b := newBench(t, `output "environ" { value = filebase64("/proc/self/environ") }`)
	b.reconfigure(func(c *Config) {
		c.Environment = append(c.Environment, "USER_OF_THE_CLOUD")
		c.Secrets = func() (map[string]string, error) { return map[string]string{"CLOUD_KEY": "the-key-of-the-cloud"}, nil }
	})
	write(t, b.dir, "conf/provisioner.tf", fmt.Sprintf(`
resource "terraform_data" "env" {
  provisioner "local-exec" { command = "env > '%s/objects/env'" }
}`, b.dir))
	e, s := b.step(Params{})
	s.Checks = []activities.Check{
		{Command: &activities.CommandCheck{Run: []string{"sh", "-c", "env > " + b.dir + "/objects/check"}}}}
	r, err := b.action.Apply(b.ctx, e, s, "")
	require.NoError(t, err)
	environ, err := base64.StdEncoding.DecodeString(r.Outputs["environ"].(string))
	require.NoError(t, err)
	of := func(name string) string {
		raw, err := os.ReadFile(filepath.Join(b.dir, "objects", name))
		require.NoError(t, err)
		return string(raw)
	}
	for who, env := range map[string]string{"terraform": string(environ), "a provisioner": of("env"),
		"a check": of("check")} {
		assert.NotContains(t, env, ownSecret, who)
		assert.NotContains(t, env, run.OrderVar, who)
		assert.Contains(t, env, "PATH=", who)
	}
	assert.Contains(t, string(environ), "CLOUD_KEY=the-key-of-the-cloud")
	assert.NotContains(t, of("check"), "CLOUD_KEY")
	assert.NotContains(t, string(environ), "HOME="+os.Getenv("HOME")+"\x00")
	assert.Equal(t, activities.Mask, b.masker.String("the-key-of-the-cloud"))
}

func TestWhatTerraformRunsCannotReadWhatTheWorkerReads(t *testing.T) {
	if err := confine.Available(); err != nil {
		testrun.Skipf(t, "programs cannot be confined here: %v", err)
	}
	b := newBench(t, "")
	secret := filepath.Join(b.dir, "secrets", "key")
	write(t, b.dir, "secrets/key", ownSecret)
	b.reconfigure(func(c *Config) { c.Hidden = []string{secret} })
	b.configure(one)
	other := b.apply(Params{})
	for name, path := range map[string]string{
		"a secret": secret, "the environment of the worker": fmt.Sprintf("/proc/%d/environ", os.Getpid()),
		"the key of the journal": filepath.Join(b.dir, "worker", "key"),
		"the journal":            filepath.Join(b.run(other).Token.Dir(), "record"),
	} {
		require.FileExists(t, path)
		b.configure(fmt.Sprintf("output \"x\" { value = filebase64(%q) }", path))
		e, s := b.step(Params{})
		_, err := b.action.Plan(b.ctx, e, s)
		require.Error(t, err, "terraform reads %s", name)
		assert.Contains(t, err.Error(), "ermission denied")
		b.configure(
			fmt.Sprintf("resource \"terraform_data\" \"x\" {\n  provisioner \"local-exec\" { command = \"cat '%s'\" }\n}", path))
		e, s = b.step(Params{})
		_, err = b.action.Apply(b.ctx, e, s, "")
		require.Error(t, err, "a provisioner reads %s", name)
		assert.NotContains(t, err.Error(), ownSecret)
		b.configure(one)
		e, s = b.step(Params{})
		s.Checks = []activities.Check{{When: activities.Staged,
			Command: &activities.CommandCheck{Run: []string{"cat", path}}}}
		_, err = b.action.Plan(b.ctx, e, s)
		require.Equal(t, activities.CheckFailed, activities.TypeOf(err), "a check reads %s: %v", name, err)
	}
}

// A plan is made of a configuration that nobody has looked at yet.
func TestAPlanChangesNothing(t *testing.T) {
	if err := confine.Available(); err != nil {
		testrun.Skipf(t, "programs cannot be confined here: %v", err)
	}
	b := newBench(t, one)
	b.reconfigure(func(c *Config) { c.Terraform = b.script(`[ "$1" = plan ] && echo x > "$OBJECTS/planned"`) })
	b.plan(b.step(Params{}))
	assert.NoFileExists(t, filepath.Join(b.dir, "objects", "planned"))
}

func TestProvidersDoNotComeFromTheFolder(t *testing.T) {
	b := newBench(t, "")
	marker := filepath.Join(b.dir, "objects", "ran")
	write(t, b.dir, "conf/main.tf", `terraform {
  required_providers {
    evil = { source = "unwind.test/unwind/evil" }
  }
}
provider "evil" {}
resource "evil_thing" "a" {}`)
	program := "conf/terraform.d/plugins/unwind.test/unwind/evil/1.0.0/linux_amd64/terraform-provider-evil_v1.0.0"
	write(t, b.dir, program, "#!/bin/sh\necho x > "+marker+"\n")
	require.NoError(t, os.Chmod(filepath.Join(b.dir, program), 0o755))
	for _, settings := range []string{"", "# provider_installation {}\n/*\nprovider_installation {}\n*/\n",
		"provider_installation {\n  direct {}\n}\n"} {
		write(t, b.dir, "settings/terraform.rc", settings)
		b.reconfigure(func(c *Config) { c.CLIConfig = filepath.Join(b.dir, "settings", "terraform.rc") })
		written, err := os.ReadFile(filepath.Join(b.dir, "worker", workspace.SettingsName))
		require.NoError(t, err)
		assert.Regexp(t, `(?m)^provider_installation \{\n`, string(written))
		e, s := b.step(Params{})
		_, err = b.action.Plan(b.ctx, e, s)
		require.Error(t, err)
		assert.NoFileExists(t, marker)
	}
}

// A provisioner that fails tells what it has printed: that has nothing of the worker.
func TestAFailingProvisionerTellsNothingOfTheWorkersEnvironment(t *testing.T) {
	b := newBench(t, `resource "terraform_data" "a" {
  provisioner "local-exec" { command = "env; env >&2; exit 3" }
}`)
	b.reconfigure(func(c *Config) {
		c.Secrets = func() (map[string]string, error) { return map[string]string{"CLOUD_KEY": "the-key-of-the-cloud"}, nil }
	})
	e, s := b.step(Params{})
	_, err := b.action.Apply(b.ctx, e, s, "")
	require.Error(t, err)
	told := fmt.Sprintf("%+v", err)
	if e, ok := errors.AsType[*activities.Error](err); ok {
		told += e.Message + e.Output
	}
	require.Contains(t, told, "exit status 3")
	assert.NotContains(t, told, ownSecret)
	assert.NotContains(t, told, "the-key-of-the-cloud")
	u := b.undo(e)
	assert.NotContains(t, fmt.Sprintf("%+v", u), ownSecret)
	assert.NotContains(t, fmt.Sprintf("%+v", u), "the-key-of-the-cloud")
}

// Everybody on a host can read the arguments of its processes.
func TestNoSecretIsAnArgument(t *testing.T) {
	const password = `pass'wo"rd $HOME\4711`
	var mu sync.Mutex
	asked := map[string]bool{}
	server := &stateServer{}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, given, _ := r.BasicAuth()
		mu.Lock()
		asked[given] = true
		mu.Unlock()
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	b := newBench(t, `variable "token" { sensitive = true }
resource "terraform_data" "a" { input = var.token }
terraform {
  backend "http" {}
}`)
	b.reconfigure(func(c *Config) { c.Terraform = b.script(`echo "$*" >> "$TMPDIR/arguments"`) })
	// What runs meanwhile has the arguments of all that run above it.
	write(t, b.dir, "conf/above.tf", fmt.Sprintf(`resource "terraform_data" "above" {
  provisioner "local-exec" { command = "cat /proc/*/cmdline >'%s/objects/above' 2>/dev/null || true" }
}`, b.dir))
	e := b.apply(Params{
		Backend: map[string]string{"address": h.URL, "username": "worker", "password": password},
		Vars:    map[string]any{"token": password},
	})
	assert.NotEqual(t, activities.Drifted, b.undo(e).Outcome)
	require.NoError(t, b.action.Release(b.ctx, e))
	above, err := os.ReadFile(filepath.Join(b.dir, "objects", "above"))
	require.NoError(t, err)
	assert.Contains(t, string(above), "apply", "terraform itself is seen")
	assert.NotContains(t, string(above), "4711")
	said, err := os.ReadFile(filepath.Join(workspace.TempDir(b.config().State), "arguments"))
	require.NoError(t, err)
	assert.Contains(t, string(said), "init")
	assert.NotContains(t, string(said), "4711")
	mu.Lock()
	defer mu.Unlock()
	assert.Equal(t, map[string]bool{password: true}, asked)
}

// script is a terraform that runs a line of shell first.
func (b *bench) script(line string) string {
	b.Helper()
	text := "#!/bin/sh\nOBJECTS='" + filepath.Join(b.dir, "objects") + "'\n" + line + "\nexec " +
		b.action.(*applyAction).Terraform + ` "$@"` + "\n"
	write(b, b.dir, "bin/terraform", text)
	path := filepath.Join(b.dir, "bin", "terraform")
	require.NoError(b, os.Chmod(path, 0o755))
	return path
}

// reconfigure opens the world anew with another config.
func (b *bench) reconfigure(change func(*Config)) {
	b.Helper()
	c := b.config()
	change(&c)
	w, err := New(c)
	require.NoError(b, err)
	b.world, b.action = w, w.Actions[0]
}
