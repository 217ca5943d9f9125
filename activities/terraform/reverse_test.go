package terraform

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/terraform/state"
	"github.com/seed-62bf7108/unwind/activities/terraform/stream"
)

// files are the provider's objects by their ids.
func (b *bench) files() map[string]string {
	b.Helper()
	paths, err := filepath.Glob(filepath.Join(b.dir, "objects", "*.json"))
	require.NoError(b, err)
	all := map[string]string{}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		require.NoError(b, err)
		all[strings.TrimSuffix(filepath.Base(path), ".json")] = string(raw)
	}
	return all
}

// ids are the ids in the state, by address.
func (b *bench) ids() map[string]string {
	b.Helper()
	raw, err := os.ReadFile(b.state())
	if os.IsNotExist(err) {
		return map[string]string{}
	}
	require.NoError(b, err)
	return idsIn(b, raw)
}

func idsIn(t testing.TB, raw []byte) map[string]string {
	t.Helper()
	s, err := state.Parse(raw)
	require.NoError(t, err)
	all := map[string]string{}
	for address := range s.Managed() {
		all[address] = s.IDOf(address)
	}
	return all
}

// makeOutside makes an object that no state knows.
func (b *bench) makeOutside(id, name, content string) {
	b.Helper()
	write(b, b.dir, filepath.Join("objects", id+".json"), fmt.Sprintf(`{"name":%q,"content":%q}`, name, content))
}

// do plans a step, applies exactly that, and returns both.
func (b *bench) do(p Params) (activities.Entry, activities.Change) {
	b.Helper()
	e, s := b.step(p)
	change := b.plan(e, s)
	_, err := b.action.Apply(b.ctx, e, s, change.Digest)
	require.NoError(b, err)
	return e, change
}

const (
	thingA   = `resource "fake_thing" "a" { name = "a" }` + "\n"
	thingX   = `resource "fake_thing" "x" { name = "x" }` + "\n"
	importX  = "import {\n  to = fake_thing.x\n  id = \"beef\"\n}\n"
	forgetA  = "removed {\n  from = fake_thing.a\n  lifecycle { destroy = false }\n}\n"
	protects = "\n  lifecycle { prevent_destroy = true }\n"
)

// An imported object was there before the step, and is there after its undo: only the state forgets
// it.
func TestAnImportIsUndoneByForgetting(t *testing.T) {
	for _, c := range []struct{ name, before, after string }{
		{"into nothing", "", thingX + importX + `resource "fake_thing" "y" { name = fake_thing.x.name }`},
		{"beside others", thingA, thingA + thingX + importX + `output "x" { value = fake_thing.x.id }`},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, "")
			if c.before != "" {
				b.configure(c.before)
				b.apply(Params{})
			}
			b.makeOutside("beef", "x", "")
			files, ids := b.files(), b.ids()
			b.configure(c.after)
			e, change := b.do(Params{})
			assert.Contains(t, change.Summary, ", 1 to import")
			assert.Contains(t, change.Undo, "What it imports is forgotten again, not destroyed.")
			assert.Contains(t, change.Facts, "fake_thing.x is imported: it exists already")
			assert.Equal(t, "beef", b.ids()["fake_thing.x"])

			u := b.undo(e)
			assert.Equal(t, activities.Restored, u.Outcome, "%v", u.Losses)
			assert.Equal(t, files, b.files())
			assert.Equal(t, ids, b.ids())
			if c.before == "" {
				assert.NoFileExists(t, b.state())
			}
		})
	}
}

