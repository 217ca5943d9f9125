package task

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/seed-62bf7108/unwind/activities"
)

// Schema returns the JSON Schema (draft 2020-12) of the task file, for editors: with the parameters
// of each action of specs, or, without specs, for any action. What fits it can still be refused,
// since it cannot check references.
func Schema(specs []activities.Spec) (*jsonschema.Schema, error) {
	step := objectSchema(reflect.TypeFor[step]())
	step.Description = "One action, with its parameters, checks and gate."
	if len(specs) > 0 {
		specs = slices.Clone(specs)
		slices.SortFunc(specs, func(a, b activities.Spec) int { return strings.Compare(a.Name, b.Name) })
		uses := &jsonschema.Schema{Description: step.Properties["uses"].Description, Type: "string"}
		step.Properties["uses"] = uses
		for _, s := range specs {
			rule, err := stepSchema(s)
			if err != nil {
				return nil, err
			}
			uses.Enum = append(uses.Enum, s.Name)
			step.AllOf = append(step.AllOf, &jsonschema.Schema{
				If: &jsonschema.Schema{Properties: map[string]*jsonschema.Schema{"uses": {Const: new(any(s.Name))}},
					Required: []string{"uses"}},
				Then: rule,
			})
		}
	}
	root := objectSchema(reflect.TypeFor[file]())
	root.Schema = "https://json-schema.org/draft/2020-12/schema"
	root.Title = "Unwind task"
	root.Description = "What an agent sets out to do, step by step; undone as a whole if it fails."
	root.Defs = map[string]*jsonschema.Schema{"step": step, "group": groupSchema()}
	return root, nil
}

// stepSchema returns what must hold of a step that uses an action.
func stepSchema(s activities.Spec) (*jsonschema.Schema, error) {
	a, err := newAction(s)
	if err != nil {
		return nil, err
	}
	if refers(s.Params) {
		return nil, fmt.Errorf(
			"action %s: its parameters' schema has a $ref, which cannot be moved into another schema; write it out", s.Name)
	}
	rule := &jsonschema.Schema{Description: s.Summary,
		Properties: map[string]*jsonschema.Schema{"with": orReference(a.params, true)}}
	if len(a.params.Required) > 0 {
		rule.Required = []string{"with"}
	}
	return rule, nil
}

func refers(schema []byte) bool {
	return bytes.Contains(schema, []byte(`"$ref"`)) || bytes.Contains(schema, []byte(`"$dynamicRef"`))
}

// orReference returns a schema of parameters that accepts an expression in place of any value.
func orReference(s *jsonschema.Schema, root bool) *jsonschema.Schema {
	if s == nil || isFalse(s) {
		return s
	}
	wrapped := *s
	wrapped.Properties = nil
	for name, p := range s.Properties {
		if wrapped.Properties == nil {
			wrapped.Properties = map[string]*jsonschema.Schema{}
		}
		wrapped.Properties[name] = orReference(p, false)
	}
	wrapped.Items = orReference(s.Items, false)
	wrapped.AdditionalProperties = orReference(s.AdditionalProperties, false)
	if root || reflect.DeepEqual(s, &jsonschema.Schema{}) {
		return &wrapped
	}
	return orExpression(&wrapped)
}
