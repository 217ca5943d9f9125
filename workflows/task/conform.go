package task

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"
)

// conformer compares parameters with their JSON Schema, and complains where they differ. A text
// that is partly an expression is text; one that is wholly a reference to an output may become
// anything.
type conformer struct {
	*parser
	// whole is false once something was skipped because its value is not known yet.
	whole bool
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func (c *conformer) checkValue(n *node, s *jsonschema.Schema, at *trail) {
	if s == nil {
		return
	}
	if isFalse(s) {
		c.complain(n, at, n.display(), "nothing may stand here", "take it out")
		return
	}
	plain := n
	if n.kind == text && strings.Contains(n.text, "${{") {
		t, _ := parseTemplate(n.text)
		literal, ok := t.plain()
		if !ok {
			c.whole = false
			if ref, whole := t.whole(); !whole || ref.kind == secretRef {
				c.checkType(n, s, at)
			}
			return
		}
		plain = &node{kind: text, line: n.line, column: n.column, text: literal}
	}
	if !c.checkType(plain, s, at) || !c.checkEnum(plain, s, at) {
		return
	}
	switch plain.kind {
	case text:
		c.checkText(plain, s, at)
	case number:
		c.checkNumber(plain, s, at)
	case list:
		c.checkItems(plain, s, at)
	case object:
		c.checkFields(plain, s, at)
	}
	for _, all := range s.AllOf {
		c.checkValue(n, all, at)
	}
}

// isFalse says whether s is the schema that nothing fits.
func isFalse(s *jsonschema.Schema) bool {
	return s.Not != nil && reflect.DeepEqual(s, &jsonschema.Schema{Not: &jsonschema.Schema{}})
}

var kindNames = map[string]string{
	"null": "nothing", "boolean": "true or false", "number": "a number", "integer": "a whole number",
	"string": "text", "array": "a list", "object": "a map",
}

func (c *conformer) checkType(n *node, s *jsonschema.Schema, at *trail) bool {
	types := s.Types
	if s.Type != "" {
		types = []string{s.Type}
	}
	if types == nil {
		return true
	}
	var wanted []string
	for _, t := range types {
		if n.hasType(t) {
			return true
		}
		if t != "null" || len(types) == 1 { // that it may be left out helps nobody
			wanted = append(wanted, kindNames[t])
		}
	}
	fix := ""
	switch {
	case n.kind == null:
		fix = "give it a value, or leave it out"
	case slices.Contains(types, "string") && (n.kind == number || n.kind == boolean):
		fix = `write it in quotes: "` + n.source + `"`
	case slices.Contains(types, "array") && n.kind != object:
		fix = "write it as a list: [...]"
	case n.kind == text && slices.ContainsFunc(types, (&node{kind: scalarKind(n.text), text: n.text}).hasType):
		fix = "write it without quotes"
	}
	c.complain(n, at, n.display(), "must be "+strings.Join(wanted, " or "), fix)
	return false
}

// scalarKind returns what a text would be without quotes.
func scalarKind(s string) kind {
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return number
	}
	if s == "true" || s == "false" {
		return boolean
	}
	return text
}

// hasType says whether n is of a type of JSON Schema.
func (n *node) hasType(t string) bool {
	switch t {
	case "integer":
		f, err := strconv.ParseFloat(n.text, 64)
		return n.kind == number && err == nil && f == math.Trunc(f)
	case "null":
		return n.kind == null
	case "boolean":
		return n.kind == boolean
	case "number":
		return n.kind == number
	case "string":
		return n.kind == text
	case "array":
		return n.kind == list
	}
	return n.kind == object
}

func (c *conformer) checkEnum(n *node, s *jsonschema.Schema, at *trail) bool {
	allowed := s.Enum
	if s.Const != nil {
		allowed = []any{*s.Const}
	}
	if allowed == nil {
		return true
	}
	own, _ := json.Marshal(n.value())
	var words []string
	for _, v := range allowed {
		raw, err := json.Marshal(v)
		if err == nil && bytes.Equal(raw, own) {
			return true
		}
		words = append(words, strings.Trim(string(raw), `"`))
	}
	c.complain(n, at, n.display(), "must be one of "+strings.Join(words, ", "), SuggestNearest(n.text, words))
	return false
}

func (c *conformer) checkText(n *node, s *jsonschema.Schema, at *trail) {
	size := utf8.RuneCountInString(n.text)
	c.checkLength(n, at, size, s.MinLength, s.MaxLength, "characters")
	if s.Pattern != "" {
		if form, err := regexp.Compile(s.Pattern); err == nil && !form.MatchString(n.text) {
			c.complain(n, at, n.display(), "must have the form "+s.Pattern, "")
		}
	}
}

func (c *conformer) checkLength(n *node, at *trail, size int, least, most *int, what string) {
	if least != nil && size < *least {
		c.complain(n, at, n.display(), fmt.Sprintf("must have at least %d %s", *least, what), "")
	}
	if most != nil && size > *most {
		c.complain(n, at, "", fmt.Sprintf("has %d %s, more than %d", size, what, *most), "")
	}
}

func (c *conformer) checkNumber(n *node, s *jsonschema.Schema, at *trail) {
	f, _ := strconv.ParseFloat(n.text, 64)
	for _, b := range []struct {
		limit *float64
		holds func(limit float64) bool
		words string
	}{
		{s.Minimum, func(l float64) bool { return f >= l }, "at least"},
		{s.Maximum, func(l float64) bool { return f <= l }, "at most"},
		{s.ExclusiveMinimum, func(l float64) bool { return f > l }, "more than"},
		{s.ExclusiveMaximum, func(l float64) bool { return f < l }, "less than"},
	} {
		if b.limit != nil && !b.holds(*b.limit) {
			c.complain(n, at, n.display(), fmt.Sprintf("must be %s %v", b.words, *b.limit), "")
		}
	}
}

func (c *conformer) checkItems(n *node, s *jsonschema.Schema, at *trail) {
	c.checkLength(n, at, len(n.items), s.MinItems, s.MaxItems, "items")
	for i, item := range n.items {
		c.checkValue(item, s.Items, at.item(i))
	}
}

func (c *conformer) checkFields(n *node, s *jsonschema.Schema, at *trail) {
	known := sortedKeys(s.Properties)
	for _, name := range s.Required {
		if n.findValue(name) == nil {
			fix := "add " + name
			if p := s.Properties[name]; p != nil && p.Description != "" {
				fix += ": " + p.Description
			}
			c.complain(n, at.key(name), "", "is missing", fix)
		}
	}
	for _, f := range n.fields {
		name := f.key.text
		if p, ok := s.Properties[name]; ok {
			c.checkValue(f.value, p, at.key(name))
			continue
		}
		rest := s.AdditionalProperties
		if rest != nil && isFalse(rest) && len(s.PatternProperties) == 0 {
			c.complain(f.key, at.key(name), "", "unknown parameter", suggestOrList(name, known, "known are"))
			c.noteReferences(f.value)
			continue
		}
		if len(s.PatternProperties) == 0 {
			c.checkValue(f.value, rest, at.key(name))
			if rest != nil {
				continue
			}
		}
		c.noteReferences(f.value)
	}
}

// noteReferences notes whether a value that is not checked holds references.
func (c *conformer) noteReferences(n *node) {
	n.mapText(func(n *node) *node {
		if t, _ := parseTemplate(n.text); c.whole {
			_, c.whole = t.plain()
		}
		return n
	})
}
