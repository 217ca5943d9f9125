package task

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/seed-62bf7108/unwind/activities"
)

// The types of values in a task file. Each reads itself, and has a schema that says the same.
type (
	link        string // where an editor finds the schema
	title       string // one line without expressions
	label       string // one line
	reason      string // one line, longer
	line        string // one line, of any length
	statement   string // SQL
	identifier  string
	actionName  string
	hostName    string
	pointer     string // a JSON Pointer
	duration    time.Duration
	toggle      bool
	attempts    int
	times       int
	when        activities.When
	drift       activities.DriftPolicy
	criticality activities.Criticality
	command     []string
	checks      []check
	steps       []step
	format      string
	httpStatus  int
	anyValue    json.RawMessage  // any value
	vars        map[string]*node // values with expressions' escapes taken out
	params      struct{ *node }  // nil: none
	needs       struct {
		written bool
		ids     []*node // texts
	}
)

const (
	idPattern   = `[a-z][a-z0-9_-]{0,62}` // at most maxID characters
	maxID       = 63
	usesPattern = `[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+`
	hostPattern = `[A-Za-z0-9][A-Za-z0-9._-]{0,252}`

	notEmpty      = `\S`
	hasExpression = `\$\{\{`
	noControl     = `^[^\x00-\x1f\x7f-\x9f]*$`
)

var (
	idForm   = regexp.MustCompile(`^` + idPattern + `$`)
	usesForm = regexp.MustCompile(`^` + usesPattern + `$`)
	hostForm = regexp.MustCompile(`^` + hostPattern + `$`)
	varName  = regexp.MustCompile(`^` + varPattern + `$`)
)

func textSchema(pattern string, more ...*jsonschema.Schema) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: pattern, AllOf: more}
}

func lineSchema(limit int) *jsonschema.Schema {
	s := textSchema(notEmpty, &jsonschema.Schema{Pattern: noControl})
	if limit > 0 {
		s.MaxLength = &limit
	}
	return s
}

func countSchema(limit int) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "integer", Minimum: new(1.0), Maximum: new(float64(limit))}
}

func wordSchema(words []string) *jsonschema.Schema {
	s := &jsonschema.Schema{}
	for _, w := range words {
		s.Enum = append(s.Enum, w)
	}
	return s
}

// orExpression returns a schema that also accepts a text with an expression in it.
func orExpression(s *jsonschema.Schema) *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{s, {Type: "string", Pattern: hasExpression}}}
}

func (l *link) read(p *parser, n *node, at *trail) { *l = link(p.readText(n, at, MaxKey)) }
func (*link) schema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", MaxLength: new(MaxKey)}
}

func (t *title) read(p *parser, n *node, at *trail) {
	*t = title(p.readLine(n, at, MaxName))
	if strings.Contains(string(*t), "${{") {
		p.complain(n, at, n.display(), "no expression may stand here", "write the text out")
	}
}

func (*title) schema() *jsonschema.Schema {
	s := lineSchema(MaxName)
	s.AllOf = append(s.AllOf, &jsonschema.Schema{Not: &jsonschema.Schema{Pattern: hasExpression}})
	return s
}

func (l *label) read(p *parser, n *node, at *trail) { *l = label(p.readLine(n, at, MaxName)) }
func (*label) schema() *jsonschema.Schema           { return lineSchema(MaxName) }

func (r *reason) read(p *parser, n *node, at *trail) { *r = reason(p.readLine(n, at, MaxWhy)) }
func (*reason) schema() *jsonschema.Schema           { return orExpression(lineSchema(MaxWhy)) }

func (l *line) read(p *parser, n *node, at *trail) { *l = line(p.readLine(n, at, MaxFile)) }
func (*line) schema() *jsonschema.Schema           { return lineSchema(0) }

