package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/ext"

	"github.com/seed-62bf7108/unwind/activities"
)

// Task is the task of a step, as rules see it. The agent is a claim.
type Task struct {
	ID    string `yaml:"id"`
	Agent string `yaml:"agent"`
}

// Step is a step, as rules see it. Host is empty where any worker may run it.
type Step struct {
	ID     string `yaml:"id"`
	Action string `yaml:"action"`
	World  string `yaml:"world"`
	Host   string `yaml:"host"`
}

// Change is a change, as rules see it.
type Change struct {
	Summary  string `yaml:"summary"`
	Risk     string `yaml:"risk"`
	Strategy string `yaml:"strategy"`
	Undo     string `yaml:"undo"`
	// Horizon is for how long after the end of its task it can be undone, at most; 0 if not.
	Horizon time.Duration `yaml:"horizon"`
	Losses  []string      `yaml:"losses"`
	Facts   []string      `yaml:"facts"`
	Counts  []Count       `yaml:"counts"`
	// Added, Removed and Changed are the sums of Counts.
	Added     int64    `yaml:"added"`
	Removed   int64    `yaml:"removed"`
	Changed   int64    `yaml:"changed"`
	Schema    []string `yaml:"schema"`
	Keys      []string `yaml:"keys"`
	Unchanged bool     `yaml:"unchanged"`
	DiffBytes int64    `yaml:"diffBytes"`
}

// Count is how many items of a set come, go and change: see activities.Count.
type Count struct {
	Of      string `yaml:"of"`
	Added   int64  `yaml:"added"`
	Removed int64  `yaml:"removed"`
	Changed int64  `yaml:"changed"`
	Before  int64  `yaml:"before"`
}

// History is what a task has been let do before, on the host of the worker: see activities.History.
// By has the step's own action, whether it was done before or not.
type History struct {
	Steps   int64            `yaml:"steps"`
	By      map[string]int64 `yaml:"by"`
	Added   int64            `yaml:"added"`
	Removed int64            `yaml:"removed"`
	Changed int64            `yaml:"changed"`
}

// inputs are what a rule can look at.
type inputs struct {
	task   Task
	step   Step
	with   map[string]any
	change Change
	time   time.Time
	host   string
	// history is read if a rule looks at it.
	history func() (History, error)
	// unknown are those that cannot be told, by their names: "host", "change.counts".
	unknown []string
}

// environment is the language of the rules: a name or a field that there is not does not compile.
func environment() (*cel.Env, error) {
	return cel.NewEnv(
		ext.NativeTypes(reflect.TypeFor[Task](), reflect.TypeFor[Step](), reflect.TypeFor[Change](), reflect.TypeFor[Count](),
			reflect.TypeFor[History](), ext.ParseStructTag("yaml")),
		cel.Variable("task", cel.ObjectType("policy.Task")),
		cel.Variable("step", cel.ObjectType("policy.Step")),
		cel.Variable("with", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("change", cel.ObjectType("policy.Change")),
		cel.Variable("time", cel.TimestampType),
		cel.Variable("host", cel.StringType),
		cel.Variable("history", cel.ObjectType("policy.History")),
	)
}

// activation is what a rule sees of them.
func (in inputs) activation() any {
	seen := map[string]any{"task": in.task, "step": in.step, "with": in.with, "change": in.change, "time": in.time,
		"host": in.host, "history": func() any {
			h, err := in.past()
			if err != nil {
				return types.WrapErr(err)
			}
			return h
		}}
	if len(in.unknown) == 0 {
		return seen
	}
	var patterns []*cel.AttributePatternType
	for _, name := range in.unknown {
		of, field, isField := strings.Cut(name, ".")
		pattern := cel.AttributePattern(of)
		if isField {
			pattern = pattern.QualString(field)
		}
		patterns = append(patterns, pattern)
	}
	partial, err := cel.PartialVars(seen, patterns...)
	if err != nil {
		panic(err) // it is no map
	}
	return partial
}

// past is what the task has done before, with the step's own action in any case.
func (in inputs) past() (History, error) {
	h, err := in.history()
	if err != nil {
		return h, fmt.Errorf("what the task has done before cannot be read: %w", err)
	}
	h.By = maps.Clone(h.By)
	if h.By == nil {
		h.By = map[string]int64{}
	}
	h.By[in.step.Action] += 0
	return h, nil
}

func inputsOf(c activities.Case, host string, now time.Time) (inputs, error) {
	with, err := parametersOf(c.Step.With)
	return inputs{
		task: Task{c.Task, c.Agent}, with: with, change: changeOf(c.Change), time: now, host: host,
		history: func() (History, error) {
			h, err := c.History()
			return History(h), err
		},
		step: Step{ID: c.Step.ID, Action: c.Action, World: activities.WorldOf(c.Action), Host: c.Host},
	}, err
}

func changeOf(c activities.Change) Change {
	seen := Change{
		Summary: c.Summary, Risk: string(c.Risk), Strategy: string(c.Strategy), Undo: c.Undo, Horizon: c.Horizon,
		Losses: c.Losses,
		Facts:  c.Facts, Schema: c.Schema, Keys: c.Keys, Unchanged: c.Unchanged, DiffBytes: int64(len(c.Diff)),
	}
	for _, n := range c.Counts {
		seen.Counts = append(seen.Counts, Count(n))
	}
	seen.sumUp()
	return seen
}

func (c *Change) sumUp() {
	for _, n := range c.Counts {
		c.Added, c.Removed, c.Changed = c.Added+n.Added, c.Removed+n.Removed, c.Changed+n.Changed
	}
}

// parametersOf decodes the parameters of a step: whole numbers as such, however long.
func parametersOf(raw json.RawMessage) (map[string]any, error) {
	with := map[string]any{}
	if len(raw) == 0 {
		return with, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&with); err != nil {
		return nil, fmt.Errorf("parameters: %w", err)
	}
	return exactly(with).(map[string]any), nil
}

// exactly replaces numbers as they are written by values.
func exactly(value any) any {
	switch v := value.(type) {
	case json.Number:
		if whole, err := v.Int64(); err == nil {
			return whole
		}
		double, _ := v.Float64() // out of range it is infinite
		return double
	case map[string]any:
		for name, item := range v {
			v[name] = exactly(item)
		}
	case []any:
		for i, item := range v {
			v[i] = exactly(item)
		}
	}
	return value
}

// fieldsToSee names all that a rule can look at.
var fieldsToSee = func() string {
	names := []string{"with (the step's parameters)", "time", "host"}
	for name, kind := range map[string]reflect.Type{"task": reflect.TypeFor[Task](), "step": reflect.TypeFor[Step](),
		"change": reflect.TypeFor[Change](), "history": reflect.TypeFor[History]()} {
		for field := range kind.Fields() {
			names = append(names, name+"."+field.Tag.Get("yaml"))
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}()
