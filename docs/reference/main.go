// Command reference writes docs/task-file-reference.md from the types of the task file and the
// specs of the built-in actions, and these specs into worker/catalog. Run it from the root of the
// repository after a change of either:
//
//	go run ./docs/reference
package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

func main() {
	host.Hooks()
	if err := writeFiles(); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

func writeFiles() error {
	specs, err := host.Specs(nil)
	if err != nil {
		return fmt.Errorf("list the actions: %w", err)
	}
	for name, content := range files {
		text, err := content(specs)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// files are what is written, by their names in the repository.
var files = map[string]func([]activities.Spec) (string, error){
	"docs/task-file-reference.md": page, "worker/catalog/catalog.json": catalog,
}

// catalog is the specs as JSON.
func catalog(specs []activities.Spec) (string, error) {
	raw, err := json.MarshalIndent(specs, "", "\t")
	return string(raw) + "\n", err
}

const introduction = `# Task file reference

Every field of a task file, and every built-in action. [task-file.md](task-file.md) explains how to use them.

<!-- Written by "go run ./docs/reference": edit workflows/task/file.go, or the Spec of the action, and run it again. -->
`

// page is the whole reference as Markdown.
func page(specs []activities.Spec) (string, error) {
	root, err := task.Schema(nil)
	if err != nil {
		return "", fmt.Errorf("derive the schema: %w", err)
	}

	var w writer
	w.WriteString(introduction)
	w.fields("The task", root)
	w.fields("A step", root.Defs["step"])
	w.nested("", root.Defs["step"])
	w.fields("A group", root.Defs["group"])
	w.WriteString("\n## Actions\n")
	for _, s := range specs {
		if err := w.action(s); err != nil {
			return "", err
		}
	}
	return w.String(), nil
}

type writer struct{ strings.Builder }

func (w *writer) printf(format string, args ...any) { fmt.Fprintf(w, format, args...) }

// fields writes a section with a row for each property of an object.
func (w *writer) fields(heading string, object *jsonschema.Schema) {
	w.printf("\n## %s\n\n| field | value | default | meaning |\n|---|---|---|---|\n", heading)
	for _, name := range object.PropertyOrder {
		field := object.Properties[name]
		preset := ""
		switch {
		case slices.Contains(object.Required, name):
			preset = "required"
		case field.Default != nil:
			preset = code(strings.Trim(string(field.Default), `"`))
		}
		w.printf("| `%s` | %s | %s | %s |\n", name, valueOf(field), preset, cell(field.Description))
	}
}

// nested writes a section for each map inside an object, under the path of its field.
func (w *writer) nested(path string, object *jsonschema.Schema) {
	for _, name := range object.PropertyOrder {
		if inner := mapIn(object.Properties[name]); inner != nil {
			w.fields(code(path+name), inner)
			w.nested(path+name+".", inner)
		}
	}
}

// mapIn is the schema of the map that a field holds, itself, as an alternative or as an item; nil
// where it has none.
func mapIn(s *jsonschema.Schema) *jsonschema.Schema {
	switch {
	case len(s.Properties) > 0:
		return s
	case s.Items != nil:
		return mapIn(s.Items)
	}
	for _, alternative := range s.AnyOf {
		if inner := mapIn(alternative); inner != nil {
			return inner
		}
	}
	return nil
}

// valueOf says what may stand in a field.
func valueOf(s *jsonschema.Schema) string {
	switch {
	case len(s.AnyOf) > 0:
		var all []string
		for _, alternative := range s.AnyOf {
			all = append(all, valueOf(alternative))
		}
		return strings.Join(all, ", or ")
	case len(s.Enum) > 0:
		var all []string
		for _, word := range s.Enum {
			all = append(all, code(fmt.Sprint(word)))
		}
		return strings.Join(all, ", ")
	case s.Type == "integer" && s.Minimum != nil && s.Maximum != nil:
		return fmt.Sprintf("%v to %v", *s.Minimum, *s.Maximum)
	case s.Type == "string" && len(s.Examples) > 0:
		return fmt.Sprintf("a time, as in `%v`", s.Examples[0])
	case s.Type == "string" && s.Pattern == `\$\{\{`:
		return "text with an expression"
	case s.Type == "boolean":
		return "`true` or `false`"
	case s.Type == "array":
		return "a list"
	case s.Type == "object":
		return "a map"
	case s.Type == "string":
		return "text"
	}
	return "any"
}

func (w *writer) action(s activities.Spec) error {
	w.printf("\n### %s\n\n%s\n\n", s.Name, sentence(s.Summary))
	w.printf("- Risk: %s\n- Undo (%s): %s\n", s.Risk, s.Strategy, sentence(cmp.Or(s.Undo, "nothing takes it back")))
	if s.Redo != "" {
		w.printf("- Redo: %s\n", sentence(s.Redo))
	}
	if s.Reset != "" {
		w.printf("- Reset: %s\n", sentence(s.Reset))
	}
	if s.HostBound {
		w.printf("- Runs on one host: the one that `on:` names, else that of the worker that compiles the task.\n")
	}
	params := new(jsonschema.Schema)
	if err := params.UnmarshalJSON(s.Params); err != nil {
		return fmt.Errorf("parameters of %s: %w", s.Name, err)
	}
	if len(params.Properties) > 0 {
		w.printf("\n| parameter | value | | meaning |\n|---|---|---|---|\n")
		w.params("", params)
	}
	if len(s.Outputs) > 0 {
		w.printf("\n| output | meaning |\n|---|---|\n")
		for _, name := range slices.Sorted(maps.Keys(s.Outputs)) {
			w.printf("| `%s` | %s |\n", name, cell(s.Outputs[name]))
		}
	}
	return nil
}

// params writes a row for each parameter, those inside of others below them.
func (w *writer) params(path string, s *jsonschema.Schema) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p, need := s.Properties[name], ""
		if slices.Contains(s.Required, name) {
			need = "required"
		}
		w.printf("| `%s%s` | %s | %s | %s |\n", path, name, typeOf(p), need, cell(p.Description))
		if len(p.Properties) > 0 {
			w.params(path+name+".", p)
		}
		if p.Items != nil {
			w.params(path+name+"[].", p.Items)
		}
	}
}

// typeOf is the type of a parameter in words.
func typeOf(s *jsonschema.Schema) string {
	if len(s.Enum) > 0 {
		return valueOf(s)
	}
	words := map[string]string{"string": "text", "integer": "whole number", "number": "number",
		"boolean": "`true` or `false`", "array": "list", "object": "map"}
	types := s.Types
	if s.Type != "" {
		types = []string{s.Type}
	}
	for _, t := range types {
		if t != "null" {
			return words[t]
		}
	}
	return "any"
}

func code(s string) string { return "`" + s + "`" }

// cell is a text that stands in a table.
func cell(s string) string { return strings.ReplaceAll(sentence(s), "|", `\|`) }

// sentence is a text with a capital letter and a full stop, on one line.
func sentence(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if s == "" {
		return s
	}
	if !strings.HasSuffix(s, ".") {
		s += "."
	}
	if first, _, _ := strings.Cut(s, " "); strings.HasSuffix(first, ":") {
		return s // a word of the file, and what it means
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
