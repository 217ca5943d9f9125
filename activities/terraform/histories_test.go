package terraform

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/testrun"
)

const histories = 60

// Steps of all kinds follow one another; then one is undone. All objects are as before, with their
// ids, or the undo names those that are not.
func TestHistoriesAreUndoneOrTold(t *testing.T) {
	for n := range histories {
		t.Run(fmt.Sprintf("%02d", n), func(t *testing.T) {
			b := newBench(t, "")
			r := testrun.Rand(t)
			r.IntN(2) // the first number has drawn the test
			newHistory(b, r).run()
		})
	}
}

// history is a configuration that changes at random.
type history struct {
	*bench
	*rand.Rand
	groups []*group
	// transitions are the import, moved and removed blocks of the next step, and told what happens in
	// it, for people.
	transitions, told []string
	// addresses are those that an object with a name has had.
	addresses map[string][]string
	made      int
	// fails: the next step does.
	fails bool
}

// group is a resource: one object, or one for each name by count or for_each.
type group struct {
	label, mode, content, fail string
	names, keys                []string
	lifecycle                  []string
	// after is what its content refers to.
	after *group
}

func newHistory(b *bench, r *rand.Rand) *history {
	return &history{bench: b, Rand: r, addresses: map[string][]string{}}
}

func (h *history) run() {
	h.create()
	steps := 2 + h.IntN(3)
	for n := range steps {
		h.step(n == steps-1)
	}
}

// step applies one, and undoes the last.
func (h *history) step(last bool) {
	h.Helper()
	var p Params
	if len(h.groups) > 0 && h.stateExists() && h.IntN(6) == 0 {
		p = h.taint()
	}
	events := []func(){h.create, h.change, h.replace, h.remove, h.importOne, h.move, h.forget, h.count, h.count}
	if last {
		events = append(events, h.fail)
	}
	for range 1 + h.IntN(3) {
		events[h.IntN(len(events))]()
	}
	files, ids := h.files(), h.ids()
	h.Logf("%s", strings.Join(h.told, "; "))
	h.configure(h.text())
	e, s := h.bench.step(p)
	change := h.plan(e, s)
	_, err := h.action.Apply(h.ctx, e, s, change.Digest)
	if h.fails {
		require.Error(h, err)
	} else {
		require.NoError(h, err)
	}
	h.note()
	if h.told = nil; last {
		h.judge(files, ids, change, h.undo(e))
		return
	}
	if h.IntN(2) == 0 {
		h.transitions = nil // people remove them at once, or with the next change
		h.configure(h.text())
		h.apply(Params{})
	}
	h.transitions = nil
}

// judge compares the objects with those from before the undone step.
func (h *history) judge(files, ids map[string]string, change activities.Change, u activities.Undone) {
	h.Helper()
	now, nowIDs := h.files(), h.ids()
	h.Logf("%s: %s\n%s\n%s", change.Summary, u.Outcome, u.Observed, strings.Join(u.Losses, "\n"))
	if u.Outcome == activities.Nothing {
		assert.True(h, change.Unchanged)
	}
	require.True(h, u.Outcome.Settles(), "%s: %v", u.Outcome, u.Drift)
	if u.Outcome == activities.Restored || u.Outcome == activities.Nothing {
		assert.Equal(h, files, now)
		assert.Equal(h, ids, nowIDs)
		return
	}
	for id := range merged(files, now) {
		if files[id] != now[id] {
			h.named(u, id, files[id], now[id])
		}
	}
	for address := range merged(ids, nowIDs) {
		if ids[address] != nowIDs[address] {
			assert.True(h, hasPrefix(u.Losses, address), "%s is another object, and nothing says so", address)
		}
		if id := nowIDs[address]; id != "" {
			assert.Contains(h, now, id, "%s is in the state, and not there", address)
		}
	}
}

// named asserts that the outcome names the object with an id, which is not as it was.
func (h *history) named(u activities.Undone, id, was, is string) {
	h.Helper()
	var o struct{ Name string }
	text := is
	if text == "" {
		text = was
	}
	require.NoError(h, json.Unmarshal([]byte(text), &o), "%s", text)
	for _, address := range h.addresses[o.Name] {
		if hasPrefix(u.Losses, address) {
			return
		}
	}
	assert.Fail(h, "an object is not as it was, and nothing says so", "%s at %v: %q, now %q", id, h.addresses[o.Name], was,
		is)
}

func hasPrefix(lines []string, address string) bool {
	return slices.ContainsFunc(lines, func(line string) bool {
		return strings.HasPrefix(line, address+":") || strings.HasPrefix(line, address+" ")
	})
}

func merged(a, b map[string]string) map[string]bool {
	all := map[string]bool{}
	for _, m := range []map[string]string{a, b} {
		for key := range m {
			all[key] = true
		}
	}
	return all
}

