package task

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
)

// Problem is one thing that is wrong with a task file.
type Problem struct {
	// File is empty where positions mean nothing: the document came as JSON, and not as a person wrote
	// it.
	File string `json:"file"`
	// Line and Column are those of the value, or of what it is missing from; both count from 1,
	// columns in characters.
	Line   int `json:"line"`
	Column int `json:"column"`
	// Field says where in the document: steps.configure.with.path; empty for the whole of it.
	Field string `json:"field,omitempty"`
	// Value is what was found, as a message shows it; empty where something is missing.
	Value string `json:"value,omitempty"`
	// Message says what is wrong, and Fix the way out.
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
}

func (p Problem) Error() string {
	var b strings.Builder
	if p.File != "" {
		fmt.Fprintf(&b, "%s:%d:%d: ", p.File, p.Line, p.Column)
	}
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	b.WriteString(p.Message)
	if p.Value != "" {
		b.WriteString(", found " + p.Value)
	}
	if p.Fix != "" {
		b.WriteString("; " + p.Fix)
	}
	return b.String()
}

// Problems is the error of Parse and Compile: all problems in file order, at most MaxProblems and a
// last one that counts the others.
type Problems []Problem

// Error has a line for each problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.Error()
	}
	return strings.Join(lines, "\n")
}

// WithoutPositions returns the problems without a file, for those who have it in another form.
func (p Problems) WithoutPositions() Problems {
	all := slices.Clone(p)
	for i := range all {
		all[i].File = ""
	}
	return all
}

// collector gathers problems of one file.
type collector struct {
	file     string
	problems *Problems
}

// maxKept bounds the problems that are kept of a file that is wrong throughout.
const maxKept = 10 * MaxProblems

func (c collector) complain(at *node, field *trail, value, message, fix string) {
	if c.full() {
		return
	}
	p := Problem{File: c.file, Line: 1, Column: 1, Field: field.String(), Value: value, Message: message, Fix: fix}
	if at != nil && at.line > 0 {
		p.Line, p.Column = at.line, at.column
	}
	*c.problems = append(*c.problems, p)
}

// full says whether no further problem is kept.
func (c collector) full() bool { return len(*c.problems) >= maxKept }

// err returns the problems as Problems, or nil.
func (c collector) err() error {
	all := *c.problems
	if len(all) == 0 {
		return nil
	}
	slices.SortStableFunc(all, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	all = slices.CompactFunc(all, func(a, b Problem) bool { return a == b })
	if more := len(all) - MaxProblems; more > 0 {
		last, least := all[MaxProblems], ""
		if c.full() {
			least = "at least "
		}
		all = append(all[:MaxProblems:MaxProblems], Problem{
			File: last.File, Line: last.Line, Column: last.Column,
			Message: fmt.Sprintf("and %s%s more", least, activities.CountOf(more, "problem")),
		})
	}
	return all
}

// suggestOrList returns "did you mean ...?" if a known word is near the one that was written, else
// a list of all known.
func suggestOrList(written string, known []string, what string) string {
	switch near := SuggestNearest(written, known); {
	case near != "":
		return near
	case len(known) == 0:
		return what + ": none"
	case len(known) > 30:
		return fmt.Sprintf("%s: %s and %d more", what, strings.Join(known[:30], ", "), len(known)-30)
	}
	return what + ": " + strings.Join(known, ", ")
}

// SuggestNearest returns "did you mean ...?", or nothing.
func SuggestNearest(written string, known []string) string {
	best, distance := "", min(3, (len(written)+1)/3)+1
	for _, k := range known {
		if d := editDistance(strings.ToLower(written), strings.ToLower(k), distance); d < distance {
			best, distance = k, d
		}
	}
	if best == "" {
		return ""
	}
	return "did you mean " + best + "?"
}

// editDistance counts the characters to insert, delete, change or swap to turn a into b, up to
// limit. A swap of neighbours, the commonest slip, is one edit; the usual Levenshtein packages
// count it as two.
func editDistance(a, b string, limit int) int {
	if len(a) > len(b)+limit || len(b) > len(a)+limit {
		return limit
	}
	var before []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := make([]int, len(b)+1)
		next[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next[j] = min(row[j]+1, next[j-1]+1, row[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}
