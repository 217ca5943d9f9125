package task

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/seed-62bf7108/unwind/activities"
)

// group is an item of steps that runs the same steps for each of several targets: the canaries
// first, then one batch after the other. Parse expands it into ordinary steps, so nothing else knows
// of groups.
type group struct {
	ID        identifier   `json:"id" jsonschema:"A short name for the group. Its steps are called ID-TARGET-STEP; needs: [ID] waits for all of them."`
	ForEach   targets      `json:"for_each" jsonschema:"The targets, each a text or a map with a name, or one expression that is such a list. ${{ target }} is the name of the target, ${{ target.KEY }} another value of its map; they may stand wherever a var may."`
	Canary    targetCount  `default:"1" json:"canary,omitempty" jsonschema:"How many targets go first, at once."`
	Batch     targetCount  `default:"1" json:"batch,omitempty" jsonschema:"How many targets go at once after that. The next batch begins when every step of the one before is done."`
	Pause     pause        `json:"pause,omitzero" jsonschema:"What comes before each batch, the canaries' own aside: gate has a person decide whether it begins, a time such as 10m lets that pass, at most 30d. It is a step of its own, ID-batch-2, ID-batch-3 and so on, of the action wait.for. Left out: nothing."`
	OnFailure groupFailure `json:"on_failure,omitzero" jsonschema:"What happens when a step has failed: unwind undoes the whole task; rollback_target undoes all steps of its target, those of the same batch go on, and no later batch begins; ask undoes the step and parks it until a person decides. Left out: what the on_failure of the task says, where rollback_step means rollback_target."`
	Needs     needs        `json:"needs,omitzero" jsonschema:"The ids of the steps that must be done before the first batch. Left out: all steps above. []: none."`
	Steps     groupSteps   `json:"steps" jsonschema:"The steps for each target, in the order in which they run. They have no needs, on_failure, savepoint or pivot of their own. ${{ steps.ID.outputs.NAME }} refers to the same target where ID is a step of the group."`
}

type (
	targets      struct{ *node } // a list, or an expression
	targetCount  int
	pause        struct{ *node } // pauseGate, or a time
	groupFailure struct{ *node } // one of groupFailureWords
	groupSteps   []*node
)

func (t *targets) read(_ *parser, n *node, _ *trail) { t.node = n }
func (*targets) schema() *jsonschema.Schema {
	one := &jsonschema.Schema{AnyOf: []*jsonschema.Schema{lineSchema(MaxName),
		{Type: "object", Required: []string{"name"}}}}
	return orExpression(&jsonschema.Schema{Type: "array", MinItems: new(1), MaxItems: new(MaxTargets), Items: one})
}

func (c *targetCount) read(p *parser, n *node, at *trail) {
	*c = targetCount(p.readCount(n, at, MaxTargets, "write how many targets go at once, as in 4"))
}
func (*targetCount) schema() *jsonschema.Schema { return countSchema(MaxTargets) }

// pauseGate is a pause until a person decides, pauseAction the action of every pause.
const (
	pauseGate   = "gate"
	pauseAction = "wait.for"
)

func (w *pause) read(p *parser, n *node, at *trail) {
	d, isTime := activities.ParseDuration(n.text)
	if n.kind != text || n.text != pauseGate && (!isTime || d > activities.MaxWait) {
		p.complain(n, at, n.display(), "must be gate, or a time of at most 30d", "write gate, or a time like 10m, 2h or 1d")
		return
	}
	w.node = n
}

func (*pause) schema() *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{wordSchema([]string{pauseGate}), (*duration)(nil).schema()}}
}

// wordTarget is rollback_step for all steps of a target.
const wordTarget = "rollback_target"

var groupFailureWords = []string{wordUnwind, wordTarget, string(FailAsk)}

