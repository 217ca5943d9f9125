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

// conformer compares parameters with their JSON Schema, and says where they differ. A text that is partly an expression
// is text; one that is wholly a reference to an output may become anything.
type conformer struct {
	*parser
	// whole says that nothing was left out because it is not known yet.
	whole bool
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func (c *conformer) conform(n *node, s *jsonschema.Schema, at *trail) {
	if s == nil {
		return
	}
	if isFalse(s) {
		c.add(n, at, n.shown(), "nothing may stand here", "take it out")
		return
	}
	plain := n
	if n.kind == text && strings.Contains(n.text, "${{") {
		t, _ := parseTemplate(n.text)
		literal, ok := t.plain()
		if !ok {
			c.whole = false
			if ref, whole := t.whole(); !whole || ref.kind == secretRef {
				c.kind(n, s, at)
			}
			return
		}
		plain = &node{kind: text, line: n.line, column: n.column, text: literal}
	}
	if !c.kind(plain, s, at) || !c.enum(plain, s, at) {
		return
	}
	switch plain.kind {
	case text:
		c.text(plain, s, at)
	case number:
		c.number(plain, s, at)
	case list:
		c.list(plain, s, at)
	case object:
		c.object(plain, s, at)
	}
	for _, all := range s.AllOf {
		c.conform(n, all, at)
	}
}

// isFalse says that nothing fits s.
func isFalse(s *jsonschema.Schema) bool {
	return s.Not != nil && reflect.DeepEqual(s, &jsonschema.Schema{Not: &jsonschema.Schema{}})
}

var kindNames = map[string]string{
	"null": "nothing", "boolean": "true or false", "number": "a number", "integer": "a whole number",
	"string": "text", "array": "a list", "object": "a map",
}

// kind checks the type of n.
func (c *conformer) kind(n *node, s *jsonschema.Schema, at *trail) bool {
	types := s.Types
	if s.Type != "" {
		types = []string{s.Type}
	}
	if types == nil {
		return true
	}
	var wanted []string
	for _, t := range types {
		if n.is(t) {
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
	case n.kind == text && slices.ContainsFunc(types, (&node{kind: scalarKind(n.text), text: n.text}).is):
		fix = "write it without quotes"
	}
	c.add(n, at, n.shown(), "must be "+strings.Join(wanted, " or "), fix)
	return false
}

// scalarKind is what a text would be without quotes.
func scalarKind(s string) kind {
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return number
	}
	if s == "true" || s == "false" {
		return boolean
	}
	return text
}

// is says whether n is of a type of JSON Schema.
func (n *node) is(t string) bool {
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

func (c *conformer) enum(n *node, s *jsonschema.Schema, at *trail) bool {
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
	c.add(n, at, n.shown(), "must be one of "+strings.Join(words, ", "), nearest(n.text, words))
	return false
}

func (c *conformer) text(n *node, s *jsonschema.Schema, at *trail) {
	size := utf8.RuneCountInString(n.text)
	c.bound(n, at, size, s.MinLength, s.MaxLength, "characters")
	if s.Pattern != "" {
		if form, err := regexp.Compile(s.Pattern); err == nil && !form.MatchString(n.text) {
			c.add(n, at, n.shown(), "must have the form "+s.Pattern, "")
		}
	}
}

func (c *conformer) bound(n *node, at *trail, size int, least, most *int, what string) {
	if least != nil && size < *least {
		c.add(n, at, n.shown(), fmt.Sprintf("must have at least %d %s", *least, what), "")
	}
	if most != nil && size > *most {
		c.add(n, at, "", fmt.Sprintf("has %d %s, more than %d", size, what, *most), "")
	}
}

func (c *conformer) number(n *node, s *jsonschema.Schema, at *trail) {
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
			c.add(n, at, n.shown(), fmt.Sprintf("must be %s %v", b.words, *b.limit), "")
		}
	}
}

func (c *conformer) list(n *node, s *jsonschema.Schema, at *trail) {
	c.bound(n, at, len(n.items), s.MinItems, s.MaxItems, "items")
	for i, item := range n.items {
		c.conform(item, s.Items, at.item(i))
	}
}

func (c *conformer) object(n *node, s *jsonschema.Schema, at *trail) {
	known := sortedKeys(s.Properties)
	for _, name := range s.Required {
		if n.get(name) == nil {
			fix := "add " + name
			if p := s.Properties[name]; p != nil && p.Description != "" {
				fix += ": " + p.Description
			}
			c.add(n, at.key(name), "", "is missing", fix)
		}
	}
	for _, f := range n.fields {
		name := f.key.text
		if p, ok := s.Properties[name]; ok {
			c.conform(f.value, p, at.key(name))
			continue
		}
		rest := s.AdditionalProperties
		if rest != nil && isFalse(rest) && len(s.PatternProperties) == 0 {
			c.add(f.key, at.key(name), "", "unknown parameter", meant(name, known, "known are"))
			c.skip(f.value)
			continue
		}
		if len(s.PatternProperties) == 0 {
			c.conform(f.value, rest, at.key(name))
			if rest != nil {
				continue
			}
		}
		c.skip(f.value)
	}
}

// skip notes whether a value that is not looked at holds references.
func (c *conformer) skip(n *node) {
	n.mapText(func(n *node) *node {
		if t, _ := parseTemplate(n.text); c.whole {
			_, c.whole = t.plain()
		}
		return n
	})
}