// What the step changes in an object that it imports is in no state from before: it stays, and this
// is told beforehand.
func TestAnImportWithAChange(t *testing.T) {
	b := newBench(t, thingA)
	b.apply(Params{})
	b.makeOutside("beef", "x", "by hand")
	b.configure(thingA + importX + "resource \"fake_thing\" \"x\" {\n  name = \"x\"\n  content = \"new\"\n}")
	e, change := b.do(Params{})
	assert.True(t, change.Ask)
	assert.Equal(t,
		[]string{"fake_thing.x: what the step changes in the imported object (content) stays when it is forgotten again"},
		change.Losses)
	u := b.undo(e)
	assert.Equal(t, activities.Residue, u.Outcome)
	assert.Equal(t,
		[]string{"fake_thing.x: it is forgotten again; what the step changed in the imported object (content) stays"},
		u.Losses)
	assert.JSONEq(t, `{"name":"x","content":"new"}`, b.files()["beef"])
	assert.NotContains(t, b.ids(), "fake_thing.x")
}

// The previous configuration may still say how an object got into the state: the undo does not
// import it a second time.
func TestTheImportBlockOfThePreviousConfiguration(t *testing.T) {
	b := newBench(t, "")
	b.makeOutside("beef", "x", "")
	b.configure(thingA + thingX + importX)
	b.apply(Params{})
	b.configure(thingA)
	u := b.undo(b.apply(Params{}))
	assert.Equal(t, activities.Compensated, u.Outcome, "%v", u.Losses)
	assert.Equal(t, map[string]int{"a": 1, "x": 1}, b.names())
}

// An object that is moved is the same object, before, after, and after the undo.
func TestAMoveIsUndoneByMovingBack(t *testing.T) {
	const counted = `resource "fake_thing" "c" {
  count   = 2
  name    = "c${count.index}"
  content = "old"
}
`
	for _, c := range []struct {
		name, before, after, tally string
		outcome                    activities.Outcome
	}{
		{"alone", thingA,
			`resource "fake_thing" "b" { name = "a" }` + "\nmoved {\n  from = fake_thing.a\n  to = fake_thing.b\n}",
			"0 to change, 0 to replace, 0 to destroy, 1 to move", activities.Restored},
		{"with a change", thingA,
			"resource \"fake_thing\" \"b\" {\n  name = \"a\"\n  content = \"new\"\n}\nmoved {\n  from = fake_thing.a\n  to " +
				"= fake_thing.b\n}", "1 to change, 0 to replace, 0 to destroy, 1 to move", activities.Restored},
		{"to a count", thingA,
			"resource \"fake_thing\" \"a\" {\n  count = 2\n  name = count.index == 0 ? \"a\" : \"more\"\n  content = \"new\"\n}",
			"1 to add, 1 to change, 0 to replace, 0 to destroy, 1 to move", activities.Restored},
		{"to for_each", counted, `resource "fake_thing" "c" {
  for_each = { one = "c0", two = "c1" }
  name     = each.value
  content  = "new"
}
moved {
  from = fake_thing.c[0]
  to   = fake_thing.c["one"]
}
moved {
  from = fake_thing.c[1]
  to   = fake_thing.c["two"]
}`, "2 to change, 0 to replace, 0 to destroy, 2 to move", activities.Restored},
		{"and replaced", thingA,
			`resource "fake_thing" "b" { name = "b" }` + "\nmoved {\n  from = fake_thing.a\n  to = fake_thing.b\n}",
			"1 to replace, 0 to destroy, 1 to move", activities.Compensated},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, c.before)
			b.apply(Params{})
			files, ids, names := b.files(), b.ids(), b.names()
			b.configure(c.after)
			e, change := b.do(Params{})
			assert.True(t, strings.HasSuffix(change.Summary, c.tally), change.Summary)
			assert.Contains(t, change.Undo, "What it moves is moved back.")
			u := b.undo(e)
			assert.Equal(t, c.outcome, u.Outcome, "%v", u.Losses)
			assert.Equal(t, names, b.names())
			if c.outcome == activities.Restored {
				assert.Equal(t, files, b.files())
				assert.Equal(t, ids, b.ids())
			}
			assert.False(t, b.plan(b.step(Params{})).Unchanged, "the step can be done again")
		})
	}
}