func (f *groupFailure) read(p *parser, n *node, at *trail) {
	switch p.readWord(n, at, groupFailureWords...) {
	case "":
	case wordTarget:
		m := *n
		m.text = string(FailRollbackStep)
		f.node = &m
	default:
		f.node = n
	}
}
func (*groupFailure) schema() *jsonschema.Schema { return wordSchema(groupFailureWords) }

func (s *groupSteps) read(p *parser, n *node, at *trail) {
	switch {
	case !p.requireKind(n, at, list, "begin each step with -"):
	case len(n.items) == 0 || len(n.items) > MaxGroupSteps:
		p.complain(n, at, "", fmt.Sprintf("has %s; a group has 1 to %d", activities.CountOf(len(n.items), "step"),
			MaxGroupSteps), "")
	default:
		*s = n.items
	}
}
func (*groupSteps) schema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "array", MinItems: new(1), MaxItems: new(MaxGroupSteps),
		Items: &jsonschema.Schema{Ref: "#/$defs/step"}}
}

// groupSchema is the schema of a group.
func groupSchema() *jsonschema.Schema {
	s := objectSchema(reflect.TypeFor[group]())
	s.Description = "Steps that run for each of several targets, the canaries first."
	return s
}

// origin says where a step comes from that a group was expanded to.
type origin struct {
	at    *trail
	above []string // the ids of the steps of the same target that come before it
}

// expander replaces the groups of a task by their steps.
type expander struct {
	*parser
	vars vars
	// above are the ids of steps that together follow all those above.
	above []string
	// last are the ids that stand for a group in needs: those of the last steps of its last batch.
	last map[string][]string
	size int // of all that was expanded, in bytes of JSON
}

// expandGroups returns the tree of a task with steps in place of its groups.
func (p *parser) expandGroups(root *node, inAddition bool) *node {
	written := root.findValue("steps")
	isGroup := func(n *node) bool { return n.findValue("for_each") != nil }
	if written == nil || !slices.ContainsFunc(written.items, isGroup) {
		return root
	}
	e := expander{parser: p, last: map[string][]string{}}
	if n := root.findValue("vars"); n != nil {
		silent := parser{collector: collector{problems: new(Problems)}} // what is wrong with them is told later
		silent.decode(n, p.newTrail("vars"), &e.vars)
	}
	expanded := *written
	expanded.items = nil
	for i, item := range written.items {
		at := p.newTrail("steps").step(i, item.findValue("id"))
		switch {
		case !isGroup(item):
			expanded.items = append(expanded.items, e.keepStep(item, at))
		case inAddition:
			p.complain(item, at.key("for_each"), "", "a group cannot be added to a session", "add the steps themselves")
		default:
			expanded.items = append(expanded.items, e.expandGroup(item, at)...)
		}
	}
	m := *root
	m.fields = slices.Clone(root.fields)
	for i, f := range m.fields {
		if f.key.text == "steps" {
			m.fields[i].value = &expanded
		}
	}
	return &m
}

// keepStep returns a step of no group, with the steps of groups in place of their ids in its needs.
func (e *expander) keepStep(n *node, at *trail) *node {
	m := *n
	m.origin = &origin{at: at}
	m.fields = slices.Clone(n.fields)
	follows := true
	for i, f := range m.fields {
		if f.key.text == "needs" {
			m.fields[i].value, follows = e.resolveNeeds(f.value), false
		}
	}
	if follows {
		e.above = nil
	}
	if id := n.findValue("id"); id != nil {
		e.above = append(e.above, id.text)
	}
	return &m
}

func (e *expander) resolveNeeds(n *node) *node {
	m := *n
	m.items = nil
	for _, need := range n.items {
		if ids, isGroup := e.last[need.text]; isGroup && need.kind == text {
			m.items = append(m.items, listOf(ids, need).items...)
		} else {
			m.items = append(m.items, need)
		}
	}
	return &m
}