func (s *statement) read(p *parser, n *node, at *trail) {
	if *s = statement(p.readText(n, at, MaxFile)); n.kind == text && strings.TrimSpace(n.text) == "" {
		p.complain(n, at, n.display(), "is empty", "write a SELECT")
	}
}
func (*statement) schema() *jsonschema.Schema { return textSchema(notEmpty) }

func (id *identifier) read(p *parser, n *node, at *trail) {
	*id = identifier(p.readForm(n, at, idForm, "must begin with a small letter and have at most 63 of a-z, 0-9, _ and -"))
}
func (*identifier) schema() *jsonschema.Schema { return textSchema("^" + idPattern + "$") }

func (a *actionName) read(p *parser, n *node, at *trail) {
	*a = actionName(p.readForm(n, at, usesForm, "must be the name of an action, as in file.write"))
}
func (*actionName) schema() *jsonschema.Schema { return textSchema("^" + usesPattern + "$") }

func (h *hostName) read(p *parser, n *node, at *trail) {
	if !p.templated(n) {
		*h = hostName(p.readForm(n, at, hostForm, "must be the name of a host"))
	}
}
func (*hostName) schema() *jsonschema.Schema { return textSchema("^" + hostPattern + "$") }

func (j *pointer) read(p *parser, n *node, at *trail) {
	*j = pointer(p.readText(n, at, MaxFile))
	if *j != "" && (*j)[0] != '/' && !p.templated(n) {
		p.complain(n, at, n.display(), "must be a JSON Pointer", `write it like /server/port; "" is the whole document`)
	}
}
func (*pointer) schema() *jsonschema.Schema { return textSchema(`^$|^/|` + hasExpression) }

func (d *duration) read(p *parser, n *node, at *trail) {
	const fix = "write it like 30s, 5m, 2h, 3d or 1h30m"
	if !p.requireKind(n, at, text, fix) {
		return
	}
	read, ok := activities.ParseDuration(n.text)
	if !ok {
		p.complain(n, at, n.display(), "must be a time longer than zero and at most 3650d", fix)
	}
	*d = duration(read)
}

func (*duration) schema() *jsonschema.Schema {
	s := textSchema(activities.DurationPattern, &jsonschema.Schema{Pattern: "[1-9]"}) // the second keeps out zero
	s.Examples = []any{"30s", "2h", "3d"}
	return s
}

func (f *toggle) read(p *parser, n *node, at *trail) {
	*f = toggle(p.requireKind(n, at, boolean, "write true, or leave it out") && n.text == "true")
}
func (*toggle) schema() *jsonschema.Schema { return &jsonschema.Schema{Type: "boolean"} }

func (a *attempts) read(p *parser, n *node, at *trail) {
	*a = attempts(p.readCount(n, at, MaxAttempts, "write how often it is tried, as in 3; 1 is no second try"))
}
func (*attempts) schema() *jsonschema.Schema { return countSchema(MaxAttempts) }

func (t *times) read(p *parser, n *node, at *trail) {
	*t = times(p.readCount(n, at, MaxTimes, "write how often it goes back, as in 2"))
}
func (*times) schema() *jsonschema.Schema { return countSchema(MaxTimes) }

var whenWords = []string{string(activities.Staged), string(activities.Live)}

func (w *when) read(p *parser, n *node, at *trail) { *w = when(p.readWord(n, at, whenWords...)) }
func (*when) schema() *jsonschema.Schema           { return wordSchema(whenWords) }

var driftWords = []string{string(activities.DriftAsk), string(activities.DriftForce), string(activities.DriftSkip)}

func (d *drift) read(p *parser, n *node, at *trail) { *d = drift(p.readWord(n, at, driftWords...)) }
func (*drift) schema() *jsonschema.Schema           { return wordSchema(driftWords) }

var criticalityWords = []string{string(activities.Normal), string(activities.LowCritical)}

func (c *criticality) read(p *parser, n *node, at *trail) {
	*c = criticality(p.readWord(n, at, criticalityWords...))
}
func (*criticality) schema() *jsonschema.Schema { return wordSchema(criticalityWords) }