// What the step makes Terraform forget goes on existing: the undo imports it again, and makes no
// second one.
func TestAForgettingIsUndoneByAnImport(t *testing.T) {
	b := newBench(t, thingA+thingX)
	b.apply(Params{})
	files, ids := b.files(), b.ids()
	b.configure(thingX + forgetA)
	e, change := b.do(Params{})
	assert.True(t, strings.HasSuffix(change.Summary, "0 to destroy, 1 to forget"), change.Summary)
	assert.Contains(t, change.Undo, "What it forgets is imported again by its id.")
	assert.Contains(t, change.Facts, "fake_thing.a is forgotten: it goes on existing, and Terraform manages it no longer")
	assert.Empty(t, change.Losses)
	assert.Equal(t, files, b.files())

	u := b.undo(e)
	assert.Equal(t, activities.Restored, u.Outcome, "%v", u.Losses)
	assert.Equal(t, files, b.files())
	assert.Equal(t, ids, b.ids())

	// Gone since: what would be made is another object, and a person is asked.
	b.configure(thingX + forgetA)
	e, _ = b.do(Params{})
	require.NoError(t, os.Remove(filepath.Join(b.dir, "objects", ids["fake_thing.a"]+".json")))
	u = b.undo(e)
	require.Equal(t, activities.Drifted, u.Outcome)
	assert.Contains(t, u.Drift.Diff, "is gone since; another would be made")
	assert.Equal(t, map[string]int{"x": 1}, b.names())
	u, err := b.action.Undo(b.ctx, e, activities.Decision{Force: u.Drift.Digest})
	require.NoError(t, err)
	assert.Equal(t, activities.Compensated, u.Outcome, "%v", u.Losses)
	assert.Equal(t, map[string]int{"a": 1, "x": 1}, b.names())
}

// prevent_destroy is for objects from before: what the step itself made, also half, is destroyed by
// its undo.
func TestWhatAStepMadeIsNotProtectedFromItsUndo(t *testing.T) {
	protected := func(name, more string) string {
		return fmt.Sprintf("resource \"fake_thing\" %q {\n  name = %[1]q%s\n%s}\n", name, protects, more)
	}
	t.Run("made", func(t *testing.T) {
		b := newBench(t, thingA)
		b.apply(Params{})
		files := b.files()
		b.configure(thingA + protected("p", ""))
		u := b.undo(b.apply(Params{}))
		assert.Equal(t, activities.Restored, u.Outcome, "%v", u.Losses)
		assert.Equal(t, files, b.files())
	})
	t.Run("made half", func(t *testing.T) {
		b := newBench(t, protected("p", "")+protected("q", "  fail = \"tainted\"\n"))
		e, s := b.step(Params{})
		_, err := b.action.Apply(b.ctx, e, s, "")
		require.Error(t, err)
		u := b.undo(e)
		assert.Equal(t, activities.Restored, u.Outcome, "%v", u.Losses)
		assert.Empty(t, b.names())
	})
	t.Run("by the previous configuration", func(t *testing.T) {
		b := newBench(t, protected("a", ""))
		b.apply(Params{})
		b.configure(`resource "fake_thing" "a" { name = "anew" }`)
		u := b.undo(b.apply(Params{}))
		assert.Equal(t, activities.Compensated, u.Outcome, "%v", u.Losses)
		assert.Equal(t, map[string]int{"a": 1}, b.names())
	})
}

// A protection that the undo cannot leave out is told at once: no retry helps.
func TestAProtectionThatStaysParks(t *testing.T) {
	t.Parallel()
	other := errors.New("another")
	said := stream.Report{
		Errors: []stream.Diagnostic{{Summary: "Instance cannot be destroyed",
			Detail: "Resource module.m.a.b has lifecycle.prevent_destroy set, but ... To avoid"}}}
	err := protectedError(said, other)
	assert.Equal(t, activities.ActionDenied, activities.TypeOf(err))
	require.ErrorContains(t, err, "Resource module.m.a.b has lifecycle.prevent_destroy set, but ...")
	assert.Equal(t, other,
		protectedError(stream.Report{Errors: []stream.Diagnostic{{Summary: "Error acquiring the state lock"}}}, other))
}