// listOf makes a list of texts, at the position of another node.
func listOf(texts []string, at *node) *node {
	n := &node{kind: list, line: at.line, column: at.column}
	for _, t := range texts {
		n.items = append(n.items, &node{kind: text, text: t, line: at.line, column: at.column})
	}
	return n
}

// expandGroup returns the steps of a group; none where something is wrong with it as a whole.
func (e *expander) expandGroup(n *node, at *trail) (steps []*node) {
	g := group{Canary: 1, Batch: 1}
	before := len(*e.problems)
	defer func() {
		if len(*e.problems) > before { // what needs the group is not at fault
			steps, e.last[string(g.ID)] = nil, e.above
		}
	}()
	e.decodeObject(n, at, &g)
	e.checkSteps(g.Steps, at.key("steps"))
	all := e.readTargets(g.ForEach.node, at.key("for_each"))
	if len(*e.problems) > before {
		return nil
	}
	if e.size += len(all) * n.size(); e.size > MaxCompiled || len(all)*len(g.Steps) > MaxSteps {
		e.complain(n, at, "", fmt.Sprintf("makes %s of %s; a task has at most %d of %d in all",
			activities.CountOf(len(all)*len(g.Steps), "step"), activities.CountOf(e.size, "byte"), MaxSteps, MaxCompiled),
			largeTask)
		return nil
	}
	needs := listOf(e.above, n)
	if g.Needs.written {
		needs = e.resolveNeeds(n.findValue("needs"))
	}
	nth := 0
	for size := int(g.Canary); len(all) > 0; size = int(g.Batch) {
		batch := all[:min(size, len(all))]
		all = all[len(batch):]
		nth++
		pauses := g.Pause.node != nil && nth > 1
		if pauses || len(needs.items)*len(batch) > maxPairs {
			stop := g.stepBefore(batch, len(all), nth, needs, at)
			if pauses {
				g.addPause(stop, describeBatch(batch, len(all)))
			}
			needs = listOf([]string{stop.findValue("id").text}, n)
			steps = append(steps, stop)
		}
		var last []string
		for _, t := range batch {
			own := e.expandTarget(&g, t, needs, at)
			last = append(last, own[len(own)-1].findValue("id").text)
			steps = append(steps, own...)
		}
		needs = listOf(last, n)
		e.last[string(g.ID)] = last
	}
	if !g.Needs.written {
		e.above = nil
	}
	e.above = append(slices.Clone(e.above), e.last[string(g.ID)]...)
	return steps
}

// maxPairs is how many steps of a batch times steps that they wait for there may be without a step
// between them. Each pair stands in the ledger, so two batches of a thousand would make a million.
const maxPairs = 2500

// stepBefore returns a step between what comes before a batch, the nth, and the batch.
func (g *group) stepBefore(batch []target, after, nth int, needs *node, at *trail) *node {
	n := needs
	if g.Pause.node != nil {
		n, at = g.Pause.node, at.key("pause")
	}
	step := &node{kind: object, line: n.line, column: n.column, origin: &origin{at: at}}
	step.addField("id", n.word(fmt.Sprintf("%s-batch-%d", g.ID, nth)))
	step.addField("uses", n.word(pauseAction))
	step.addField("name", n.word(Escape(clip(describeBatch(batch, after)))))
	step.addField("needs", needs)
	if g.OnFailure.node != nil {
		step.addField("on_failure", g.OnFailure.node)
	}
	return step
}

// addPause has a step before a batch wait for a person, who is told what follows, or for a time.
func (g *group) addPause(step *node, follow string) {
	n := g.Pause.node
	newMap := func() *node { return &node{kind: object, line: n.line, column: n.column} }
	with := newMap()
	if n.text == pauseGate {
		gate := newMap()
		gate.addField("mode", n.word(string(GateAsk)))
		gate.addField("why", n.word(Escape(follow)))
		step.addField("gate", gate)
	} else {
		with.addField("for", n)
	}
	step.addField("with", with)
}