func (h *history) stateExists() bool {
	_, err := os.Stat(h.state())
	return err == nil
}

// text is the configuration.
func (h *history) text() string {
	var lines []string
	for _, g := range h.groups {
		lines = append(lines, h.describe(g))
	}
	return strings.Join(append(lines, h.transitions...), "\n")
}

func (h *history) describe(g *group) string {
	text := fmt.Sprintf("resource \"fake_thing\" %q {\n", g.label)
	switch g.mode {
	case "one":
		text += fmt.Sprintf("  name = %q\n", g.names[0])
	case "count":
		text += fmt.Sprintf("  count = %d\n  name = [\"%s\"][count.index]\n", len(g.names), strings.Join(g.names, `", "`))
	case "each":
		text += "  for_each = {\n"
		for n, key := range g.keys {
			text += fmt.Sprintf("    %s = %q\n", key, g.names[n])
		}
		text += "  }\n  name = each.value\n"
	}
	content := fmt.Sprintf("%q", g.content)
	if g.after != nil && g.after.mode == "one" && slices.Contains(h.groups, g.after) {
		content = "fake_thing." + g.after.label + ".id"
	}
	text += "  content = " + content + "\n"
	if g.fail != "" {
		text += fmt.Sprintf("  fail = %q\n", g.fail)
	}
	if len(g.lifecycle) > 0 {
		text += "  lifecycle {\n    " + strings.Join(g.lifecycle, "\n    ") + "\n  }\n"
	}
	return text + "}"
}

// note keeps which objects stand where.
func (h *history) note() {
	for _, g := range h.groups {
		for n, name := range g.names {
			address := "fake_thing." + g.label
			switch g.mode {
			case "count":
				address += fmt.Sprintf("[%d]", n)
			case "each":
				address += fmt.Sprintf("[%q]", g.keys[n])
			}
			if !slices.Contains(h.addresses[name], address) {
				h.addresses[name] = append(h.addresses[name], address)
			}
		}
	}
}

func (h *history) tellf(format string, args ...any) {
	h.told = append(h.told, fmt.Sprintf(format, args...))
}

func (h *history) fresh(kind string) string {
	h.made++
	return fmt.Sprintf("%s%d", kind, h.made)
}