var gateWords = []string{string(GateAsk), string(GateAuto), string(GateNone)}

func (m *GateMode) read(p *parser, n *node, at *trail) {
	*m = GateMode(p.readWord(n, at, gateWords...))
}
func (*GateMode) schema() *jsonschema.Schema { return wordSchema(gateWords) }

// The words for defaults, which are empty once compiled.
const (
	wordUnwind = "unwind"
	wordLIFO   = "lifo"
)

var failureWords = []string{wordUnwind, string(FailRollbackStep), string(FailContinue), string(FailAsk)}

func (m *FailureMode) read(p *parser, n *node, at *trail) {
	switch {
	case n.kind == object:
		p.complain(n, at, n.display(), "must be text",
			"one of unwind, rollback_step, continue, ask; unwind_to stands in the step that it is for")
	case n.text == string(FailUnwindTo):
		p.complain(n, at, n.display(), "names no savepoint", "write it in the step that it is for, as {unwind_to: SAVEPOINT}")
	default:
		if word := p.readWord(n, at, failureWords...); word != wordUnwind {
			*m = FailureMode(word)
		}
	}
}
func (*FailureMode) schema() *jsonschema.Schema { return wordSchema(failureWords) }

var unwindWords = []string{wordLIFO, string(UnwindParallel)}

func (m *UnwindMode) read(p *parser, n *node, at *trail) {
	if word := p.readWord(n, at, unwindWords...); word != wordLIFO {
		*m = UnwindMode(word)
	}
}
func (*UnwindMode) schema() *jsonschema.Schema { return wordSchema(unwindWords) }

var goneWords = []string{string(GoneAsk), string(GoneUnwind)}

func (m *GoneMode) read(p *parser, n *node, at *trail) {
	*m = GoneMode(p.readWord(n, at, goneWords...))
}
func (*GoneMode) schema() *jsonschema.Schema { return wordSchema(goneWords) }

var deciderWords = []string{string(PersonDecides), string(AgentDecides)}

func (d *Decider) read(p *parser, n *node, at *trail) {
	*d = Decider(p.readWord(n, at, deciderWords...))
}
func (*Decider) schema() *jsonschema.Schema { return wordSchema(deciderWords) }

func (o *OnFailure) read(p *parser, n *node, at *trail) {
	if n.kind != object {
		p.decode(n, at, &o.Do)
		return
	}
	back := unwindTo{Times: 1}
	p.decode(n, at, &back)
	*o = OnFailure{Do: FailUnwindTo, To: string(back.Savepoint), Times: int(back.Times)}
}

func (*OnFailure) schema() *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{wordSchema(failureWords),
		objectSchema(reflect.TypeFor[unwindTo]())}}
}

func (g *gate) read(p *parser, n *node, at *trail) {
	g.Mode = GateAsk
	if n.kind == object {
		p.decodeObject(n, at, g)
		return
	}
	p.decode(n, at, &g.Mode)
}

func (*gate) schema() *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{wordSchema(gateWords), objectSchema(reflect.TypeFor[gate]())}}
}

func (r *retry) read(p *parser, n *node, at *trail) {
	p.decodeObject(n, at, r)
	if r.Max > 0 && r.Backoff > r.Max {
		backoff := n.findValue("backoff")
		p.complain(backoff, at.key("backoff"), backoff.display(), "is longer than max", "raise max, or lower backoff")
	}
}

func (v *vars) read(p *parser, n *node, at *trail) {
	if !p.requireKind(n, at, object, "write a key and a value a line") {
		return
	}
	if size := n.size(); size > MaxVars {
		p.complain(n, at, "", fmt.Sprintf("the vars have %s, more than %d", activities.CountOf(size, "byte"), MaxVars),
			"keep large content in a file and name it with source:")
	}
	*v = make(vars, len(n.fields))
	for _, f := range n.fields {
		at := at.key(f.key.text)
		if !varName.MatchString(f.key.text) {
			p.complain(f.key, at, "",
				"the name of a var has letters, digits, _ and -, begins with no digit, and is at most 100 long", "rename it")
		}
		(*v)[f.key.text] = p.unescape(f.value, at)
	}
}