// word makes a text at the position of a node.
func (n *node) word(s string) *node {
	return &node{kind: text, text: s, line: n.line, column: n.column}
}

// maxFollow is how many characters name the targets of a batch; the others are counted.
const maxFollow = 500

// describeBatch says which targets follow, and how many come after them.
func describeBatch(batch []target, after int) string {
	var names []string
	size := 0
	for _, t := range batch {
		name := t.values["name"].text
		if size += utf8.RuneCountInString(name) + 2; size > maxFollow {
			names = append(names, fmt.Sprintf("%d more", len(batch)-len(names)))
			break
		}
		names = append(names, name)
	}
	follow := "next: " + strings.Join(names, ", ")
	if after > 0 {
		follow += fmt.Sprintf("; %s after that", activities.CountOf(after, "target"))
	}
	return follow
}

// groupsOwn are the fields that a step of a group cannot have, and what is written instead.
var groupsOwn = map[string]string{
	"for_each":   "a group has no groups; write another group below this one",
	"needs":      "the steps of a target run in their order; write needs in the group",
	"on_failure": "write it in the group",
	"savepoint":  "write it in a step above the group",
	"pivot":      "write it in a step below the group",
}

// checkSteps checks what must hold of the steps of a group before they can be expanded.
func (e *expander) checkSteps(steps []*node, at *trail) {
	taken := map[string]bool{}
	for i, s := range steps {
		at := at.item(i)
		if !e.requireKind(s, at, object, "write a step") {
			continue
		}
		for _, f := range s.fields {
			if fix, isGroups := groupsOwn[f.key.text]; isGroups {
				e.complain(f.key, at.key(f.key.text), "", "cannot stand in a step of a group", fix)
			}
		}
		var id identifier
		n := s.findValue("id")
		if n == nil {
			e.complain(s, at.key("id"), "", "is missing", "add id: a short name for the step")
			continue
		}
		e.decode(n, at.key("id"), &id)
		if taken[n.text] {
			e.complain(n, at.key("id"), n.display(), "another step of this group has this id", "rename one of them")
		}
		taken[n.text] = true
	}
}

// target is one item of for_each.
type target struct {
	id     string // as it stands in the ids of its steps
	values map[string]*node
}

// noID is what cannot stand in an id.
var noID = regexp.MustCompile(`[^a-z0-9_-]`)

// readTargets reads what for_each holds, itself or in a var.
func (e *expander) readTargets(n *node, at *trail) (all []target) {
	if n == nil { // decodeObject has complained
		return nil
	}
	isVar := n.kind == text
	if isVar {
		t, _ := parseTemplate(n.text)
		p, isWhole := t.whole()
		v := e.vars[p.name]
		if !isWhole || p.kind != varRef || v == nil {
			e.complain(n, at, n.display(), "must be a list of targets, or one expression that is a var with such a list",
				"write [web-1, web-2], or ${{ vars.NAME }}")
			return nil
		}
		n = v.moveTo(n)
	}
	if !e.requireKind(n, at, list, "write [web-1, web-2], or ${{ vars.NAME }}") {
		return nil
	}
	if len(n.items) == 0 || len(n.items) > MaxTargets {
		e.complain(n, at, n.display(), fmt.Sprintf("has %s; a group has 1 to %d",
			activities.CountOf(len(n.items), "target"), MaxTargets), "")
		return nil
	}
	taken := map[string]string{}
	for i, item := range n.items {
		at := at.item(i)
		before := len(*e.problems)
		if !isVar { // the vars have lost their escapes already
			item = e.unescape(item, at)
		}
		if len(*e.problems) > before {
			continue
		}
		t := e.readTarget(item, at)
		name := t.values[""]
		if name == nil {
			continue
		}
		if other, isTaken := taken[t.id]; isTaken {
			e.complain(item, at, name.display(), "its steps would have the same ids as those of target "+strconv.Quote(other),
				"name each target once, and so that they differ in letters, digits, _ or -")
		}
		taken[t.id] = name.text
		all = append(all, t)
	}
	return all
}

