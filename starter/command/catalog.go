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
	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

func (p *program) catalogCommand() *cobra.Command {
	var f fileFlags
	output := outputFlag("text")
	c := &cobra.Command{
		Use:     "catalog [ACTION]",
		GroupID: groupLook,
		Short:   "List the actions, or show one with its parameters",
		Long: `Catalog lists the actions that a step can use, each with its risk and how it is undone. With the
name of an action, it shows its parameters and outputs. With --config, it lists only the worlds of
that worker's config.

` + exitStatuses,
		Example: `  starter catalog
  starter catalog file.write
  starter catalog -o json | jq '.[] | select(.risk == "high") | .name'`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			facts, err := p.workerFacts(f.config)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return actionNames(facts.specs), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			facts, err := p.workerFacts(f.config)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				if output == "json" {
					return p.printJSON(facts.specs)
				}
				writeCatalog(p.streams.Out, facts.specs)
				return nil
			}
			i := slices.IndexFunc(facts.specs, func(s activities.Spec) bool { return s.Name == args[0] })
			if i < 0 {
				names := actionNames(facts.specs)
				return usage.Errorf("there is no action %q; %s", args[0],
					cmp.Or(task.SuggestNearest(args[0], names), "there are: "+strings.Join(names, ", ")))
			}
			if output == "json" {
				return p.printJSON(facts.specs[i])
			}
			return writeAction(p.streams.Out, facts.specs[i])
		},
	}
	f.addConfigTo(c)
	output.addTo(c)
	return c
}

func (p *program) schemaCommand() *cobra.Command {
	var f fileFlags
	c := &cobra.Command{
		Use:     "schema",
		GroupID: groupLook,
		Short:   "Print the JSON Schema of the task file",
		Long: `Schema prints the JSON Schema of the task file with the parameters of every action, for editors that
complete and check YAML. With --config, it holds only the worlds of that worker's config.

` + exitStatuses,
		Example: `  starter schema > task.schema.json
  # then, as the first line of a task file:
  # yaml-language-server: $schema=task.schema.json`,
		Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			facts, err := p.workerFacts(f.config)
			if err != nil {
				return err
			}
			schema, err := task.Schema(facts.specs)
			if err != nil {
				return err
			}
			return p.printJSON(schema)
		},
	}
	f.addConfigTo(c)
	return c
}

func actionNames(specs []activities.Spec) []string {
	var all []string
	for _, s := range specs {
		all = append(all, s.Name)
	}
	return all
}

func writeCatalog(w io.Writer, specs []activities.Spec) {
	t := terminal.Table{}
	t.Row("ACTION", "RISK", "UNDO", "WHAT IT DOES")
	for _, s := range specs {
		t.Row(s.Name, string(s.Risk), string(s.Strategy), terminal.OneLine(s.Summary))
	}
	t.Write(w)
}

func writeAction(w io.Writer, s activities.Spec) error {
	var params jsonschema.Schema
	if err := json.Unmarshal(s.Params, &params); err != nil {
		return fmt.Errorf("parameters of %s: %w", s.Name, err)
	}
	fmt.Fprintf(w, "%s\n  %s\n\n", s.Name, terminal.OneLine(s.Summary))
	facts := terminal.Table{Indent: "  "}
	facts.Row("risk", string(s.Risk))
	facts.Row("undo", strings.TrimSuffix(string(s.Strategy)+": "+terminal.OneLine(s.Undo), ": "))
	if s.Redo != "" {
		facts.Row("redo", terminal.OneLine(s.Redo))
	}
	if s.Reset != "" {
		facts.Row("reset", terminal.OneLine(s.Reset))
	}
	if s.HostBound {
		facts.Row("runs on", "one host: name it with on:, else that of the worker that checks the task")
	}
	facts.Write(w)
	t := terminal.Table{Indent: "  "}
	addParams(&t, "", &params)
	if len(params.Properties) > 0 {
		fmt.Fprintf(w, "\nwith:\n")
		t.Write(w)
	}
	if len(s.Outputs) > 0 {
		fmt.Fprintf(w, "\noutputs:\n")
		o := terminal.Table{Indent: "  "}
		for _, name := range slices.Sorted(maps.Keys(s.Outputs)) {
			o.Row(name, terminal.OneLine(s.Outputs[name]))
		}
		o.Write(w)
	}
	return nil
}

// addParams adds a row for each parameter: required ones first, nested ones below their parent.
func addParams(t *terminal.Table, prefix string, s *jsonschema.Schema) {
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
		text := terminal.OneLine(p.Description)
		if len(p.Enum) > 0 {
			text = strings.TrimPrefix(text+"; one of "+joinValues(p.Enum), "; ")
		}
		t.Row(prefix+name, kindOf(p), need, text)
		switch {
		case len(p.Properties) > 0:
			addParams(t, prefix+name+".", p)
		case p.Items != nil && len(p.Items.Properties) > 0:
			addParams(t, prefix+name+"[].", p.Items)
		}
	}
}

func joinValues(values []any) string {
	var all []string
	for _, v := range values {
		all = append(all, fmt.Sprint(v))
	}
	return strings.Join(all, ", ")
}

// kindOf names the type of a parameter.
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