func (*vars) schema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "object", PropertyNames: &jsonschema.Schema{Pattern: "^" + varPattern + "$"}}
}

// unescape returns the value of a var without its escapes of expressions.
func (p *parser) unescape(n *node, at *trail) *node {
	return n.mapText(func(n *node) *node {
		t, bad := parseTemplate(n.text)
		if bad != nil {
			p.complain(n, at, strconv.Quote(bad.found), bad.message, expressionForms)
			return n
		}
		plain, ok := t.plain()
		if !ok {
			p.complain(n, at, n.display(), "a var cannot hold an expression",
				"write the expression where the var is used; for the text itself write $${{")
		}
		m := *n
		m.text = plain
		return &m
	})
}

func (w *params) read(p *parser, n *node, at *trail) {
	if p.requireKind(n, at, object, "write a key and a value a line") {
		w.node = n
	}
}
func (*params) schema() *jsonschema.Schema { return &jsonschema.Schema{Type: "object"} }

// read leaves the ids to referenceChecker.checkNeeds, which knows all steps.
func (d *needs) read(p *parser, n *node, at *trail) {
	d.written = true
	if p.requireKind(n, at, list, "write it as a list of ids: [build, test]; [] is none") {
		d.ids = n.items
	}
}

func (*needs) schema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "array", Items: new(identifier).schema(), UniqueItems: true}
}

func (s *steps) read(p *parser, n *node, at *trail) {
	switch {
	case !p.requireKind(n, at, list, "begin each step with -"):
	case len(n.items) > MaxSteps:
		p.complain(n, at, "", fmt.Sprintf("has %s; a task has 1 to %d", activities.CountOf(len(n.items), "step"), MaxSteps),
			"split the task")
	default:
		*s = decodeList[step](p, n, at)
	}
}

func (*steps) schema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "array", MaxItems: new(MaxSteps), Items: &jsonschema.Schema{
		If:   &jsonschema.Schema{Type: "object", Required: []string{"for_each"}},
		Then: &jsonschema.Schema{Ref: "#/$defs/group"}, Else: &jsonschema.Schema{Ref: "#/$defs/step"}}}
}

func (s *step) read(p *parser, n *node, at *trail) {
	*s = step{node: n, at: at}
	p.decodeObject(n, at, s)
}

func (c *checks) read(p *parser, n *node, at *trail) {
	switch {
	case !p.requireKind(n, at, list, "begin each check with -"):
	case len(n.items) > MaxChecks:
		p.complain(n, at, "", fmt.Sprintf("has %s, more than %d", activities.CountOf(len(n.items), "check"), MaxChecks),
			"put them into one program and check that")
	default:
		*c = decodeList[check](p, n, at)
	}
}

func (*checks) schema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "array", MaxItems: new(MaxChecks), Items: schemaOf(reflect.TypeFor[check]())}
}

var checkKinds = []string{"command", "json", "syntax", "http", "exists", "query"}

func (c *check) read(p *parser, n *node, at *trail) {
	if !p.decodeObject(n, at, c) {
		return
	}
	kinds := 0
	for _, f := range n.fields {
		if slices.Contains(checkKinds, f.key.text) {
			kinds++
		}
	}
	if kinds != 1 {
		p.complain(n, at, "", fmt.Sprintf("has %s of check; each item has one", activities.CountOf(kinds, "kind")),
			"write one of "+strings.Join(checkKinds, ", ")+", and a new item for another")
	}
	if (c.Query == "") != (c.Expect == nil) {
		p.complain(n, at, "", "has only one of query and expect",
			"write both: the statement, and the value that it must return")
	}
	if c.HTTP != nil && activities.When(c.When) == activities.Staged {
		p.complain(n.findValue("when"), at.key("when"), n.findValue("when").display(),
			"an address answers for what is live", "write when: live, or leave when out")
	}
	if c.Within > 0 && activities.When(c.When) == activities.Staged {
		p.complain(n.findValue("within"), at.key("within"), n.findValue("within").display(),
			"staged content does not change by waiting", "write when: live, or leave within out")
	}
}

