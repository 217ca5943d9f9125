package policy

import (
	"context"
	"reflect"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
)

// engine is the door to policies that are not written here: it decides about the same inputs, and
// what it finds counts like the rules of the file.
type engine interface {
	// String names it, and its version where that is known.
	String() string
	// rules are the names that its findings can have.
	rules() []string
	// decide always comes to an end. What it cannot tell asks.
	decide(ctx context.Context, in inputs) []finding
	// sees reports whether it may look at an input, by its name as in "change.counts".
	sees(input string) bool
	// asks is what it finds where it could not decide.
	asks(why string) finding
}

// askEngine has an engine decide, unless it may look at what nobody can tell.
func askEngine(ctx context.Context, e engine, in inputs) []finding {
	var unknown []string
	for _, name := range in.unknown {
		if e.sees(name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return e.decide(ctx, in)
	}
	slices.Sort(unknown)
	return []finding{e.asks(unknownWhy + strings.Join(unknown, ", "))}
}

// tree is what other engines see of the inputs, by the names that rules have for them: maps, lists,
// texts, whole and other numbers, true and false, times and durations.
func (in inputs) tree(withHistory bool) (map[string]any, error) {
	seen := map[string]any{"task": treeOf(in.task), "step": treeOf(in.step), "with": in.with, "change": treeOf(in.change),
		"time": in.time, "host": in.host}
	if !withHistory {
		return seen, nil
	}
	h, err := in.past()
	seen["history"] = treeOf(h)
	return seen, err
}

func treeOf(value any) any {
	v := reflect.ValueOf(value)
	switch v.Kind() {
	case reflect.Struct:
		fields := map[string]any{}
		for field, of := range v.Fields() {
			fields[field.Tag.Get("yaml")] = treeOf(of.Interface())
		}
		return fields
	case reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = treeOf(v.Index(i).Interface())
		}
		return list
	case reflect.Map:
		fields := map[string]any{}
		for name, of := range v.Seq2() {
			fields[name.String()] = treeOf(of.Interface())
		}
		return fields
	default:
		return value
	}
}

// shown is a text of somebody else's as a gate shows it: in one line, and no longer than a rule's
// own.
func shown(text string) string { return cut(text, maxWhy) }

func cut(text string, limit int) string {
	text = activities.Visible(strings.Join(strings.Fields(text), " "))
	return strings.ToValidUTF8(text[:min(len(text), limit)], "")
}
