package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// Example is a change, and what the rules must decide about it.
type Example struct {
	Name   string         `yaml:"name"`
	Task   Task           `yaml:"task"`
	Step   Step           `yaml:"step"`
	With   map[string]any `yaml:"with"`
	Change Change         `yaml:"change"`
	// History is what the task has done before. Defaults to nothing.
	History History `yaml:"history"`
	// Time is when the step would act, as in 2026-01-05T12:00:00Z. Defaults to then, a Monday.
	Time string `yaml:"time"`
	Host string `yaml:"host"`
	// Want is the verdict, or none if no rule matches.
	Want string `yaml:"want"`
	// Rules are those that must have decided. Defaults to any.
	Rules []string `yaml:"rules"`
}

// none is what an example wants that no rule matches.
const none = "none"

// usualTime is when an example acts that does not say it.
var usualTime = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

var (
	risks      = []string{string(activities.Low), string(activities.Medium), string(activities.High)}
	strategies = []string{string(activities.Snapshot), string(activities.Transaction), string(activities.Compensation),
		string(activities.Irreversible), string(activities.NoUndo)}
	wants = []string{string(activities.Allows), string(activities.Asked), string(activities.Denies), none}
)

func (l *loader) checkExamples(examples []Example, p *Policy) {
	var names []string
	for _, r := range p.rules {
		names = append(names, r.name)
	}
	for _, e := range p.engines {
		names = append(names, e.rules()...)
	}
	for i, e := range examples {
		field := fmt.Sprintf("examples[%d]", i)
		if e.Name == "" {
			l.badf(field+".name", "it is missing; say in a few words what it shows")
		}
		l.checkOneOf(field+".want", e.Want, wants)
		if e.Change.Risk != "" {
			l.checkOneOf(field+".change.risk", e.Change.Risk, risks)
		}
		if e.Change.Strategy != "" {
			l.checkOneOf(field+".change.strategy", e.Change.Strategy, strategies)
		}
		if _, err := e.inputs(); err != nil {
			l.badf(field+".time", "%q must be a time, as in 2026-01-05T12:00:00Z", e.Time)
		}
		for j, name := range e.Rules {
			if !slices.Contains(names, name) {
				l.badf(fmt.Sprintf("%s.rules[%d]", field, j), "there is no rule %q; name one of this file", name)
			}
		}
	}
}

func (l *loader) checkOneOf(field, value string, known []string) {
	if slices.Contains(known, value) {
		return
	}
	fix := task.SuggestNearest(value, known)
	if fix == "" {
		fix = "it must be one of " + strings.Join(known, ", ")
	}
	l.badf(field, "%q is not known; %s", value, fix)
}

// inputs are what the rules see of the example. What it leaves out is harmless.
func (e Example) inputs() (inputs, error) {
	in := inputs{task: e.Task, step: e.Step, change: e.Change, time: usualTime, host: e.Host,
		history: func() (History, error) { return e.History, nil }}
	if e.Time != "" {
		at, err := time.Parse(time.RFC3339, e.Time)
		if err != nil {
			return in, err
		}
		in.time = at
	}
	if in.change.Added == 0 && in.change.Removed == 0 && in.change.Changed == 0 {
		in.change.sumUp()
	}
	if in.step.World == "" {
		in.step.World = activities.WorldOf(e.Step.Action)
	}
	if in.change.Risk == "" {
		in.change.Risk = string(activities.Low)
	}
	strategy := activities.Strategy(in.change.Strategy)
	isUndoable := strategy != activities.Irreversible && strategy != activities.NoUndo && !in.change.Unchanged
	if in.change.Horizon == 0 && isUndoable {
		in.change.Horizon = activities.DefaultKeep
	}
	raw, err := json.Marshal(e.With)
	if err != nil {
		return in, err
	}
	if e.With == nil {
		raw = nil
	}
	in.with, err = parametersOf(raw)
	return in, err
}

// Tried is what the rules have decided about an example.
type Tried struct {
	Example string
	// Wrong says what differs from what the example wants; empty if nothing does.
	Wrong string
	// Untried says why nothing can be told of it: an engine that gives no verdict.
	Untried string
}

// TryExamples has the rules decide about each example of the file.
func (p *Policy) TryExamples(ctx context.Context) (all []Tried) {
	for _, e := range p.examples {
		tried := Tried{Example: e.Name}
		if in, err := e.inputs(); err != nil {
			tried.Wrong = err.Error()
		} else {
			found := p.decide(ctx, in)
			tried.Wrong = e.compare(p.rule(found))
			if i := slices.IndexFunc(found, func(f finding) bool { return f.isUnanswered }); i >= 0 {
				tried.Wrong, tried.Untried = "", found[i].rule.Name+": "+found[i].rule.Why
			}
		}
		all = append(all, tried)
	}
	return all
}

// compare says how a ruling differs from what the example wants.
func (e Example) compare(r *activities.Ruling) string {
	verdict, by := none, ""
	var names []string
	if r != nil {
		verdict, by = string(r.Verdict), ", by "+r.Describe()
		for _, rule := range r.Rules {
			names = append(names, rule.Name)
		}
	}
	slices.Sort(names)
	wanted := slices.Sorted(slices.Values(e.Rules))
	switch {
	case verdict != e.Want:
		return fmt.Sprintf("it is %s%s, and should be %s", verdict, by, e.Want)
	case len(wanted) > 0 && !slices.Equal(names, wanted):
		return fmt.Sprintf("it is %s as it should be, but%s, and not by %s", verdict, by, strings.Join(wanted, ", "))
	}
	return ""
}
