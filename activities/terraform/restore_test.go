package terraform

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/terraform/configuration"
	"github.com/seed-62bf7108/unwind/activities/terraform/state"
)

// of is an action of the world, and a step of it on the folder.
func (b *bench) of(action string, with map[string]any) (activities.Action, activities.Entry, activities.Step) {
	b.Helper()
	all := map[string]any{"dir": filepath.Join(b.dir, "conf")}
	maps.Copy(all, with)
	raw, err := json.Marshal(all)
	require.NoError(b, err)
	e, s := b.step(Params{})
	e.Action, e.UndoType, e.Token, s.With = action, action+".undo", activities.NewToken(rand.Text(), "infra", 1), raw
	return named(b.world, action), e, s
}

// carryOut applies a step, outside of a worker: nobody is asked.
func (b *bench) carryOut(action string, with map[string]any) (activities.Action, activities.Entry, activities.Result) {
	b.Helper()
	a, e, s := b.of(action, with)
	r, err := a.Apply(b.ctx, e, s, "")
	require.NoError(b, err)
	return a, e, r
}

func (b *bench) keep() string {
	b.Helper()
	_, _, r := b.carryOut(KeepAction, nil)
	return r.Outputs["checkpoint"].(string)
}

// folder is what the folder of the configuration has.
func (b *bench) folder() configuration.Files {
	b.Helper()
	f, err := configuration.ReadFolder(filepath.Join(b.dir, "conf"))
	require.NoError(b, err)
	return f.Files
}

func (b *bench) readState() *state.State {
	b.Helper()
	raw, err := os.ReadFile(b.state())
	require.NoError(b, err)
	s, err := state.Parse(raw)
	require.NoError(b, err)
	return s
}

func (b *bench) differences(with map[string]any) string {
	b.Helper()
	_, _, r := b.carryOut(CompareAction, with)
	return r.Outputs["diff"].(string)
}

// What can be changed in place comes back as it was, objects and files; and forward again.
func TestRestoreInPlace(t *testing.T) {
	b := newBench(t, first)
	write(b, b.dir, "conf/modules/a/a.tf", "")
	write(b, b.dir, "conf/terraform.tfvars", "")
	b.apply(Params{})
	before, state, files := objects(t, b.dir), b.readState(), b.folder()
	kept := b.keep()
	require.Empty(t, b.differences(map[string]any{"checkpoint": kept}))

	b.configure(strings.NewReplacer(`"one"`, `"two"`, `output "release" { value = "1" }`, "").Replace(first))
	write(b, b.dir, "conf/more.tf", `resource "fake_thing" "added" { name = "added" }`)
	require.NoError(t, os.RemoveAll(filepath.Join(b.dir, "conf", "modules")))
	b.apply(Params{})
	after, newer := objects(t, b.dir), b.folder()
	require.Equal(t, "+ fake_thing.added\n~ fake_thing.changed [content]\n- output release\n~ file main.tf\n"+
		"- file modules/a/a.tf\n+ file more.tf", b.differences(map[string]any{"checkpoint": kept}))

	verify, e, s := b.of(VerifyAction, map[string]any{"checkpoint": kept})
	c, err := verify.Plan(b.ctx, e, s)
	require.NoError(t, err)
	require.True(t, c.Ask, "what was added is destroyed")
	require.Contains(t, c.Losses[0], "fake_thing.added: ")
	require.NoDirExists(t, filepath.Join(b.dir, "worker", "looks", "tokens", e.Token))

	restore, e, r := b.carryOut(RestoreAction, map[string]any{"checkpoint": kept})
	require.Empty(t, r.Outputs["differs"])
	require.Equal(t, before, objects(t, b.dir))
	require.Equal(t, files, b.folder())
	require.True(t, state.Same(b.readState()))
	require.Empty(t, b.differences(map[string]any{"checkpoint": kept}))
	o, err := restore.Observe(b.ctx, e)
	require.NoError(t, err)
	require.Equal(t, activities.AsLeft, o.State)

	u, err := restore.Undo(b.ctx, e, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, activities.Compensated, u.Outcome, "%v", u)
	require.Equal(t, newer, b.folder())
	require.Equal(t, after["changed"], objects(t, b.dir)["changed"])
	require.Len(t, objects(t, b.dir)["added"], 1)
	o, err = restore.Observe(b.ctx, e)
	require.NoError(t, err)
	require.Equal(t, activities.Elsewise, o.State, "what was added is another one")
}