// readTarget reads a text, or a map with a name.
func (e *expander) readTarget(n *node, at *trail) target {
	t := target{values: map[string]*node{}}
	name := n
	if n.kind == object {
		if name = n.findValue("name"); name == nil {
			e.complain(n, at.key("name"), "", "is missing", "add name: what the target is called")
			return t
		}
		for _, f := range n.fields {
			if f.value.kind == list || f.value.kind == object || f.value.kind == null {
				e.complain(f.value, at.key(f.key.text), f.value.display(), "must be text, a number, true or false", "")
			}
			t.values[f.key.text] = f.value
		}
	}
	if e.readLine(name, at, MaxName); name.kind == text {
		t.values["name"], t.values[""], t.id = name, name, noID.ReplaceAllString(strings.ToLower(name.text), "-")
	}
	return t
}

// expandTarget returns the steps of a group for one target.
func (e *expander) expandTarget(g *group, t target, needs *node, at *trail) (steps []*node) {
	ids := make(map[string]string, len(g.Steps))
	for _, s := range g.Steps {
		id := s.findValue("id").text
		ids[id] = string(g.ID) + "-" + t.id + "-" + id
	}
	var above []string
	for i, s := range g.Steps {
		m := &node{kind: object, line: s.line, column: s.column,
			origin: &origin{at: at.key("steps").item(i), above: slices.Clone(above)}}
		for _, f := range s.fields {
			switch {
			case f.key.text == "id":
				id := *f.value
				if id.text = ids[id.text]; len(id.text) > maxID {
					e.complain(f.value, m.origin.at.key("id"), "", fmt.Sprintf("the id of this step would be %s, which is longer "+
						"than %d", id.text, maxID), "shorten the id of the group or of the step, or the name of the target")
				}
				above = append(above, id.text)
				f.value = &id
			case expressionsIn(f.key.text) != "":
				at := m.origin.at.key(f.key.text)
				f.value = f.value.mapText(func(n *node) *node { return e.fillTarget(n, at, t, ids) })
			}
			m.fields = append(m.fields, f)
		}
		m.addField("needs", needs)
		if g.OnFailure.node != nil {
			m.addField("on_failure", g.OnFailure.node)
		}
		steps = append(steps, m)
		needs = listOf(above[len(above)-1:], s)
	}
	return steps
}

func (n *node) addField(name string, value *node) {
	key := &node{kind: text, text: name, line: value.line, column: value.column}
	n.fields = append(n.fields, field{key, value})
}

// fillTarget fills a target into a text, and has references to other steps of the group mean those
// of the same target.
func (e *expander) fillTarget(n *node, at *trail, t target, ids map[string]string) *node {
	parts, bad := parseTemplate(n.text)
	if bad != nil { // checkExpressions complains
		return n
	}
	var filled joiner
	for _, p := range parts {
		switch {
		case p.kind == targetRef:
			v := t.values[p.name]
			if v == nil {
				e.complain(n, at, strconv.Quote(p.text), "target "+t.values[""].text+" has no such value",
					suggestOrList(p.name, sortedKeys(t.values)[1:], "its values"))
				return n
			}
			if _, isWhole := parts.whole(); isWhole && v.kind != text {
				return v.moveTo(n)
			}
			p = part{text: renderVar(v)}
			if e.size += len(p.text); e.size > MaxCompiled {
				e.complain(n, at, "", fmt.Sprintf("the steps of groups up to here have more than %d bytes with their targets "+
					"filled in", MaxCompiled), largeTask)
				return n
			}
		case p.kind == outputRef && ids[p.step] != "":
			p.step = ids[p.step]
			p.text = "${{ steps." + p.step + ".outputs." + p.name + " }}"
		}
		filled.joinPart(p)
	}
	m := *n
	m.text = filled.template().String()
	return &m
}
