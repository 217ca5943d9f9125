package task

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// step is one of steps: as it is written.
type step struct {
	node    *node
	at      *trail
	id      string
	name    string
	uses    string
	with    *node   // nil: none
	needs   []*node // texts
	inOrder bool    // needs: is not there
	check   []activities.Check
	gate    gate
	retry   retry
	timeout time.Duration
	on      string
	undo    undo
	// onFailure is nil where the step does as the task says.
	onFailure *OnFailure
	savepoint string
	pivot     bool
}

type gate struct {
	mode  GateMode // empty: as the action's risk has it
	limit time.Duration
	why   string
}

type retry struct {
	attempts     int
	backoff, max time.Duration
}

type undo struct {
	within      time.Duration
	attempts    int
	drift       activities.DriftPolicy
	criticality activities.Criticality
}

const (
	usesPattern = `[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+`
	hostPattern = `[A-Za-z0-9][A-Za-z0-9._-]{0,252}`
)

var (
	idForm   = regexp.MustCompile(`^` + idPattern + `$`)
	usesForm = regexp.MustCompile(`^` + usesPattern + `$`)
	hostForm = regexp.MustCompile(`^` + hostPattern + `$`)
)

func (p *parser) steps(n *node) []step {
	at := p.at("steps")
	if !p.is(n, at, list, "begin each step with -") {
		return nil
	}
	if len(n.items) == 0 || len(n.items) > MaxSteps {
		p.add(n, at, "", fmt.Sprintf("has %d steps; a task has 1 to %d", len(n.items), MaxSteps), "split the task")
		return nil
	}
	steps := make([]step, len(n.items))
	for i, item := range n.items {
		steps[i] = p.step(item, at.item(i))
	}
	return steps
}

func (p *parser) step(n *node, at *trail) step {
	s := step{node: n, at: at}
	f := p.fields(n, at, "id", "name", "uses", "with", "needs", "check", "gate", "retry", "timeout", "on", "undo",
		"on_failure", "savepoint", "pivot")
	if f == nil {
		return s
	}
	if p.required(n, f, at, "id", "id: a short name for the step") {
		s.id = p.form(f["id"], at.key("id"), idForm, "must begin with a small letter and have at most 63 of a-z, 0-9, _ and -")
	}
	if p.required(n, f, at, "uses", "uses: the action, as in file.write") {
		s.uses = p.form(f["uses"], at.key("uses"), usesForm, "must be the name of an action, as in file.write")
	}
	s.name = p.line(f["name"], at.key("name"), MaxName)
	if p.is(f["with"], at.key("with"), object, "write a key and a value a line") {
		s.with = f["with"]
	}
	if s.inOrder = f["needs"] == nil; !s.inOrder && p.is(f["needs"], at.key("needs"), list, "write it as a list of ids: [build, test]; [] is none") {
		s.needs = f["needs"].items
	}
	s.check = p.checks(f["check"], at.key("check"))
	s.gate = p.gate(f["gate"], at.key("gate"))
	s.retry = p.retry(f["retry"], at.key("retry"))
	s.timeout = p.duration(f["timeout"], at.key("timeout"))
	s.on = p.form(f["on"], at.key("on"), hostForm, "must be the name of a host")
	s.undo = p.undo(f["undo"], at.key("undo"))
	s.onFailure = p.onFailure(f["on_failure"], at.key("on_failure"))
	s.savepoint = p.savepoint(f["savepoint"], at.key("savepoint"))
	s.pivot = p.boolean(f["pivot"], at.key("pivot"))
	return s
}

// form reads text of a form.
func (p *parser) form(n *node, at *trail, form *regexp.Regexp, message string) string {
	s := p.text(n, at, MaxFile)
	if n != nil && n.kind == text && !form.MatchString(s) && !p.templated(n) {
		p.add(n, at, n.shown(), message, "rename it")
	}
	return s
}

func (p *parser) checks(n *node, at *trail) []activities.Check {
	if !p.is(n, at, list, "begin each check with -") {
		return nil
	}
	if len(n.items) > MaxChecks {
		p.add(n, at, "", fmt.Sprintf("has %d checks, more than %d", len(n.items), MaxChecks), "put them into one program and check that")
		return nil
	}
	var checks []activities.Check
	for i, item := range n.items {
		checks = append(checks, p.check(item, at.item(i)))
	}
	return checks
}