// What a configuration reads outside of its folder is read again by an undo: where it has changed
// since, the report names what differs.
func TestAFileOutsideThatHasChangedIsTold(t *testing.T) {
	b := newBench(t, "")
	outside := filepath.Join(b.dir, "outside")
	containing := func(content string) string {
		return "resource \"fake_thing\" \"a\" {\n  name = \"a\"\n  content = " + content + "\n}\n"
	}
	require.NoError(t, os.WriteFile(outside, []byte("one"), 0o600))
	b.configure(containing(fmt.Sprintf("file(%q)", outside)))
	b.apply(Params{})
	b.configure(containing(`"two"`))
	e := b.apply(Params{})
	require.NoError(t, os.WriteFile(outside, []byte("by hand"), 0o600))
	u := b.undo(e)
	assert.NotEqual(t, activities.Restored, u.Outcome)
	require.Len(t, u.Losses, 1, "%+v", u)
	assert.True(t, strings.HasPrefix(u.Losses[0], "fake_thing.a"), u.Losses[0])
	assert.Contains(t, u.Losses[0], "[content]")
}

// What the previous configuration ignores, it does not put back.
func TestWhatThePreviousConfigurationIgnoresStays(t *testing.T) {
	const ignoring = "resource \"fake_thing\" \"a\" {\n  name = \"a\"\n  content = \"one\"\n  lifecycle { " +
		"ignore_changes = [content] }\n}\n"
	b := newBench(t, ignoring)
	b.apply(Params{})
	b.configure("resource \"fake_thing\" \"a\" {\n  name = \"a\"\n  content = \"two\"\n}\n")
	u := b.undo(b.apply(Params{}))
	assert.Equal(t, activities.Residue, u.Outcome)
	assert.Equal(t,
		[]string{"fake_thing.a: [content] stays as the step left it: the previous configuration does not put that back " +
			"(ignore_changes, for example)"}, u.Losses)
}

// Terraform takes a provider's word for what it has destroyed.
func TestADeletionThatIsOnlyClaimed(t *testing.T) {
	b := newBench(t, thingA)
	b.apply(Params{})
	b.configure(thingA + "resource \"fake_thing\" \"stays\" {\n  name = \"stays\"\n  fail = \"claimed\"\n}\n")
	u := b.undo(b.apply(Params{}))
	assert.Equal(t, "the state says the same as before: 1 object, their attributes and the outputs; "+
		"whether providers have destroyed what they say they have was not looked at", u.Observed)
	assert.Equal(t, 1, b.names()["stays"])
}

const fakeRequired = "terraform {\n  required_providers {\n    fake = { source = \"unwind.test/unwind/fake\" " +
	"}\n  }\n}\n"

// Modules in the folder are part of the configuration: what is made, moved and protected in them
// comes back like all else.
func TestModules(t *testing.T) {
	b := newBench(t, thingA+`resource "fake_thing" "b" { name = "b" }`)
	b.apply(Params{})
	files, ids := b.files(), b.ids()
	write(t, b.dir, "conf/m/m.tf", fakeRequired+`
variable "names" {}
resource "fake_thing" "in" {
  for_each = var.names
  name     = each.key
  content  = "in a module"
  lifecycle { prevent_destroy = true }
}`)
	b.configure(`
module "m" {
  source = "./m"
  count  = 1
  names  = toset(["a", "more"])
}
moved {
  from = fake_thing.a
  to   = module.m[0].fake_thing.in["a"]
}
removed {
  from = fake_thing.b
  lifecycle { destroy = false }
}`)
	e, change := b.do(Params{})
	assert.True(t,
		strings.HasSuffix(change.Summary, "1 to add, 1 to change, 0 to replace, 0 to destroy, 1 to move, 1 to forget"),
		change.Summary)
	u := b.undo(e)
	assert.Equal(t, activities.Restored, u.Outcome, "%v", u.Losses)
	assert.Equal(t, files, b.files())
	assert.Equal(t, ids, b.ids())
}

