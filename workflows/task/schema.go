package task

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/seed-62bf7108/unwind/activities"
)

// m is an object of a JSON Schema.
type m = map[string]any

// Schema is the JSON Schema (draft 2020-12) of the task file, for editors to complete from: with the parameters of each
// action of specs, or, without specs, for any action. What fits it can still be refused: it knows nothing of what a step
// refers to.
func Schema(specs []activities.Spec) ([]byte, error) {
	step := stepSchema()
	if len(specs) > 0 {
		specs = slices.Clone(specs)
		slices.SortFunc(specs, func(a, b activities.Spec) int { return slices.Compare([]string{a.Name}, []string{b.Name}) })
		var names []string
		var rules []any
		for _, s := range specs {
			with, err := withSchema(s)
			if err != nil {
				return nil, err
			}
			names = append(names, s.Name)
			rules = append(rules, m{
				"if":   m{"properties": m{"uses": m{"const": s.Name}}, "required": []string{"uses"}},
				"then": with,
			})
		}
		step["properties"].(m)["uses"] = m{"description": "The action.", "type": "string", "enum": names}
		step["allOf"] = rules
	}
	return json.MarshalIndent(m{
		"$schema":              "https://json-schema.org/draft/2020-12/schema",
		"title":                "Unwind task",
		"description":          "What an agent sets out to do, step by step; undone as a whole if it fails.",
		"type":                 "object",
		"additionalProperties": false,
		"required":             []string{"name", "steps"},
		"properties": m{
			"$schema": m{"description": "Where an editor finds this schema.", "type": "string", "maxLength": MaxKey},
			"name":    describe(titleSchema, "What the task does, in a line."),
			"agent":   describe(titleSchema, "Who does it; shown and searchable."),
			"timeout": describe(durationSchema, "The task's deadline: when it passes, the task unwinds. Without one it takes as long as it takes."),
			"on_failure": m{
				"description": "What happens when a step fails that does not say: the task unwinds (the default), only that step is undone, or the task goes on.",
				"enum":        failureWords,
			},
			"unwind": m{"description": "How the task is undone: strictly the last step first (the default), or independent branches at once.", "enum": unwindWords},
			"keep":   describe(durationSchema, "How long the task can be rolled back after it is done. 1h where it is left out."),
			"pinned": m{"type": "boolean", "description": "Whether what rolling it back needs is kept for all of that time, however many newer records there are and however much it takes."},
			"vars": m{
				"description":   "Values that steps use as ${{ vars.NAME }}; a command line may override them.",
				"type":          "object",
				"propertyNames": m{"pattern": "^" + varPattern + "$"},
			},
			"steps": m{"description": "The steps, in order.", "type": "array", "minItems": 1, "maxItems": MaxSteps, "items": m{"$ref": "#/$defs/step"}},
		},
		"$defs": m{"step": step},
	}, "", "  ")
}

const (
	notEmpty      = `\S`
	hasExpression = `\$\{\{`
	noControl     = `^[^\x00-\x1f\x7f-\x9f]*$`
)

var (
	lineSchema  = m{"type": "string", "pattern": notEmpty, "allOf": []any{m{"pattern": noControl}}}
	titleSchema = m{"type": "string", "maxLength": MaxName, "pattern": notEmpty, "allOf": []any{m{"pattern": noControl}, m{"not": m{"pattern": hasExpression}}}}
	// The second pattern keeps out zero.
	durationSchema = m{"type": "string", "pattern": durationPattern, "allOf": []any{m{"pattern": "[1-9]"}}, "examples": []string{"30s", "2h", "3d"}}
)

// describe is a schema with a description.
func describe(schema m, description string) m {
	d := m{"description": description}
	maps.Copy(d, schema)
	return d
}

// strict is an object with these fields and no others.
func strict(description string, fields m) m {
	return m{"description": description, "type": "object", "additionalProperties": false, "properties": fields}
}

// orExpression is a text that has a pattern or holds an expression.
func orExpression(schema m) m {
	return m{"anyOf": []any{schema, m{"type": "string", "pattern": hasExpression}}}
}