// What would be destroyed or made anew is accepted by a person before, and only that: see terraform.verify.
func TestARestoreThatReplacesIsAcceptedBefore(t *testing.T) {
	b := newBench(t, first)
	b.apply(Params{})
	kept := map[string]any{"checkpoint": b.keep()}
	b.configure(second)
	b.apply(Params{})
	after := objects(t, b.dir)

	as := func(c activities.Consent) context.Context {
		return activities.WithApproval(b.ctx, activities.Approval{Consent: c})
	}
	verify, e, s := b.of(VerifyAction, kept)
	_, err := verify.Apply(as(activities.Unasked), e, s, "")
	require.Equal(t, activities.Asks, activities.TypeOf(err), "%v", err)
	c, err := verify.Plan(b.ctx, e, s)
	require.NoError(t, err)
	require.True(t, c.Ask)
	for _, told := range []string{"fake_thing.added: the data", "fake_thing.replaced: the data"} {
		require.Contains(t, strings.Join(c.Losses, "\n"), told)
	}
	require.Contains(t, strings.Join(c.Facts, "\n"), "fake_thing.removed is made anew: it gets another id")
	require.Contains(t, c.Diff, "fake_thing.replaced must be replaced")
	r, err := verify.Apply(as(activities.Approved), e, s, c.Digest)
	require.NoError(t, err)
	require.NotEmpty(t, r.Outputs["accepted"])

	refused := map[string]any{"accepted": strings.Repeat("0", 64)}
	maps.Copy(refused, kept)
	restore, e, s := b.of(RestoreAction, refused)
	_, err = restore.Apply(as(activities.Waived), e, s, "")
	require.Equal(t, activities.Asks, activities.TypeOf(err), "what was not accepted is asked: %v", err)
	require.Equal(t, after, objects(t, b.dir))

	accepted := map[string]any{"accepted": r.Outputs["accepted"]}
	maps.Copy(accepted, kept)
	restore, e, s = b.of(RestoreAction, accepted)
	r, err = restore.Apply(as(activities.Waived), e, s, "")
	require.NoError(t, err)
	require.Equal(t, map[string]int{"same": 1, "changed": 1, "replaced": 1, "removed": 1}, b.names())
	require.Equal(t, after["same"], objects(t, b.dir)["same"])
	require.Equal(t, []any{"~ fake_thing.removed [id]", "~ fake_thing.replaced [id]"}, r.Outputs["differs"])
	require.Contains(t, r.Notes, "not as it was: ~ fake_thing.removed [id]")
	require.Contains(t, b.differences(kept), "~ fake_thing.replaced [id]")

	// A file that somebody has changed since is drift, and nothing is touched; forced, it goes.
	write(b, b.dir, "conf/main.tf", "# by hand")
	u, err := restore.Undo(b.ctx, e, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, activities.Drifted, u.Outcome)
	require.Equal(t, "! file main.tf", u.Drift.Diff)
	require.Equal(t, 1, b.names()["removed"])
	u, err = restore.Undo(b.ctx, e, activities.Decision{Force: u.Drift.Digest})
	require.NoError(t, err)
	require.Equal(t, activities.Compensated, u.Outcome, "%v", u)
	require.Equal(t, map[string]int{"same": 1, "changed": 1, "replaced-anew": 1, "added": 1}, b.names())
	require.Equal(t, things(b.dir, second), string(b.folder()["main.tf"].Content))
	left, err := filepath.Glob(filepath.Join(b.dir, "conf", ".unwind-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// A worker that is killed in the middle: the next attempt goes on, and the undo goes back.
func TestARestoreThatIsKilled(t *testing.T) {
	b := newBench(t, slow)
	b.apply(Params{})
	kept := map[string]any{"checkpoint": b.keep()}
	b.configure(`resource "fake_thing" "other" { name = "other" }`)
	b.apply(Params{})
	restore, e, s := b.of(RestoreAction, kept)
	c := b.worker(e, s)
	b.eventually("an object in flight", func() bool { return b.names()["slow"] == 1 })
	b.kill(c)
	require.Equal(t, things(b.dir, `resource "fake_thing" "other" { name = "other" }`), string(b.folder()["main.tf"].Content))
	_, err := restore.Apply(b.ctx, e, s, "")
	require.NoError(t, err)
	require.Equal(t, map[string]int{"quick0": 1, "quick1": 1, "slow": 1, "never": 1}, b.names(), "nothing twice")
	require.Equal(t, things(b.dir, slow), string(b.folder()["main.tf"].Content))

	u, err := restore.Undo(b.ctx, e, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, activities.Compensated, u.Outcome, "%v", u)
	require.Equal(t, map[string]int{"other": 1}, b.names())
	require.Equal(t, things(b.dir, `resource "fake_thing" "other" { name = "other" }`), string(b.folder()["main.tf"].Content))
	_, err = restore.Apply(b.ctx, e, s, "")
	require.Equal(t, activities.Fenced, activities.TypeOf(err))
}

// Where there was nothing, all goes; where what there is was applied in part, or is beyond terraform by
// now, it is kept all the same, and left.
func TestARestoreOfNothingFromABrokenFolder(t *testing.T) {
	b := newBench(t, `resource "fake_thing" "a" { name = "a" }`)
	nothing := b.keep()
	b.apply(Params{})
	kept, again := b.keep(), b.keep()
	require.Equal(t, 2, b.contents(), "what is the same is kept once")
	b.configure(`resource "fake_thing" "a" { name = `)
	broken := b.keep()
	require.Contains(t, b.differences(map[string]any{"checkpoint": kept}), "~ file main.tf")

	restore, e, _ := b.carryOut(RestoreAction, map[string]any{"checkpoint": nothing})
	require.Empty(t, b.names())
	require.Equal(t, things(b.dir, `resource "fake_thing" "a" { name = "a" }`), string(b.folder()["main.tf"].Content))
	_, err := restore.Undo(b.ctx, e, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, map[string]int{"a": 1}, b.names())
	require.Equal(t, things(b.dir, `resource "fake_thing" "a" { name = `), string(b.folder()["main.tf"].Content))

	b.carryOut(RestoreAction, map[string]any{"checkpoint": kept})
	require.Equal(t, map[string]int{"a": 1}, b.names())
	b.carryOut(RestoreAction, map[string]any{"checkpoint": broken})
	require.Equal(t, things(b.dir, `resource "fake_thing" "a" { name = `), string(b.folder()["main.tf"].Content))

	for _, name := range []string{nothing, kept, again, broken} {
		keep, e, _ := b.of(KeepAction, nil)
		e.Token = name[len("cp-"):]
		require.NoError(t, keep.Release(b.ctx, e))
	}
	require.Zero(t, b.contents())
	verify, e, s := b.of(VerifyAction, map[string]any{"checkpoint": kept})
	_, err = verify.Plan(b.ctx, e, s)
	require.ErrorContains(t, err, "checkpoint: there is no "+kept)
}

// contents is how many contents are kept.
func (b *bench) contents() int {
	b.Helper()
	files, err := os.ReadDir(filepath.Join(b.dir, "worker", "kept"))
	require.NoError(b, err)
	return len(files)
}

// A configuration that was applied by hand, and only in part, is kept as it is: going back to it does
// more than that, and is asked.
func TestACheckpointOfWhatWasAppliedInPart(t *testing.T) {
	b := newBench(t, `resource "fake_thing" "a" { name = "a" }`)
	b.apply(Params{})
	kept := map[string]any{"checkpoint": b.keep()}
	b.configure(`
resource "fake_thing" "a" {
  name    = "a"
  content = "two"
}
resource "fake_thing" "bad" {
  name       = "bad"
  fail       = "tainted"
  depends_on = [fake_thing.a]
}
resource "fake_thing" "never" {
  name       = "never"
  depends_on = [fake_thing.bad]
}`)
	e, s := b.step(Params{})
	_, err := b.action.Apply(b.ctx, e, s, "")
	require.Error(t, err)
	_, _, r := b.carryOut(KeepAction, nil)
	require.Contains(t, strings.Join(r.Notes, "\n"), "applying it would change fake_thing.never")
	half := map[string]any{"checkpoint": r.Outputs["checkpoint"]}

	restore, back, r := b.carryOut(RestoreAction, kept)
	require.Empty(t, r.Outputs["differs"])
	require.Equal(t, map[string]int{"a": 1}, b.names())
	verify, e, s := b.of(VerifyAction, half)
	c, err := verify.Plan(b.ctx, e, s)
	require.NoError(t, err)
	require.True(t, c.Ask)
	require.Contains(t, strings.Join(c.Losses, "\n"), "its configuration did not make what there was")
	u, err := restore.Undo(b.ctx, back, activities.Decision{})
	require.Error(t, err, "the configuration that failed fails again: %v", u)
}
