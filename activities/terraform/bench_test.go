package terraform

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/terraform/terraformtest"
	"github.com/seed-62bf7108/unwind/testrun"
)

// bench is a folder with a configuration and a worker's world, for scenarios.
type bench struct {
	testing.TB
	dir    string
	world  activities.World
	action activities.Action
	ctx    context.Context //nolint:containedctx // the test's own
	masker *activities.Masker
}

// newBench makes one with the test provider and, if there is any, a configuration, for one of many
// slow tests.
func newBench(t *testing.T, configuration string) *bench {
	t.Helper()
	terraformtest.Require(t)
	t.Parallel()
	testrun.Sampled(t)
	return newBenchIn(t, t.TempDir(), configuration)
}

func newBenchIn(t *testing.T, dir, configuration string) *bench {
	t.Helper()
	b := &bench{TB: t, dir: dir}
	t.Cleanup(b.quiet)
	terraformtest.PlainFront(t, filepath.Join(dir, "worker"))
	// what runs makes nothing new beside the worker's folder
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "objects"), 0o755))
	if configuration != "" {
		b.configure(configuration)
	}
	return b.open()
}

// configure replaces the configuration.
func (b *bench) configure(resources string) {
	b.Helper()
	write(b, b.dir, "conf/main.tf", things(b.dir, resources))
}

func (b *bench) open() *bench {
	b.Helper()
	w, err := New(b.config())
	require.NoError(b, err)
	b.world, b.action, b.masker = w, w.Actions[0], &activities.Masker{}
	b.ctx = activities.WithMasker(activities.WithCheckCommands(b.Context(), []string{"*"}), b.masker)
	return b
}

func (b *bench) config() Config {
	b.Helper()
	return Config{
		State:       filepath.Join(b.dir, "worker"),
		Roots:       []string{filepath.Join(b.dir, "conf"), filepath.Join(b.dir, "previous")},
		CLIConfig:   terraformtest.CLIConfig(b),
		Environment: []string{breakVar, sleeperVar, diskVar, "GORACE"},
	}
}

// step makes the entry and the step of a terraform.apply, as the engine does.
func (b *bench) step(p Params) (activities.Entry, activities.Step) {
	b.Helper()
	if p.Dir == "" {
		p.Dir = filepath.Join(b.dir, "conf")
	}
	with, err := json.Marshal(p)
	require.NoError(b, err)
	place, err := b.world.Journal(b.ctx)
	require.NoError(b, err)
	return activities.Entry{
		Version: activities.EntryVersion, Seq: 1, Step: "infra", Action: Action, UndoType: Action + ".undo",
		Token: activities.NewToken(rand.Text(), "infra", 1), Place: activities.Place{Queue: "q", Journal: place},
	}, activities.Step{ID: "infra", With: with}
}

func (b *bench) apply(p Params) activities.Entry {
	b.Helper()
	e, s := b.step(p)
	_, err := b.action.Apply(b.ctx, e, s, "")
	require.NoError(b, err)
	return e
}

func (b *bench) undo(e activities.Entry) activities.Undone {
	b.Helper()
	u, err := b.action.Undo(b.ctx, e, activities.Decision{})
	require.NoError(b, err)
	return u
}

// names are the names of the provider's objects with their number: one is as it should be.
func (b *bench) names() map[string]int {
	b.Helper()
	n := map[string]int{}
	for name, files := range objects(b, b.dir) {
		n[name] = len(files)
	}
	return n
}

// things is a configuration with the test provider, whose objects are files in dir/objects.
func things(dir, resources string) string {
	return fmt.Sprintf(
		"terraform {\n  required_providers {\n    fake = { source = %q }\n  }\n}\nprovider \"fake\" { dir = %q }\n%s",
		terraformtest.Source, filepath.Join(dir, "objects"), resources)
}

func write(t testing.TB, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
}

// objects are the files of the test provider, by the names in them.
func objects(t testing.TB, dir string) map[string][]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "objects", "*.json"))
	require.NoError(t, err)
	byName := map[string][]string{}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		require.NoError(t, err)
		var o struct{ Name string }
		require.NoError(t, json.Unmarshal(raw, &o), "%s", raw)
		byName[o.Name] = append(byName[o.Name], f)
	}
	return byName
}