// some is a group that no event of this step has touched yet; nil if there is none.
func (h *history) some(modes ...string) *group {
	var all []*group
	for _, g := range h.groups {
		touched := slices.ContainsFunc(h.told, func(t string) bool { return strings.HasSuffix(t, " "+g.label) })
		if !touched && (len(modes) == 0 || slices.Contains(modes, g.mode)) {
			all = append(all, g)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[h.IntN(len(all))]
}

func (h *history) create() {
	g := &group{label: h.fresh("r"), mode: []string{"one", "one", "count", "each"}[h.IntN(4)], content: h.fresh("text")}
	for n := range map[bool]int{true: 1, false: 1 + h.IntN(3)}[g.mode == "one"] {
		g.names, g.keys = append(g.names, h.fresh("n")), append(g.keys, string(rune('a'+n)))
	}
	if len(h.groups) > 0 && h.IntN(3) == 0 {
		g.after = h.groups[h.IntN(len(h.groups))]
	}
	for _, setting := range []string{"create_before_destroy = true", "prevent_destroy = true",
		"ignore_changes = [content]"} {
		if h.IntN(5) == 0 {
			g.lifecycle = append(g.lifecycle, setting)
		}
	}
	h.groups = append(h.groups, g)
	h.tellf("create %s", g.label)
}

// unprotect is what somebody does before an object is destroyed by Terraform, and often when it is
// changed.
func (g *group) unprotect() {
	g.lifecycle = slices.DeleteFunc(g.lifecycle, func(s string) bool { return s != "create_before_destroy = true" })
}

func (h *history) change() {
	if g := h.some(); g != nil {
		g.unprotect()
		g.content, g.after = h.fresh("text"), nil
		h.tellf("change %s", g.label)
	}
}

func (h *history) replace() {
	if g := h.some(); g != nil {
		g.unprotect()
		g.names[h.IntN(len(g.names))] = h.fresh("n")
		h.tellf("replace %s", g.label)
	}
}

// drop takes a group out of the configuration.
func (h *history) drop(g *group) {
	h.note()
	h.groups = slices.DeleteFunc(h.groups, func(o *group) bool { return o == g })
}

func (h *history) remove() {
	if g := h.some(); g != nil {
		h.drop(g)
		h.tellf("remove %s", g.label)
	}
}

func (h *history) importOne() {
	g := &group{label: h.fresh("r"), mode: "one", content: h.fresh("text"), names: []string{h.fresh("n")},
		keys: []string{"a"}}
	there := g.content
	if h.IntN(3) == 0 {
		there = "by hand"
	}
	id := h.fresh("outside")
	h.makeOutside(id, g.names[0], there)
	h.groups = append(h.groups, g)
	h.transitions = append(h.transitions, fmt.Sprintf("import {\n  to = fake_thing.%s\n  id = %q\n}", g.label, id))
	h.tellf("import %s", g.label)
}

func (h *history) move() {
	g := h.some()
	if g == nil {
		return
	}
	h.note()
	from := g.label
	g.label = h.fresh("r")
	if h.IntN(2) == 0 {
		g.content, g.after = h.fresh("text"), nil
	}
	h.transitions = append(h.transitions,
		fmt.Sprintf("moved {\n  from = fake_thing.%s\n  to = fake_thing.%s\n}", from, g.label))
	h.tellf("move %s to %s", from, g.label)
}

func (h *history) forget() {
	if g := h.some(); g != nil && h.IntN(3) > 0 {
		h.drop(g)
		h.transitions = append(h.transitions,
			fmt.Sprintf("removed {\n  from = fake_thing.%s\n  lifecycle {\n    destroy = false\n  }\n}", g.label))
		h.tellf("forget %s", g.label)
	}
}

// count makes one into several, a list into a map, or changes how many there are.
func (h *history) count() {
	g := h.some()
	if g == nil {
		return
	}
	h.note()
	g.unprotect()
	switch {
	case g.mode == "one":
		g.mode = "count"
		g.names, g.keys = append(g.names, h.fresh("n")), []string{"a", "b"}
	case g.mode == "count" && h.IntN(2) == 0:
		g.mode = "each"
		for n := range g.names {
			h.transitions = append(h.transitions,
				fmt.Sprintf("moved {\n  from = fake_thing.%[1]s[%[2]d]\n  to = fake_thing.%[1]s[%[3]q]\n}", g.label, n, g.keys[n]))
		}
	case len(g.names) > 1 && h.IntN(2) == 0:
		at := h.IntN(len(g.names)) // those behind it in a list shift
		g.names, g.keys = slices.Delete(g.names, at, at+1), slices.Delete(g.keys, at, at+1)
	default:
		g.names, g.keys = append(g.names, h.fresh("n")), append(g.keys, h.fresh("k"))
	}
	h.tellf("count %s", g.label)
}

// fail makes the step fail: something is not made, made and lost, made half, or not changed.
func (h *history) fail() {
	fail := []string{"before", "after", "tainted", "update"}[h.IntN(4)]
	if h.fails {
		return
	}
	if fail == "update" {
		g := h.some()
		if g == nil {
			return
		}
		g.unprotect()
		g.content, g.after, g.fail = h.fresh("text"), nil, fail
		h.fails = true
		h.tellf("fail to change %s", g.label)
		return
	}
	h.groups = append(h.groups,
		&group{label: h.fresh("r"), mode: "one", names: []string{h.fresh("n")}, keys: []string{"a"}, content: "x",
			fail: fail})
	h.fails = true
	h.tellf("fail to make (%s) %s", fail, h.groups[len(h.groups)-1].label)
}

// taint marks an object as terraform taint does, outside of Unwind, which then has to be told the
// previous configuration.
func (h *history) taint() Params {
	h.Helper()
	raw, err := os.ReadFile(h.state())
	require.NoError(h, err)
	var s map[string]any
	require.NoError(h, json.Unmarshal(raw, &s))
	resources := s["resources"].([]any)
	if len(resources) == 0 {
		return Params{}
	}
	r := resources[h.IntN(len(resources))].(map[string]any)
	if slices.ContainsFunc(h.groups, func(g *group) bool { return g.after != nil && g.after.label == r["name"] }) {
		// to replace it would change others as well, and the previous configuration would not make the
		// present state
		return Params{}
	}
	instances := r["instances"].([]any)
	instances[h.IntN(len(instances))].(map[string]any)["status"] = "tainted"
	s["serial"] = s["serial"].(float64) + 1
	raw, err = json.MarshalIndent(s, "", "  ")
	require.NoError(h, err)
	require.NoError(h, os.WriteFile(h.state(), raw, 0o644))
	for _, g := range h.groups {
		if g.label == r["name"] {
			g.unprotect() // or the step could not replace it
		}
	}
	conf, err := os.ReadFile(filepath.Join(h.dir, "conf", "main.tf"))
	require.NoError(h, err)
	write(h, h.dir, "previous/main.tf", string(conf))
	h.tellf("taint one of %s", r["name"])
	return Params{Previous: &Previous{Dir: filepath.Join(h.dir, "previous")}}
}
