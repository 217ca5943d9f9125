package terraform

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// elsewhere forgets what the worker knows of the configurations that it has applied, as if another
// had applied them.
func (b *bench) elsewhere() {
	b.Helper()
	require.NoError(b, os.RemoveAll(filepath.Join(b.dir, "worker", "known")))
	require.NoError(b, os.Mkdir(filepath.Join(b.dir, "worker", "known"), 0o700))
}

func TestUnknownPrior(t *testing.T) {
	b := newBench(t, first)
	b.apply(Params{})
	b.elsewhere()
	names := b.names()
	b.configure(second)
	e, s := b.step(Params{})

	_, err := b.action.Plan(b.ctx, e, s)
	require.Equal(t, activities.Refused, activities.TypeOf(err), "%v", err)
	assert.Contains(t, err.Error(), "previous")
	_, err = b.action.Apply(b.ctx, e, s, "")
	require.Equal(t, activities.Refused, activities.TypeOf(err), "%v", err)

	previous := filepath.Join(b.dir, "previous")
	write(t, b.dir, "previous/main.tf", things(b.dir, second))
	e, s = b.step(Params{Previous: &Previous{Dir: previous}})
	_, err = b.action.Apply(b.ctx, e, s, "")
	require.Equal(t, activities.Refused, activities.TypeOf(err), "%v", err)
	assert.Contains(t, err.Error(), "does not make the present state")
	assert.Equal(t, names, b.names(), "nothing was touched")

	write(t, b.dir, "previous/main.tf", things(b.dir, first))
	e = b.apply(Params{Previous: &Previous{Dir: previous}})
	assert.Equal(t, activities.Compensated, b.undo(e).Outcome)
	assert.Equal(t, names, b.names())
}

func TestUnknownPriorOfAStepThatOnlyAdds(t *testing.T) {
	b := newBench(t, `resource "fake_thing" "a" { name = "a" }`)
	b.apply(Params{})
	b.elsewhere()
	b.configure(`
resource "fake_thing" "a" { name = "a" }
resource "fake_thing" "b" { name = "b" }`)
	e := b.apply(Params{})
	assert.Equal(t, map[string]int{"a": 1, "b": 1}, b.names())
	u := b.undo(e)
	assert.Equal(t, activities.Restored, u.Outcome, "%v", u.Losses)
	assert.Equal(t, map[string]int{"a": 1}, b.names())
}

func TestUnchangedMakesKnown(t *testing.T) {
	b := newBench(t, first)
	b.apply(Params{})
	b.elsewhere()
	assert.Equal(t, activities.Nothing, b.undo(b.apply(Params{})).Outcome)
	b.configure(second)
	assert.Equal(t, activities.Compensated, b.undo(b.apply(Params{})).Outcome)
}

func TestRefusals(t *testing.T) {
	b := newBench(t, first)
	link := filepath.Join(b.dir, "conf", "out")
	require.NoError(t, os.Symlink("/etc", link))
	for dir, want := range map[string]string{
		"relative":                     "not an absolute path",
		"/etc":                         "outside the folders that this worker allows",
		link:                           "outside the folders that this worker allows",
		filepath.Join(b.dir, "absent"): "no such file",
	} {
		e, s := b.step(Params{Dir: dir})
		_, err := b.action.Apply(b.ctx, e, s, "")
		require.Equal(t, activities.Refused, activities.TypeOf(err), "%s: %v", dir, err)
		assert.Contains(t, err.Error(), want)
	}
	require.NoError(t, os.Remove(link))
	write(t, b.dir, "conf/.terraform/environment", "staging")
	e, s := b.step(Params{})
	_, err := b.action.Apply(b.ctx, e, s, "")
	require.Equal(t, activities.Refused, activities.TypeOf(err), "%v", err)
	assert.Contains(t, err.Error(), "workspace")
}

func TestNoTerraform(t *testing.T) {
	b := newBench(t, first)
	b.action.(*applyAction).Terraform = ""
	e, s := b.step(Params{})
	_, err := b.action.Plan(b.ctx, e, s)
	require.Equal(t, activities.Refused, activities.TypeOf(err), "%v", err)
	assert.Contains(t, err.Error(), "install it")
	assert.Equal(t, activities.Nothing, b.undo(e).Outcome)
}

const (
	bySchema = "sensitive-by-the-schema"
	byOutput = "sensitive-by-the-output"
	byVar    = "sensitive-by-the-variable"
)

func TestSecrets(t *testing.T) {
	b := newBench(t, `
variable "token" { sensitive = true }
resource "fake_thing" "a" {
  name    = "a"
  content = nonsensitive(var.token)
  secret  = "`+bySchema+`"
}
output "hidden" { 
  value     = "`+byOutput+`" 
  sensitive = true 
}
output "token" { value = "x ${nonsensitive(var.token)} ${nonsensitive(fake_thing.a.secret)}" }`)
	e, s := b.step(Params{Vars: map[string]any{"token": byVar}})
	change, err := b.action.Plan(b.ctx, e, s)
	require.NoError(t, err)
	shown := b.masker.String(change.Diff)
	for _, secret := range []string{bySchema, byOutput, byVar} {
		assert.NotContains(t, shown, secret)
	}
	r, err := b.action.Apply(b.ctx, e, s, change.Digest)
	require.NoError(t, err)
	assert.NotContains(t, r.Outputs, "hidden")
	assert.Equal(t, "x *** ***", b.masker.String(r.Outputs["token"].(string)))

	// At rest there is no secret but in the state itself, where terraform keeps it.
	err = filepath.WalkDir(filepath.Join(b.dir, "worker"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		assert.Zero(t, info.Mode().Perm()&0o077, "%s can be read by others", path)
		raw, err := os.ReadFile(path)
		for _, secret := range []string{bySchema, byOutput, byVar} {
			assert.False(t, strings.Contains(string(raw), secret), "%s holds %s", path, secret)
		}
		return err
	})
	require.NoError(t, err)
	assert.Equal(t, activities.Restored, b.undo(e).Outcome)
}