func (p *parser) check(n *node, at *trail) activities.Check {
	var c activities.Check
	f := p.fields(n, at, "command", "json", "exists", "when")
	if f == nil {
		return c
	}
	kinds := len(f)
	if f["when"] != nil {
		c.When = activities.When(p.word(f["when"], at.key("when"), string(activities.Staged), string(activities.Live)))
		kinds--
	}
	if kinds != 1 {
		p.add(n, at, "", fmt.Sprintf("has %d kinds of check; each item has one", kinds), "write one of command, json, exists, and a new item for another")
		return c
	}
	if command := f["command"]; p.is(command, at.key("command"), list, `write the program and its arguments as a list: [sh, -c, "..."]; no shell stands between`) {
		c.Command = &activities.CommandCheck{Run: p.command(command, at.key("command"))}
	}
	if j := p.fields(f["json"], at.key("json"), "file", "at", "equals"); j != nil {
		c.JSON = p.jsonCheck(j, at.key("json"))
	}
	if exists := f["exists"]; exists != nil {
		c.Exists = &activities.ExistsCheck{}
		if at := at.key("exists"); exists.kind == text {
			c.Exists.Path = p.line(exists, at, MaxFile)
		} else if e := p.fields(exists, at, "path"); e != nil {
			c.Exists.Path = p.line(e["path"], at.key("path"), MaxFile)
		}
	}
	return c
}

func (p *parser) command(n *node, at *trail) (run []string) {
	if len(n.items) == 0 {
		p.add(n, at, n.shown(), "names no program", "write the program and its arguments as a list")
	}
	for i, item := range n.items {
		s := p.text(item, at.item(i), MaxFile)
		if i == 0 && item.kind == text && s == "" {
			p.add(item, at.item(i), item.shown(), "names no program", "write the program and its arguments as a list")
		}
		run = append(run, s)
	}
	return run
}

func (p *parser) jsonCheck(f map[string]*node, at *trail) *activities.JSONCheck {
	c := &activities.JSONCheck{}
	if f["file"] != nil {
		c.File = p.line(f["file"], at.key("file"), MaxFile)
	}
	if pointer := f["at"]; pointer != nil {
		c.At = p.text(pointer, at.key("at"), MaxFile)
		if pointer.kind == text && c.At != "" && !strings.HasPrefix(c.At, "/") && !p.templated(pointer) {
			p.add(pointer, at.key("at"), pointer.shown(), "must be a JSON Pointer", `write it like /server/port; "" is the whole document`)
		}
	}
	if f["equals"] != nil {
		c.Equals = bytes.Clone(f["equals"].json(nil))
	}
	return c
}

func (p *parser) gate(n *node, at *trail) gate {
	if n == nil {
		return gate{}
	}
	modes := []string{string(GateAsk), string(GateAuto), string(GateNone)}
	if n.kind != object {
		return gate{mode: GateMode(p.word(n, at, modes...))}
	}
	f := p.fields(n, at, "mode", "timeout", "why")
	g := gate{mode: GateAsk, limit: p.duration(f["timeout"], at.key("timeout")), why: p.line(f["why"], at.key("why"), MaxWhy)}
	if f["mode"] != nil {
		g.mode = GateMode(p.word(f["mode"], at.key("mode"), modes...))
	}
	return g
}

const howOften = "write how often it is tried, as in 3; 1 is no second try"

func (p *parser) retry(n *node, at *trail) retry {
	f := p.fields(n, at, "attempts", "backoff", "max")
	r := retry{
		attempts: p.count(f["attempts"], at.key("attempts"), MaxAttempts, howOften),
		backoff:  p.duration(f["backoff"], at.key("backoff")), max: p.duration(f["max"], at.key("max")),
	}
	if r.max > 0 && r.backoff > r.max {
		p.add(f["backoff"], at.key("backoff"), f["backoff"].shown(), "is longer than max", "raise max, or lower backoff")
	}
	return r
}

func (p *parser) undo(n *node, at *trail) undo {
	f := p.fields(n, at, "within", "attempts", "drift", "criticality")
	u := undo{
		within:   p.duration(f["within"], at.key("within")),
		attempts: p.count(f["attempts"], at.key("attempts"), MaxAttempts, howOften),
	}
	if f["drift"] != nil {
		u.drift = activities.DriftPolicy(p.word(f["drift"], at.key("drift"),
			string(activities.DriftAsk), string(activities.DriftForce), string(activities.DriftSkip)))
	}
	u.criticality = activities.Criticality(p.word(f["criticality"], at.key("criticality"), string(activities.Normal), string(activities.LowCritical)))
	return u
}
