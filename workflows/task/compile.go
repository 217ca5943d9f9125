package task

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// Compile checks a document against a catalog and makes the steps that a workflow runs. Its error
// is a Problems if the document is at fault, and any other if the catalog is.
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
		actions: map[string]*action{}, elsewhere: map[string]*action{}, byID: make(map[string]int, len(doc.file.Steps)),
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
	if err := c.readSchemas(); err != nil {
		return nil, err
	}
	compiled := &Compiled{
		Name: doc.Name, Agent: doc.Agent, Deadline: doc.Timeout, Unwind: doc.file.Unwind, Keep: c.rollbackWindow(),
		Pinned:  bool(doc.file.Pinned),
		Session: doc.file.Session.compile(), Steps: make([]Step, len(doc.file.Steps)),
	}
	c.checkSession()
	for i := range doc.file.Steps {
		c.byID[string(doc.file.Steps[i].ID)] = i
		if compiled.Steps[i] = c.compileStep(i); c.filled > MaxCompiled {
			c.complain(doc.file.Steps[i].node, doc.file.Steps[i].at, "",
				fmt.Sprintf("the steps up to here have more than %d bytes with their vars filled in", MaxCompiled), largeTask)
			break
		}
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	c.orderSteps(compiled.Steps)
	if err := c.checkSize(compiled); err != nil {
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
	// elsewhere are those that only steps on other hosts can use.
	elsewhere map[string]*action
	byID      map[string]int
	touches   []touch
	refs      [][]int        // the steps whose outputs each step refers to
	before    [][]string     // of steps that are added to a session: the earlier ones whose outputs each refers to
	sizes     map[string]int // of the vars as JSON
	hosts     []string       // where each step runs; empty: anywhere
	filled    int            // bytes of vars that were put into steps
}

// readSchemas reads the schemas of the actions that the task uses.
func (c *compiler) readSchemas() error {
	used := map[string]bool{}
	for _, s := range c.doc.file.Steps {
		used[string(s.Uses)] = true
	}
	for _, uses := range c.doc.earlier {
		used[uses] = true
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
	for _, spec := range c.cat.Elsewhere {
		if _, isHere := c.actions[spec.Name]; used[spec.Name] && !isHere {
			a, err := newAction(spec)
			if err != nil {
				return err
			}
			c.elsewhere[spec.Name] = a
		}
	}
	c.sizes = make(map[string]int, len(c.doc.file.Vars))
	for name, v := range c.doc.file.Vars {
		c.sizes[name] = v.size()
	}
	n := len(c.doc.file.Steps)
	c.touches, c.refs, c.before, c.hosts = make([]touch, n), make([][]int, n), make([][]string, n), make([]string, n)
	return nil
}

func (c *compiler) compileStep(i int) Step {
	written := c.doc.file.Steps[i]
	var s step
	filled := c.fillVars(written.node)
	c.decode(filled, written.at, &s) // again, as vars are in it now
	c.hosts[i] = string(s.On)
	a := c.actions[string(s.Uses)]
	if a == nil && c.isElsewhere(i) {
		a = c.elsewhere[string(s.Uses)]
	}
	if a == nil {
		c.refuseAction(s)
		return Step{}
	}
	with := s.With.node
	if with == nil {
		with = &node{kind: object, line: s.node.line, column: s.node.column}
	}
	c.checkParams(i, a, with, s)
	c.refuseSecretPaths(a.Spec, with, s.at.key("with"))
	compiled := Step{
		ID: string(s.ID), Name: string(s.Name), Uses: string(s.Uses), With: with.json(nil), Check: s.Check.actions(),
		Gate: c.compileGate(s, a.Spec), Retry: c.compileRetry(s), Place: c.placeStep(s, a.Spec),
		Timeout: cmp.Or(time.Duration(s.Timeout), c.defaults.Timeout), Heartbeat: c.defaults.Heartbeat,
		UndoParams: a.UndoParams, Digested: a.Digested, UndoOutputs: a.UndoOutputs, ReadOnly: a.ReadOnly, Commits: a.Commits,
		Preflights: a.Preflights || slices.ContainsFunc(s.Check, func(c check) bool { return c.HTTP != nil }),
		OnFailure:  OnFailure{Do: c.failureMode()}, Savepoint: string(s.Savepoint), Pivot: bool(s.Pivot),
		Intent: a.Intent, Again: bool(s.Again),
	}
	if s.OnFailure != nil {
		compiled.OnFailure = *s.OnFailure
	}
	if o := written.node.origin; o != nil && compiled.OnFailure.Do == FailRollbackStep {
		compiled.OnFailure.With = o.above
	}
	if session := c.doc.file.Session; session != nil {
		compiled.Reserved = describeReserved(filled)
		if session.Environment != "" && s.Savepoint != "" {
			c.complain(s.node.findValue("savepoint"), s.at.key("savepoint"), string(s.Savepoint),
				fmt.Sprintf("a savepoint of this session is a checkpoint of environment %s, which is a step of its own",
					session.Environment),
				"leave it out, and ask the session for a savepoint instead")
		}
	}
	compiled.Undo = activities.UndoPolicy{
		Within: cmp.Or(time.Duration(s.Undo.Within), c.defaults.UndoWithin), Attempts: int(s.Undo.Attempts),
		Heartbeat: c.defaults.Heartbeat,
		HostWait:  c.defaults.HostWait, Drift: activities.DriftPolicy(s.Undo.Drift),
		Criticality: activities.Criticality(s.Undo.Criticality),
	}
	compiled.Undo.Attempt = min(c.defaults.UndoAttempt, compiled.Undo.Within)
	compiled.Undo = compiled.Undo.Compact()
	if len(compiled.With) > MaxInline {
		c.complain(with, s.at.key("with"), "",
			fmt.Sprintf("has %s, more than %d", activities.CountOf(len(compiled.With), "byte"), MaxInline),
			"put large content into a file and name it with source:")
	}
	if checks := jsonSize(compiled.Check); checks > MaxCheckBytes {
		c.complain(s.node.findValue("check"), s.at.key("check"), "",
			fmt.Sprintf("has %s with its vars filled in, more than %d", activities.CountOf(checks, "byte"), MaxCheckBytes),
			"let a command check compare large content")
	}
	c.boundWaits(s, compiled)
	t := nameTouched(a.Spec, with)
	t.place = compiled.Place.Queue
	compiled.NamedLate = t.unknown && a.Preflights && a.Keys != nil
	compiled.Keys, compiled.MayChange = t.keyNames(), t.mayChange(a.Spec)
	c.touches[i] = t
	return compiled
}

// boundWaits refuses checks that may wait for longer than an attempt of the step lasts.
func (c *compiler) boundWaits(s step, compiled Step) {
	var waits time.Duration
	for i, check := range compiled.Check {
		longest := max(check.Within, check.Timeout)
		if waits += longest; longest > 0 && waits >= compiled.Timeout {
			field := "within"
			if check.Within < check.Timeout {
				field = "timeout"
			}
			at := s.at.key("check").item(i).key(field)
			n := s.node.findValue("check").items[i].findValue(field)
			c.complain(n, at, n.display(),
				fmt.Sprintf("the checks may wait for %s, and an attempt of the step lasts at most %s",
					activities.WriteDuration(waits), activities.WriteDuration(compiled.Timeout)),
				"raise timeout: of the step, or lower "+field)
			return
		}
	}
}

// failureMode is what happens when a step fails that does not say: one of a session is undone
// alone, and its agent thinks again.
func (c *compiler) failureMode() FailureMode {
	if c.doc.file.Session != nil && c.doc.root.findValue("on_failure") == nil {
		return FailRollbackStep
	}
	return c.doc.file.OnFailure
}

// checkSession refuses settings that are about an environment where the session has none.
func (c *compiler) checkSession() {
	s := c.doc.file.Session
	if s == nil || s.Restores == "" || s.Environment != "" {
		return
	}
	at := (&trail{name: "session"}).key("restores")
	c.complain(c.doc.root.findValue("session").findValue("restores"), at, string(s.Restores),
		"it is about an environment, and the session has none", "name one with environment:, or leave it out")
}

// compile is s with its defaults; nil where the task is no session.
func (s *session) compile() *Session {
	if s == nil {
		return nil
	}
	return &Session{Idle: cmp.Or(time.Duration(s.Idle), time.Hour), Gone: cmp.Or(s.Gone, GoneAsk),
		AgentDecides: s.Failures == AgentDecides, Environment: string(s.Environment),
		AgentRestores: s.Restores == AgentDecides}
}

func jsonSize(v any) int {
	raw, _ := json.Marshal(v) // plain data
	return len(raw)
}

func (c *compiler) refuseAction(s step) {
	n, uses := s.node.findValue("uses"), string(s.Uses)
	world := activities.WorldOf(uses)
	var siblings []string
	for _, name := range c.specs {
		if activities.WorldOf(name) == world {
			siblings = append(siblings, name)
		}
	}
	fix := SuggestNearest(uses, c.specs)
	switch {
	case len(siblings) > 0 && fix != "":
		fix += " " + suggestOrList("", siblings, "world "+world+" has")
	case len(siblings) > 0:
		fix = suggestOrList(uses, siblings, "world "+world+" has")
	case fix == "":
		fix = suggestOrList(uses, c.specs, "actions of this worker")
	}
	c.complain(n, s.at.key("uses"), n.display(), "there is no such action", fix)
}

// fillVars returns a step with its vars filled in. Only with keeps its other expressions.
func (c *compiler) fillVars(n *node) *node {
	m := *n
	m.fields = slices.Clone(n.fields)
	for i, f := range m.fields {
		if allowed := expressionsIn(f.key.text); allowed != "" {
			m.fields[i].value = f.value.mapText(func(n *node) *node { return c.fillText(n, allowed == allExpressions) })
		}
	}
	return &m
}

// fillText fills the vars of a text in. The result is a template again, or plain text.
func (c *compiler) fillText(n *node, asTemplate bool) *node {
	t, bad := parseTemplate(n.text)
	if bad != nil { // Parse has refused it
		return n
	}
	if ref, ok := t.whole(); ok && ref.kind == varRef {
		v := c.doc.file.Vars[ref.name].moveTo(n)
		if c.filled += c.sizes[ref.name]; c.filled > MaxCompiled {
			return n
		}
		if !asTemplate {
			return v
		}
		return v.mapText(func(n *node) *node {
			m := *n
			m.text = Escape(n.text)
			return &m
		})
	}
	var filled joiner
	for _, p := range t {
		if p.kind == varRef {
			p = part{text: renderVar(c.doc.file.Vars[p.name])}
			c.filled += len(p.text)
		}
		if c.filled > MaxCompiled {
			return n
		}
		filled.joinPart(p)
	}
	m := *n
	if m.text = filled.template().String(); !asTemplate {
		m.text, _ = filled.template().plain()
	}
	return &m
}

// renderVar writes a value as a part of a text: text as it is, all else as JSON.
func renderVar(n *node) string {
	if n.kind == text {
		return n.text
	}
	return string(n.json(nil))
}

// checkParams checks a step's parameters, and notes what they refer to.
func (c *compiler) checkParams(i int, a *action, with *node, s step) {
	at := s.at.key("with")
	v := &conformer{parser: &c.parser, whole: true}
	before := len(*c.problems)
	v.checkValue(with, a.params, at)
	c.checkReferences(i, with, at)
	if v.whole && len(*c.problems) == before {
		// The library checks what checkValue does not (anyOf, if, uniqueItems); it knows no positions.
		if err := a.resolved.Validate(with.mapText(plainText).value()); err != nil {
			c.complain(with, at, "", "does not fit "+a.Name+": "+err.Error(), "")
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

// checkReferences checks and notes the references of step i.
func (c *compiler) checkReferences(i int, n *node, at *trail) {
	for j, item := range n.items {
		c.checkReferences(i, item, at.item(j))
	}
	for _, f := range n.fields {
		c.checkReferences(i, f.value, at.key(f.key.text))
	}
	if n.kind != text {
		return
	}
	t, _ := parseTemplate(n.text)
	for _, p := range t {
		switch p.kind {
		case outputRef:
			uses, isEarlier := c.doc.earlier[p.step]
			if isEarlier {
				c.before[i] = append(c.before[i], p.step)
			} else {
				j := c.byID[p.step]
				c.refs[i] = append(c.refs[i], j)
				uses = string(c.doc.file.Steps[j].Uses)
			}
			if a := c.actions[uses]; a != nil && a.Outputs != nil {
				if _, has := a.Outputs[p.name]; !has {
					c.complain(n, at, strconv.Quote(p.text), a.Name+" has no such output",
						suggestOrList(p.name, sortedKeys(a.Outputs), "outputs of "+a.Name))
				}
			}
		case secretRef:
			if c.cat.Secrets != nil && !c.isElsewhere(i) && !slices.Contains(c.cat.Secrets, p.name) {
				c.complain(n, at, strconv.Quote(p.text), "this worker's config does not allow this secret",
					suggestOrList(p.name, c.cat.Secrets, "allowed are"))
			}
		}
	}
}

// isElsewhere reports whether step i runs on a host whose config is not known here.
func (c *compiler) isElsewhere(i int) bool { return c.hosts[i] != "" && c.hosts[i] != c.cat.Host }

// refuseSecretPaths refuses secrets in paths of what a step changes: they stand in the journal, and
// in messages.
func (c *compiler) refuseSecretPaths(spec activities.Spec, with *node, at *trail) {
	for _, k := range spec.Keys {
		for _, n := range valuesAt(with, strings.Split(k.Param, ".")) {
			if !k.Path || n.kind != text {
				continue
			}
			t, _ := parseTemplate(n.text)
			for _, p := range t {
				if p.kind == secretRef {
					c.complain(n, at.key(strings.Split(k.Param, ".")[0]), strconv.Quote(p.text),
						"a path cannot hold a secret: the journal and people see it", "write it out, or use vars:")
				}
			}
		}
	}
}

func (c *compiler) compileRetry(s step) Retry {
	r := Retry{
		Attempts: cmp.Or(int(s.Retry.Attempts), c.defaults.Attempts),
		Backoff:  cmp.Or(time.Duration(s.Retry.Backoff), c.defaults.Backoff),
		Max:      cmp.Or(time.Duration(s.Retry.Max), c.defaults.MaxBackoff),
	}
	if s.Retry.Max == 0 {
		r.Max = max(r.Max, r.Backoff)
	}
	r.Backoff = min(r.Backoff, r.Max)
	return r
}

// compileGate says when a step waits for a person. A risky or irreversible action waits unless the
// file says none; of any other, the change decides.
func (c *compiler) compileGate(s step, spec activities.Spec) Gate {
	risky := spec.Risk == activities.High || spec.Strategy == activities.Irreversible
	g := Gate{Mode: s.Gate.Mode}
	switch {
	case g.Mode == GateNone:
	case g.Mode == GateAsk:
		g.Why = "the task file asks"
	case risky:
		g.Mode, g.Why, g.Risky = GateAsk, spec.Name+" is risky", true
		if spec.Strategy == activities.Irreversible {
			g.Why = spec.Name + " is irreversible"
		}
	case g.Mode == GateAuto:
		g.Why = "the task file asks where the change is risky"
	default:
		g.Mode = GateOpen
	}
	if s.Gate.Why != "" && g.Mode != GateOpen {
		g.Why = string(s.Gate.Why)
	}
	g.Limit = time.Duration(s.Gate.Timeout)
	switch g.Mode {
	case GateAuto:
		g.Limit = cmp.Or(g.Limit, c.defaults.AutoGateLimit)
	case GateAsk:
		g.Limit = cmp.Or(g.Limit, c.defaults.GateLimit)
	}
	return g
}

// placeStep says where a step runs. It leaves the journals of other hosts empty: they are not known
// here.
func (c *compiler) placeStep(s step, spec activities.Spec) activities.Place {
	host := string(s.On)
	if host == "" && spec.HostBound {
		if host = c.cat.Host; host == "" {
			c.complain(s.node, s.at.key("on"), "", spec.Name+" changes things of one host, and none is known",
				"add on: the name of the host")
		}
	}
	p := activities.Place{Queue: c.cat.SharedQueue, Host: host}
	if host != "" {
		p.Queue = HostQueue(c.cat.SharedQueue, host)
	}
	if host == "" || host == c.cat.Host {
		p.Journal, p.Signed = c.cat.Journals[activities.WorldOf(spec.Name)], c.cat.Signed
	}
	return p
}

// rollbackWindow returns the rollback window, zero for the default. It refuses one that is longer
// than the server keeps closed runs.
func (c *compiler) rollbackWindow() time.Duration {
	keep, n := cmp.Or(time.Duration(c.doc.file.Keep), activities.DefaultKeep), c.doc.root.findValue("keep")
	if kept := activities.WriteDuration(c.cat.Retention); c.cat.Retention > 0 && keep > c.cat.Retention {
		const way = "or raise the retention of the namespace"
		if n == nil {
			c.complain(c.doc.root, c.newTrail("keep"), "",
				fmt.Sprintf("is missing, and its default of %s is longer than the %s that the server keeps closed runs",
					activities.WriteDuration(keep), kept),
				"add keep: "+kept+", "+way)
		} else {
			c.complain(n, c.newTrail("keep"), n.display(), "is longer than the "+kept+" that the server keeps closed runs",
				"write at most "+kept+", "+way)
		}
	}
	if keep == activities.DefaultKeep {
		return 0
	}
	return keep
}

// checkSize refuses a task whose compiled form is too large to be carried.
func (c *compiler) checkSize(compiled *Compiled) error {
	if _, err := compiled.MarshalJSON(); err != nil {
		c.complain(c.doc.root.findValue("steps"), c.newTrail("steps"), "", err.Error(), largeTask)
	}
	return c.err()
}