// A change of one object may replace another: what the step replaced is replaced again, and an
// object that only going back would replace is left alone until a person says so.
func TestReplacementsByTriggers(t *testing.T) {
	with := func(content, triggers string) string {
		return fmt.Sprintf(
			"resource \"fake_thing\" \"b\" {\n  name = \"b\"\n  content = %q\n}\nresource \"fake_thing\" \"a\" {\n  name = "+
				"\"a\"\n%s}\n", content, triggers)
	}
	const triggers = "  lifecycle { replace_triggered_by = [fake_thing.b.content] }\n"
	t.Run("of the step", func(t *testing.T) {
		b := newBench(t, with("one", triggers))
		b.apply(Params{})
		names, ids := b.names(), b.ids()
		b.configure(with("two", triggers))
		e, change := b.do(Params{})
		assert.True(t, change.Ask)
		u := b.undo(e)
		assert.Equal(t, activities.Compensated, u.Outcome, "%v", u.Losses)
		assert.Equal(t,
			[]string{"fake_thing.a [id]: differs from before; the data inside a replaced or destroyed object did not come back"},
			u.Losses)
		assert.Equal(t, names, b.names())
		assert.Equal(t, ids["fake_thing.b"], b.ids()["fake_thing.b"])
	})
	t.Run("of the way back", func(t *testing.T) {
		b := newBench(t, with("one", triggers))
		b.apply(Params{})
		ids := b.ids()
		b.configure(with("two", ""))
		e, _ := b.do(Params{})
		u := b.undo(e)
		require.Equal(t, activities.Drifted, u.Outcome)
		assert.Equal(t, "- fake_thing.a would be destroyed or replaced, though the step has not touched it", u.Drift.Diff)
		assert.Equal(t, ids, b.ids())
	})
}

// The new object is made first. If that fails half way, the old one is still there, deposed, and
// becomes the current one again.
func TestCreateBeforeDestroy(t *testing.T) {
	with := func(name, more string) string {
		return fmt.Sprintf(
			"resource \"fake_thing\" \"a\" {\n  name = %q\n  lifecycle { create_before_destroy = true }\n%s}\n", name, more)
	}
	b := newBench(t, with("a", ""))
	b.apply(Params{})
	files, ids := b.files(), b.ids()
	b.configure(with("anew", "  fail = \"tainted\"\n"))
	e, s := b.step(Params{})
	_, err := b.action.Apply(b.ctx, e, s, "")
	require.Error(t, err)
	require.Len(t, b.files(), 2)
	u := b.undo(e)
	assert.Equal(t, activities.Restored, u.Outcome, "%v", u.Losses)
	assert.Equal(t, files, b.files())
	assert.Equal(t, ids, b.ids())

	b.configure(with("anew", ""))
	u = b.undo(b.apply(Params{}))
	assert.Equal(t, activities.Compensated, u.Outcome)
	assert.Equal(t, map[string]int{"a": 1}, b.names())
}

// What was changed behind Terraform's back before the step is not in the state that the undo goes
// back to.
func TestObjectsThatWereNotAsTheStateSaid(t *testing.T) {
	b := newBench(t, first)
	b.apply(Params{})
	changed := objects(t, b.dir)["changed"][0]
	require.NoError(t, os.WriteFile(changed, []byte(`{"name":"changed","content":"by hand"}`), 0o644))
	b.configure(strings.Replace(first, `content = "one"`, `content = "two"`, 1))
	e, change := b.do(Params{})
	const loss = "fake_thing.changed: it was changed outside of Terraform before the step; an undo goes back to what " +
		"the state said, not to that"
	assert.True(t, change.Ask)
	assert.Equal(t, []string{loss}, change.Losses)
	u := b.undo(e)
	assert.Equal(t, activities.Compensated, u.Outcome)
	assert.Equal(t, []string{loss}, u.Losses)
}