func (*check) schema() *jsonschema.Schema {
	s := objectSchema(reflect.TypeFor[check]())
	s.Description = "A condition; exactly one of " + strings.Join(checkKinds, ", ") + "."
	s.DependentRequired = map[string][]string{"query": {"expect"}, "expect": {"query"}}
	for _, kind := range checkKinds {
		s.OneOf = append(s.OneOf, &jsonschema.Schema{Required: []string{kind}})
	}
	return s
}

func (c *command) read(p *parser, n *node, at *trail) {
	if !p.requireKind(n, at, list,
		`write the program and its arguments as a list: [sh, -c, "..."]; no shell stands between`) {
		return
	}
	const fix = "write the program and its arguments as a list"
	if len(n.items) == 0 {
		p.complain(n, at, n.display(), "names no program", fix)
	}
	for i, item := range n.items {
		s := p.readText(item, at.item(i), MaxFile)
		if i == 0 && item.kind == text && s == "" {
			p.complain(item, at.item(i), item.display(), "names no program", fix)
		}
		*c = append(*c, s)
	}
}

func (*command) schema() *jsonschema.Schema {
	return &jsonschema.Schema{
		Type: "array", MinItems: new(1), Items: &jsonschema.Schema{Type: "string"},
		PrefixItems: []*jsonschema.Schema{{Type: "string", MinLength: new(1)}},
	}
}

func (e *existsCheck) read(p *parser, n *node, at *trail) {
	if n.kind == text {
		p.decode(n, at, &e.Path)
		return
	}
	p.decodeObject(n, at, e)
}

func (*existsCheck) schema() *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{new(line).schema(),
		objectSchema(reflect.TypeFor[existsCheck]())}}
}

func (s *syntaxCheck) read(p *parser, n *node, at *trail) {
	if n.kind == text {
		p.decode(n, at, &s.Format)
		return
	}
	p.decodeObject(n, at, s)
}

func (*syntaxCheck) schema() *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{wordSchema(activities.Formats()),
		objectSchema(reflect.TypeFor[syntaxCheck]())}}
}

func (f *format) read(p *parser, n *node, at *trail) {
	*f = format(p.readWord(n, at, activities.Formats()...))
}
func (*format) schema() *jsonschema.Schema { return wordSchema(activities.Formats()) }

func (h *httpCheck) read(p *parser, n *node, at *trail) {
	if n.kind == text {
		p.decode(n, at, &h.URL)
	} else {
		p.decodeObject(n, at, h)
	}
	if h.URL != "" && !p.templated(&node{text: string(h.URL)}) && !urlForm.MatchString(string(h.URL)) {
		p.complain(n, at, strconv.Quote(clip(string(h.URL))), "must be a URL", "write it like http://127.0.0.1:8080/health")
	}
}

// urlForm only tells what is no URL at all: the worker reads the rest.
var urlForm = regexp.MustCompile(`^https?://[^/?#@]+(?:[/?#].*)?$`)

func (*httpCheck) schema() *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{new(line).schema(), objectSchema(reflect.TypeFor[httpCheck]())}}
}

func (s *httpStatus) read(p *parser, n *node, at *trail) {
	*s = httpStatus(p.readCount(n, at, 599, "write the status, as in 204"))
}
func (*httpStatus) schema() *jsonschema.Schema { return countSchema(599) }

func (l *anyValue) read(_ *parser, n *node, _ *trail) { *l = bytes.Clone(n.json(nil)) }
func (*anyValue) schema() *jsonschema.Schema          { return &jsonschema.Schema{} }