func stepSchema() m {
	modes := []string{string(GateAsk), string(GateAuto), string(GateNone)}
	step := strict("One action, with its parameters, checks and gate.", m{
		"id":   m{"description": "A short name, for needs and for ${{ steps.ID.outputs.NAME }}.", "type": "string", "pattern": "^" + idPattern + "$"},
		"name": describe(orExpression(m{"type": "string", "maxLength": MaxName, "pattern": notEmpty, "allOf": []any{m{"pattern": noControl}}}), "A title for people."),
		"uses": m{"description": "The action.", "type": "string", "pattern": "^" + usesPattern + "$"},
		"with": m{"description": "The action's parameters.", "type": "object"},
		"needs": m{
			"description": "The steps that must be done first. Left out: all above. []: none.",
			"type":        "array", "items": m{"type": "string", "pattern": "^" + idPattern + "$"}, "uniqueItems": true,
		},
		"check": m{"description": "Conditions on what the step makes.", "type": "array", "maxItems": MaxChecks, "items": checkSchema()},
		"gate": m{"description": "When a person must approve: ask always, auto by the change's risk, none never.", "anyOf": []any{
			m{"enum": modes},
			strict("A gate with its limit and reason.", m{
				"mode":    m{"enum": modes, "default": string(GateAsk)},
				"timeout": describe(durationSchema, "How long it waits; then the step counts as rejected."),
				"why":     orExpression(m{"type": "string", "maxLength": MaxWhy, "pattern": notEmpty, "allOf": []any{m{"pattern": noControl}}}),
			}),
		}},
		"retry": strict("How often the step is tried, and how long it waits in between.", m{
			"attempts": m{"type": "integer", "minimum": 1, "maximum": MaxAttempts},
			"backoff":  describe(durationSchema, "The first wait; each further one is twice as long."),
			"max":      describe(durationSchema, "The longest wait."),
		}),
		"timeout": describe(durationSchema, "How long one attempt may take."),
		"on":      describe(orExpression(m{"type": "string", "pattern": "^" + hostPattern + "$"}), "The host that it runs on."),
		"undo": strict("How the step is undone.", m{
			"within":   describe(durationSchema, "How long the undo is tried before a person is asked."),
			"attempts": m{"description": "How often the undo is tried before a person is asked; as often as its time allows where it is left out.", "type": "integer", "minimum": 1, "maximum": MaxAttempts},
			"drift": m{
				"description": "What the undo does where somebody else has changed the thing since.",
				"enum":        []string{string(activities.DriftAsk), string(activities.DriftForce), string(activities.DriftSkip)},
			},
			"criticality": m{
				"description": "What becomes of the step where its undo fails for good: normal asks a person, low accepts it as it is and reports it.",
				"enum":        []string{string(activities.Normal), string(activities.LowCritical)},
			},
		}),
		"on_failure": m{
			"description": "What happens when the step has failed, its retries used up. As the task says where it is left out.",
			"anyOf":       []any{m{"enum": failureWords}, backSchema()},
		},
		"savepoint": m{"description": "A name for the place just before this step, to unwind to.", "type": "string", "pattern": "^" + idPattern + "$"},
		"pivot":     m{"description": "Once the step is done, the task no longer unwinds past it.", "type": "boolean"},
	})
	step["required"] = []string{"id", "uses"}
	return step
}

func backSchema() m {
	back := strict("Undo everything from a savepoint on, and do it again.", m{
		string(FailUnwindTo): m{"description": "A savepoint on this step or on one above it.", "type": "string", "pattern": "^" + idPattern + "$"},
		"times":              m{"description": "How often that is done; then the task unwinds. Once where it is left out.", "type": "integer", "minimum": 1, "maximum": MaxTimes},
	})
	back["required"] = []string{string(FailUnwindTo)}
	return back
}

func checkSchema() m {
	check := strict("A condition; exactly one of command, json and exists.", m{
		"when": m{"description": "On the staged content or on the live target.", "enum": []string{string(activities.Staged), string(activities.Live)}},
		"command": m{
			"description": "A program and its arguments, that must exit with 0; {path} is the checked file.",
			"type":        "array", "minItems": 1, "items": m{"type": "string"}, "prefixItems": []any{m{"type": "string", "minLength": 1}},
		},
		"json": strict("What stands in a JSON file.", m{
			"file":   describe(lineSchema, "The file; the step's own target where it is left out."),
			"at":     m{"description": "A JSON Pointer.", "type": "string", "pattern": `^$|^/|` + hasExpression},
			"equals": m{"description": "The value that must stand there; any where it is left out."},
		}),
		"exists": m{"description": "A path that must be there.", "anyOf": []any{
			lineSchema,
			strict("A path; the step's own target where it is left out.", m{"path": lineSchema}),
		}},
	})
	check["oneOf"] = []any{m{"required": []string{"command"}}, m{"required": []string{"json"}}, m{"required": []string{"exists"}}}
	return check
}

// withSchema is what holds of a step that uses an action.
func withSchema(s activities.Spec) (m, error) {
	a, err := newAction(s)
	if err != nil {
		return nil, err
	}
	if len(s.Params) == 0 {
		return m{"description": s.Summary}, nil
	}
	var params any
	if err := json.Unmarshal(s.Params, &params); err != nil {
		return nil, fmt.Errorf("action %s: %w", s.Name, err)
	}
	if refers(params) {
		return nil, fmt.Errorf("action %s: its parameters' schema has a $ref, which cannot be moved into another schema; write it out", s.Name)
	}
	then := m{"description": s.Summary, "properties": m{"with": orReference(a.params, params, true)}}
	if len(a.params.Required) > 0 {
		then["required"] = []string{"with"}
	}
	return then, nil
}

func refers(schema any) bool {
	switch v := schema.(type) {
	case m:
		for name, below := range v {
			if name == "$ref" || name == "$dynamicRef" || refers(below) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, refers)
	}
	return false
}

// orReference is a schema of parameters that takes expressions too, wherever a value may stand. raw is s as JSON.
func orReference(s *jsonschema.Schema, raw any, root bool) any {
	object, ok := raw.(m)
	if !ok || s == nil {
		return raw
	}
	schema := m{}
	maps.Copy(schema, object)
	if properties, ok := object["properties"].(m); ok {
		wrapped := m{}
		for name, p := range properties {
			wrapped[name] = orReference(s.Properties[name], p, false)
		}
		schema["properties"] = wrapped
	}
	if s.Items != nil {
		schema["items"] = orReference(s.Items, object["items"], false)
	}
	if s.AdditionalProperties != nil {
		schema["additionalProperties"] = orReference(s.AdditionalProperties, object["additionalProperties"], false)
	}
	if root || len(object) == 0 {
		return schema
	}
	return m{"anyOf": []any{schema, m{"type": "string", "pattern": hasExpression}}}
}
