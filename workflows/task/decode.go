package task

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"
)

// reader is a type of a task file that reads itself from a node, which is never nil, and notes what
// is wrong with it.
type reader interface {
	read(p *parser, n *node, at *trail)
}

// describer is a type of a task file that has a schema of its own.
type describer interface {
	schema() *jsonschema.Schema
}

// The values of the tag expressions.
const (
	varExpressions = "vars" // ${{ vars.NAME }}
	allExpressions = "all"  // also ${{ steps.ID.outputs.NAME }} and ${{ secrets.NAME }}
)

// property is a field of a struct in a task file; see file for its tags.
type property struct {
	index       int
	name        string
	required    bool
	description string
	preset      string
	expressions string
}

var propertiesByType sync.Map

// propertiesOf returns the fields of a struct type in their order.
func propertiesOf(t reflect.Type) []property {
	if known, ok := propertiesByType.Load(t); ok {
		return known.([]property)
	}
	var all []property
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() {
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		all = append(all, property{
			index: i, name: name, required: options == "", description: f.Tag.Get("jsonschema"),
			preset: f.Tag.Get("default"), expressions: f.Tag.Get("expressions"),
		})
	}
	propertiesByType.Store(t, all)
	return all
}

// expressionsIn says which expressions may stand in a field of a step; empty: none.
func expressionsIn(name string) string {
	for _, f := range propertiesOf(reflect.TypeFor[step]()) {
		if f.name == name {
			return f.expressions
		}
	}
	return ""
}

// decode reads n into what into points to. A nil node leaves it as it is.
func (p *parser) decode(n *node, at *trail, into any) {
	if n == nil {
		return
	}
	if r, ok := into.(reader); ok {
		r.read(p, n, at)
		return
	}
	v := reflect.ValueOf(into).Elem()
	if v.Kind() != reflect.Pointer {
		p.decodeObject(n, at, into)
		return
	}
	value := reflect.New(v.Type().Elem())
	p.decode(n, at, value.Interface())
	v.Set(value)
}

// decodeObject reads a map into the struct that into points to, and says whether n is one.
func (p *parser) decodeObject(n *node, at *trail, into any) bool {
	v := reflect.ValueOf(into).Elem()
	all := propertiesOf(v.Type())
	known := make([]string, len(all))
	for i, f := range all {
		known[i] = f.name
	}
	if !p.requireKind(n, at, object, "it has the fields "+strings.Join(known, ", ")) {
		return false
	}
	for _, f := range n.fields {
		i := slices.Index(known, f.key.text)
		if i < 0 {
			p.complain(f.key, at.key(f.key.text), "", "unknown field", suggestOrList(f.key.text, known, "known are"))
			continue
		}
		p.decode(f.value, at.key(f.key.text), v.Field(all[i].index).Addr().Interface())
	}
	for _, f := range all {
		if f.required && n.findValue(f.name) == nil {
			p.complain(n, at.key(f.name), "", "is missing", "add "+f.name+": "+f.hint())
		}
	}
	return true
}

// hint returns the first sentence of the description, to end another sentence with.
func (f property) hint() string {
	clause, _, _ := strings.Cut(strings.TrimSuffix(f.description, "."), ". ")
	return strings.ToLower(clause[:1]) + clause[1:]
}

// decodeList reads the items of a list.
func decodeList[T any](p *parser, n *node, at *trail) []T {
	items := make([]T, len(n.items))
	for i, item := range n.items {
		at := at.step(i, item.findValue("id"))
		if item.origin != nil {
			at = item.origin.at
		}
		p.decode(item, at, &items[i])
	}
	return items
}

// schemaOf returns the schema of a type. It mirrors decode; jsonschema.For would accept null for
// what is left out, which decode refuses.
func schemaOf(t reflect.Type) *jsonschema.Schema {
	if d, ok := reflect.TypeAssert[describer](reflect.New(t)); ok {
		return d.schema()
	}
	if t.Kind() == reflect.Pointer {
		return schemaOf(t.Elem())
	}
	return objectSchema(t)
}

// objectSchema returns the schema of a struct type.
func objectSchema(t reflect.Type) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{},
		AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}}}
	for _, f := range propertiesOf(t) {
		field := schemaOf(t.Field(f.index).Type)
		if f.expressions == varExpressions && field.Type == "string" {
			field = orExpression(field)
		}
		field.Description = f.description
		if f.preset != "" {
			field.Default = presetJSON(f.preset)
		}
		s.Properties[f.name] = field
		s.PropertyOrder = append(s.PropertyOrder, f.name)
		if f.required {
			s.Required = append(s.Required, f.name)
		}
	}
	return s
}

// presetJSON returns a default as JSON: a number or truth value as it is, all else as text.
func presetJSON(preset string) json.RawMessage {
	if scalarKind(preset) != text {
		return json.RawMessage(preset)
	}
	return appendText(nil, preset)
}
