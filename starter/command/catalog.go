package command

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

func (p *program) catalog() *cobra.Command {
	var f checking
	output := outputFlag("text")
	c := &cobra.Command{
		Use:     "catalog [ACTION]",
		GroupID: groupLook,
		Short:   "List the actions, or show one with its parameters",
		Long: `Catalog lists the actions that a step can use, each with its risk and how it is undone. With the name of an action, it shows
its parameters and outputs. With --config, it lists only the worlds of that worker's config.

` + exitStatuses,
		Example: `  starter catalog
  starter catalog file.write
  starter catalog -o json | jq '.[] | select(.risk == "high") | .name'`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			_, specs, err := p.known(f.config)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return names(specs), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			_, specs, err := p.known(f.config)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				if output == "json" {
					return p.printJSON(specs)
				}
				writeCatalog(p.streams.Out, specs)
				return nil
			}
			i := slices.IndexFunc(specs, func(s activities.Spec) bool { return s.Name == args[0] })
			if i < 0 {
				return usagef("there is no action %q; there are: %s", args[0], strings.Join(names(specs), ", "))
			}
			if output == "json" {
				return p.printJSON(specs[i])
			}
			return writeAction(p.streams.Out, specs[i])
		},
	}
	f.addConfig(c)
	output.add(c)
	return c
}

func (p *program) schema() *cobra.Command {
	var f checking
	c := &cobra.Command{
		Use:     "schema",
		GroupID: groupLook,
		Short:   "Print the JSON Schema of the task file",
		Long: `Schema prints the JSON Schema of the task file with the parameters of every action, for editors that complete and check
YAML. With --config, it holds only the worlds of that worker's config.

` + exitStatuses,
		Example: `  starter schema > task.schema.json
  # then, as the first line of a task file:
  # yaml-language-server: $schema=task.schema.json`,
		Args: nothing,
		RunE: func(*cobra.Command, []string) error {
			_, specs, err := p.known(f.config)
			if err != nil {
				return err
			}
			schema, err := task.Schema(specs)
			if err != nil {
				return err
			}
			return p.printJSON(schema)
		},
	}
	f.addConfig(c)
	return c
}

func names(specs []activities.Spec) []string {
	var all []string
	for _, s := range specs {
		all = append(all, s.Name)
	}
	return all
}

func writeCatalog(w io.Writer, specs []activities.Spec) {
	t := table{}
	t.row("ACTION", "RISK", "UNDO", "WHAT IT DOES")
	for _, s := range specs {
		t.row(s.Name, string(s.Risk), string(s.Strategy), oneLine(s.Summary))
	}
	t.write(w)
}

func writeAction(w io.Writer, s activities.Spec) error {
	var params jsonschema.Schema
	if err := json.Unmarshal(s.Params, &params); err != nil {
		return fmt.Errorf("parameters of %s: %w", s.Name, err)
	}
	fmt.Fprintf(w, "%s\n  %s\n\n", s.Name, oneLine(s.Summary))
	facts := table{indent: "  "}
	facts.row("risk", string(s.Risk))
	facts.row("undo", strings.TrimSuffix(string(s.Strategy)+": "+oneLine(s.Undo), ": "))
	if s.Redo != "" {
		facts.row("redo", oneLine(s.Redo))
	}
	if s.Reset != "" {
		facts.row("reset", oneLine(s.Reset))
	}
	if s.HostBound {
		facts.row("runs on", "one host: name it with on:, else that of the worker that checks the task")
	}
	facts.write(w)
	t := table{indent: "  "}
	addParams(&t, "", &params)
	if len(t.rows) > 0 {
		fmt.Fprintf(w, "\nwith:\n")
		t.write(w)
	}
	if len(s.Outputs) > 0 {
		fmt.Fprintf(w, "\noutputs:\n")
		o := table{indent: "  "}
		for _, name := range slices.Sorted(maps.Keys(s.Outputs)) {
			o.row(name, oneLine(s.Outputs[name]))
		}
		o.write(w)
	}
	return nil
}

// addParams adds a row for each parameter, the required ones first, those within others below them.
func addParams(t *table, prefix string, s *jsonschema.Schema) {
	rank := func(name string) int {
		if slices.Contains(s.Required, name) {
			return 0
		}
		return 1
	}
	for _, name := range slices.SortedFunc(maps.Keys(s.Properties), func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
	}) {
		p := s.Properties[name]
		need := "optional"
		if slices.Contains(s.Required, name) {
			need = "required"
		}
		text := oneLine(p.Description)
		if len(p.Enum) > 0 {
			text = strings.TrimSpace(text + " one of " + list(p.Enum))
		}
		t.row(prefix+name, kindOf(p), need, text)
		switch {
		case len(p.Properties) > 0:
			addParams(t, prefix+name+".", p)
		case p.Items != nil && len(p.Items.Properties) > 0:
			addParams(t, prefix+name+"[].", p.Items)
		}
	}
}

func list(values []any) string {
	var all []string
	for _, v := range values {
		all = append(all, fmt.Sprint(v))
	}
	return strings.Join(all, ", ")
}

// kindOf is the type of a parameter in a word.
func kindOf(s *jsonschema.Schema) string {
	kinds := s.Types
	if s.Type != "" {
		kinds = []string{s.Type}
	}
	kinds = slices.DeleteFunc(slices.Clone(kinds), func(k string) bool { return k == "null" })
	kind := strings.Join(kinds, " or ")
	switch {
	case kind == "array" && s.Items != nil:
		return "list of " + kindOf(s.Items)
	case kind == "":
		return "any"
	}
	return kind
}
