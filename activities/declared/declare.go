package declared

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
)

// Tools are what a world can call, by name. It says what it calls one in its messages.
type Tools map[string]Tool

// Tool is what a call of one tool does: it only reads, has an inverse, or is irreversible. It is
// kept in the record of a call.
type Tool struct {
	// Reads means that it changes nothing.
	Reads bool `yaml:"reads" json:"reads,omitempty"`
	// Irreversible means that it cannot be undone, as if it were not declared.
	Irreversible bool `yaml:"irreversible" json:"irreversible,omitempty"`
	// Look reads what the call changes: before it, after it, and at its undo.
	Look *Look `yaml:"look" json:"look,omitempty"`
	// Happened is a part of what the look sees once the call has happened: it tells so if the answer
	// is lost.
	Happened map[string]any `yaml:"happened" json:"happened,omitempty"`
	// Undo are inverses: the first whose When holds is called.
	Undo []Inverse `yaml:"undo" json:"undo,omitempty"`
	// ErrorsChangeNothing means that a call that ends in an error has changed nothing. Without it, and
	// without a look, the outcome of such a call is unknown.
	ErrorsChangeNothing bool `yaml:"errorsChangeNothing" json:"errorsChangeNothing,omitempty"`
	// Losses are what an undo does not bring back.
	Losses []string `yaml:"losses" json:"losses,omitempty"`
}

// Look is a call that only reads.
type Look struct {
	Tool string         `yaml:"tool" json:"tool"`
	With map[string]any `yaml:"with" json:"with,omitempty"`
	// Absent is a regular expression. An error whose text matches it means that there is nothing.
	Absent string `yaml:"absent" json:"absent,omitempty"`
	// Match is a regular expression with named groups. Only what they hold is compared, as match.NAME.
	Match string `yaml:"match" json:"match,omitempty"`
}

// Inverse is a call that takes another back.
type Inverse struct {
	// When is a part of what the look saw before the call. Defaults to anything.
	When map[string]any `yaml:"when" json:"when,omitempty"`
	Tool string         `yaml:"tool" json:"tool"`
	With map[string]any `yaml:"with" json:"with,omitempty"`
	// Done is a regular expression. An error whose text matches it means that there is nothing left to
	// undo.
	Done string `yaml:"done" json:"done,omitempty"`
	// Losses are what this inverse does not bring back, besides those of the tool.
	Losses []string `yaml:"losses" json:"losses,omitempty"`
}

// Validate reports every fault; noun is what a tool is called, as in the section NOUNs.
func (all Tools) Validate(noun string) error {
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(all)) {
		all.check(noun, all[name], func(field, format string, args ...any) {
			problems = append(problems, fmt.Errorf("%ss.%s%s: "+format, append([]any{noun, name, field}, args...)...))
		})
	}
	return errors.Join(problems...)
}

func (all Tools) check(noun string, t Tool, bad func(field, format string, args ...any)) {
	kinds := 0
	for _, is := range []bool{t.Reads, t.Irreversible, len(t.Undo) > 0} {
		if is {
			kinds++
		}
	}
	if kinds != 1 {
		bad("", "write exactly one of reads: true, irreversible: true and undo")
	}
	if t.Look != nil {
		checkPattern(t.Look.Absent, ".look.absent", bad)
		if names := checkPattern(t.Look.Match, ".look.match", bad); t.Look.Match != "" && len(names) == 0 {
			bad(".look.match", "%q has no named group; write one, as in (?P<name>...)", t.Look.Match)
		}
		if !all[t.Look.Tool].Reads {
			bad(".look."+noun, "%q is not declared as a %s that reads; add %ss.%s: {reads: true}", t.Look.Tool, noun, noun,
				t.Look.Tool)
		}
		checkTemplate(t.Look.With, ".look.with", bad, "arguments", "result")
	}
	if len(t.Happened) > 0 && t.Look == nil {
		bad(".happened", "it is compared with what the look sees; declare a look")
	}
	checkTemplate(t.Happened, ".happened", bad, "arguments")
	for i, inverse := range t.Undo {
		field := fmt.Sprintf(".undo[%d]", i)
		roots := []string{"arguments", "result", "token"}
		if t.Look != nil {
			roots = append(roots, "left")
			if !t.Look.IsOfResult() {
				roots = append(roots, "before")
			}
		}
		if inverse.Tool == "" {
			bad(field+"."+noun, "name the %s that takes the call back", noun)
		}
		if len(inverse.When) > 0 && (t.Look == nil || t.Look.IsOfResult()) {
			bad(field+".when", "it compares with a look that needs only the arguments; declare one")
		}
		checkPattern(inverse.Done, field+".done", bad)
		checkTemplate(inverse.With, field+".with", bad, roots...)
	}
}

// Warnings name the looks that nothing ties to the call: they may show the same before and after
// it, and then they prove nothing.
func (all Tools) Warnings(noun string) (warnings []string) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t := all[name]
		if len(t.Undo) > 0 && t.Look != nil && len(t.Happened) == 0 && len(rootsIn(t.Look.With)) == 0 {
			warnings = append(warnings,
				fmt.Sprintf("%ss.%s.look: %s is asked the same for every call, and no happened says what it shows after one; "+
					"where it shows no change, an undo counts as compensated at best: refer to the arguments, or declare happened",
					noun, name, t.Look.Tool))
		}
	}
	return warnings
}

// IsOfResult reports whether the look needs the result of the call: then nothing was there before
// it.
func (l *Look) IsOfResult() bool { return slices.Contains(rootsIn(l.With), "result") }

func checkPattern(pattern, field string, bad func(field, format string, args ...any)) (names []string) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		bad(field, "%v", err)
		return nil
	}
	return slices.DeleteFunc(re.SubexpNames(), func(name string) bool { return name == "" })
}

func checkTemplate(template any, field string, bad func(field, format string, args ...any), allowed ...string) {
	for _, text := range brokenIn(template) {
		bad(field, "%q: ${{ is not the start of an expression; write ${{ ROOT.FIELD }}", text)
	}
	for _, root := range rootsIn(template) {
		if !slices.Contains(allowed, root) {
			bad(field, "${{ %s }} is not known here; there are: %v", root, allowed)
		}
	}
}
