package task

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/seed-62bf7108/unwind/activities"
)

// Compile checks a document against a catalog and makes the steps that a workflow runs. Its error is a Problems where the
// document is at fault, and any other where the catalog is.
func Compile(doc *Document, cat Catalog) (*Compiled, error) {
	if doc.root == nil {
		return nil, fmt.Errorf("the document was not made by Parse")
	}
	doc, err := doc.Override(cat.Vars)
	if err != nil {
		return nil, err
	}
	var problems Problems
	c := &compiler{
		parser: parser{collector: collector{file: doc.File, problems: &problems}, resolved: true},
		doc:    doc, cat: cat, defaults: cat.Defaults.WithDefaults(),
		actions: map[string]*action{}, byID: make(map[string]int, len(doc.steps)),
	}
	for _, s := range cat.Specs {
		c.specs = append(c.specs, s.Name)
		c.actions[s.Name] = nil
	}
	slices.Sort(c.specs)
	if cat.Secrets != nil {
		c.cat.Secrets = append([]string{}, cat.Secrets...)
		slices.Sort(c.cat.Secrets)
	}
	if err := c.prepare(); err != nil {
		return nil, err
	}
	compiled := &Compiled{
		Name: doc.Name, Agent: doc.Agent, Deadline: doc.Timeout, Unwind: doc.unwind, Keep: c.window(), Pinned: doc.pinned, Steps: make([]Step, len(doc.steps)),
	}
	for i := range doc.steps {
		c.byID[doc.steps[i].id] = i
		if compiled.Steps[i] = c.step(i); c.filled > MaxCompiled {
			c.add(doc.steps[i].node, doc.steps[i].at, "", fmt.Sprintf("the steps up to here have more than %d bytes with their vars filled in", MaxCompiled), largeTask)
			break
		}
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	c.order(compiled.Steps)
	if err := c.fits(compiled); err != nil {
		return nil, err
	}
	return compiled, nil
}

const largeTask = "split the task, or put large content into files and name them with source:"

type compiler struct {
	parser
	doc      *Document
	cat      Catalog
	defaults Defaults
	specs    []string
	actions  map[string]*action // nil: known, and not used in this task
	byID     map[string]int
	touches  []touch
	refs     [][]int        // the steps whose outputs each step refers to
	sizes    map[string]int // of the vars as JSON
	filled   int            // bytes of vars that were put into steps
}

// prepare reads the schemas of the actions that the task uses.
func (c *compiler) prepare() error {
	used := map[string]bool{}
	for _, s := range c.doc.steps {
		used[s.uses] = true
	}
	for _, spec := range c.cat.Specs {
		if used[spec.Name] {
			a, err := newAction(spec)
			if err != nil {
				return err
			}
			c.actions[spec.Name] = a
		}
	}
	c.sizes = make(map[string]int, len(c.doc.vars))
	for name, v := range c.doc.vars {
		c.sizes[name] = v.size()
	}
	n := len(c.doc.steps)
	c.touches, c.refs = make([]touch, n), make([][]int, n)
	return nil
}

// step compiles step i.
func (c *compiler) step(i int) Step {
	written := c.doc.steps[i]
	s := c.parser.step(c.withVars(written.node), written.at) // vars are in it now: read it again
	a := c.actions[s.uses]
	if a == nil {
		c.unknownAction(s)
		return Step{}
	}
	with := s.with
	if with == nil {
		with = &node{kind: object, line: s.node.line, column: s.node.column}
	}
	c.with(i, a, with, s)
	compiled := Step{
		ID: s.id, Name: s.name, Uses: s.uses, With: with.json(nil), Check: s.check,
		Gate: c.gate(s, a.Spec), Retry: c.retry(s), Place: c.place(s, a.Spec),
		Timeout: cmp.Or(s.timeout, c.defaults.Timeout), Heartbeat: c.defaults.Heartbeat,
		UndoParams: a.UndoParams, Digested: a.Digested, ReadOnly: a.ReadOnly, Commits: a.Commits,
		OnFailure: OnFailure{Do: c.doc.onFailure}, Savepoint: s.savepoint, Pivot: s.pivot,
	}
	if s.onFailure != nil {
		compiled.OnFailure = *s.onFailure
	}
	compiled.Undo = activities.UndoPolicy{
		Within: cmp.Or(s.undo.within, c.defaults.UndoWithin), Attempts: s.undo.attempts, Heartbeat: c.defaults.Heartbeat,
		HostWait: c.defaults.HostWait, Drift: s.undo.drift, Criticality: s.undo.criticality,
	}
	compiled.Undo.Attempt = min(c.defaults.UndoAttempt, compiled.Undo.Within)
	compiled.Undo = compiled.Undo.Compact()
	if len(compiled.With) > MaxInline {
		c.add(with, s.at.key("with"), "", fmt.Sprintf("has %d bytes, more than %d", len(compiled.With), MaxInline),
			"put large content into a file and name it with source:")
	}
	t := touches(a.Spec, with)
	t.place = compiled.Place.Queue
	compiled.Keys = t.names()
	c.touches[i] = t
	return compiled
}

func (c *compiler) unknownAction(s step) {
	n := s.node.get("uses")
	world := activities.WorldOf(s.uses)
	var siblings []string
	for _, name := range c.specs {
		if activities.WorldOf(name) == world {
			siblings = append(siblings, name)
		}
	}
	fix := nearest(s.uses, c.specs)
	switch {
	case len(siblings) > 0 && fix != "":
		fix += " " + meant("", siblings, "world "+world+" has")
	case len(siblings) > 0:
		fix = meant(s.uses, siblings, "world "+world+" has")
	case fix == "":
		fix = meant(s.uses, c.specs, "actions of this worker")
	}
	c.add(n, s.at.key("uses"), n.shown(), "there is no such action", fix)
}

// withVars is a step with the vars in it: with keeps its other expressions, all else is plain text afterwards.
func (c *compiler) withVars(n *node) *node {
	m := *n
	m.fields = slices.Clone(n.fields)
	for i, f := range m.fields {
		switch f.key.text {
		case "with":
			m.fields[i].value = f.value.mapText(func(n *node) *node { return c.substitute(n, true) })
		case "name", "check", "gate", "on":
			m.fields[i].value = f.value.mapText(func(n *node) *node { return c.substitute(n, false) })
		}
	}
	return &m
}

// substitute puts the vars into a text. The result is a template again, or plain text.
func (c *compiler) substitute(n *node, asTemplate bool) *node {
	t, bad := parseTemplate(n.text)
	if bad != nil { // Parse has refused it
		return n
	}
	if ref, ok := t.whole(); ok && ref.kind == varRef {
		v := c.doc.vars[ref.name].moved(n)
		if c.filled += c.sizes[ref.name]; c.filled > MaxCompiled {
			return n
		}
		if !asTemplate {
			return v
		}
		return v.mapText(func(n *node) *node {
			m := *n
			m.text = escape(n.text)
			return &m
		})
	}
	var filled joiner
	for _, p := range t {
		if p.kind == varRef {
			p = part{text: inText(c.doc.vars[p.name])}
			c.filled += len(p.text)
		}
		if c.filled > MaxCompiled {
			return n
		}
		filled.add(p)
	}
	m := *n
	if m.text = filled.template().String(); !asTemplate {
		m.text, _ = filled.template().plain()
	}
	return &m
}

// inText is a value as a part of a text: text as it is, all else as JSON.
func inText(n *node) string {
	if n.kind == text {
		return n.text
	}
	return string(n.json(nil))
}

// with checks a step's parameters, and notes what they refer to.
func (c *compiler) with(i int, a *action, with *node, s step) {
	at := s.at.key("with")
	v := &conformer{parser: &c.parser, whole: true}
	before := len(*c.problems)
	v.conform(with, a.params, at)
	c.refer(i, with, at)
	if v.whole && len(*c.problems) == before {
		// What the walk above does not know (anyOf, if, uniqueItems) is left to the library, which knows no positions.
		if err := a.resolved.Validate(with.mapText(plainText).value()); err != nil {
			c.add(with, at, "", "does not fit "+a.Name+": "+err.Error(), "")
		}
	}
}

func plainText(n *node) *node {
	m := *n
	if t, bad := parseTemplate(n.text); bad == nil {
		m.text, _ = t.plain()
	}
	return &m
}

// refer checks and notes the references of step i.
func (c *compiler) refer(i int, n *node, at *trail) {
	for j, item := range n.items {
		c.refer(i, item, at.item(j))
	}
	for _, f := range n.fields {
		c.refer(i, f.value, at.key(f.key.text))
	}
	if n.kind != text {
		return
	}
	t, _ := parseTemplate(n.text)
	for _, p := range t {
		switch p.kind {
		case outputRef:
			j := c.byID[p.step]
			c.refs[i] = append(c.refs[i], j)
			if a := c.actions[c.doc.steps[j].uses]; a != nil && a.Outputs != nil {
				if _, has := a.Outputs[p.name]; !has {
					c.add(n, at, strconv.Quote(p.text), a.Name+" has no such output", meant(p.name, sortedKeys(a.Outputs), "outputs of "+a.Name))
				}
			}
		case secretRef:
			if c.cat.Secrets != nil && !slices.Contains(c.cat.Secrets, p.name) {
				c.add(n, at, strconv.Quote(p.text), "this worker's config does not allow this secret", meant(p.name, c.cat.Secrets, "allowed are"))
			}
		}
	}
}

func (c *compiler) retry(s step) Retry {
	r := Retry{
		Attempts: cmp.Or(s.retry.attempts, c.defaults.Attempts),
		Backoff:  cmp.Or(s.retry.backoff, c.defaults.Backoff),
		Max:      cmp.Or(s.retry.max, c.defaults.MaxBackoff),
	}
	if s.retry.max == 0 {
		r.Max = max(r.Max, r.Backoff)
	}
	r.Backoff = min(r.Backoff, r.Max)
	return r
}

// gate says when a step waits for a person: an action that is risky or irreversible is asked for without being told to,
// and where the file says auto, unless the file says none.
func (c *compiler) gate(s step, spec activities.Spec) Gate {
	risky := spec.Risk == activities.High || spec.Strategy == activities.Irreversible
	g := Gate{Mode: s.gate.mode}
	switch {
	case g.Mode == GateNone && !risky && !spec.MayAsk:
		g.Mode = GateOpen // there is no gate that could be left out
	case g.Mode == GateNone:
		g.Plans = spec.MayAsk
	case g.Mode == GateAsk:
		g.Why, g.Plans = "the task file asks", true
	case risky:
		g.Mode, g.Why, g.Plans = GateAsk, spec.Name+" is risky", true
		if spec.Strategy == activities.Irreversible {
			g.Why = spec.Name + " is irreversible"
		}
	case g.Mode == GateAuto:
		g.Why, g.Plans = "the task file asks where the change is risky", true
	default:
		g.Mode, g.Plans = GateOpen, spec.MayAsk
	}
	if s.gate.why != "" && g.Mode != GateOpen {
		g.Why = s.gate.why
	}
	switch {
	case !g.Plans:
	case g.Mode == GateAuto:
		g.Limit = cmp.Or(s.gate.limit, c.defaults.AutoGateLimit)
	default:
		g.Limit = cmp.Or(s.gate.limit, c.defaults.GateLimit)
	}
	return g
}

// place says where a step runs. The journals of other hosts are not known here.
func (c *compiler) place(s step, spec activities.Spec) activities.Place {
	host := s.on
	if host == "" && spec.HostBound {
		if host = c.cat.Host; host == "" {
			c.add(s.node, s.at.key("on"), "", spec.Name+" changes things of one host, and none is known", "add on: the name of the host")
		}
	}
	p := activities.Place{Queue: c.cat.SharedQueue, Host: host}
	if host != "" {
		p.Queue = HostQueue(c.cat.SharedQueue, host)
	}
	if host == "" || host == c.cat.Host {
		p.Journal = c.cat.Journals[activities.WorldOf(spec.Name)]
	}
	return p
}

// fits refuses a task whose compiled form is too large to be carried.
func (c *compiler) fits(compiled *Compiled) error {
	if _, err := compiled.MarshalJSON(); err != nil {
		c.add(c.doc.root.get("steps"), c.at("steps"), "", err.Error(), largeTask)
	}
	return c.err()
}
