package examples

import (
	"bytes"
	"embed"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/seed-62bf7108/unwind/activities"
)

//go:embed *.yaml
var files embed.FS

// Ending is how an example is supposed to end.
type Ending string

// The endings. At a gate, a Rejected example is rejected and all others are approved; a Canceled
// one is canceled once only running steps are left.
const (
	Fails    Ending = "fails"
	Commits  Ending = "commits"
	Rejected Ending = "is rejected"
	Canceled Ending = "is canceled"
)

// Example is a task file with what is needed to run it.
type Example struct {
	// Name is the file's name without .yaml.
	Name string
	// Source is the file.
	Source []byte
	Ends   Ending
	// Acts are what an agent does in a session; nil for a task whose steps are all in the file.
	Acts []Act
}

// All lists the examples; the first is the main one.
func All() []Example {
	all := []Example{
		{Name: "publish-release", Ends: Fails},
		{Name: "publish-ok", Ends: Commits},
		{Name: "publish-rejected", Ends: Rejected},
		{Name: "publish-canceled", Ends: Canceled},
		{Name: "session", Ends: Commits},
	}
	for i := range all {
		all[i].Source = read(all[i].Name + ".yaml")
	}
	acts, err := readActs(read("session-agent.yaml"))
	if err != nil {
		panic(err) // embedded above
	}
	all[len(all)-1].Acts = acts
	return all
}

// read returns a file that is embedded above.
func read(name string) []byte {
	source, err := files.ReadFile(name)
	if err != nil {
		panic(err)
	}
	return source
}

// Named returns the example with a name.
func Named(name string) (Example, error) {
	var names []string
	for _, e := range All() {
		if e.Name == name {
			return e, nil
		}
		names = append(names, e.Name)
	}
	return Example{}, fmt.Errorf("there is no example %q; there are %s", name, strings.Join(names, ", "))
}

// Without returns the example without the steps of some worlds, also those of its agent, and the
// ids of the omitted steps, for a machine that lacks something. No remaining step may refer to the
// outputs of an omitted one.
func (e Example) Without(worlds ...string) (Example, []string, error) {
	if len(worlds) == 0 {
		return e, nil, nil
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(e.Source, &doc); err != nil {
		return e, nil, fmt.Errorf("example %s: %w", e.Name, err)
	}
	steps := field(doc.Content[0], "steps")
	var gone []string
	steps.Content = slices.DeleteFunc(steps.Content, func(step *yaml.Node) bool {
		if !slices.Contains(worlds, activities.WorldOf(field(step, "uses").Value)) {
			return false
		}
		gone = append(gone, field(step, "id").Value)
		return true
	})
	for _, step := range steps.Content {
		if needs := field(step, "needs"); needs != nil {
			needs.Content = slices.DeleteFunc(needs.Content, func(n *yaml.Node) bool { return slices.Contains(gone, n.Value) })
		}
	}
	var out bytes.Buffer
	if err := yaml.NewEncoder(&out).Encode(&doc); err != nil {
		return e, nil, fmt.Errorf("example %s: %w", e.Name, err)
	}
	e.Source = out.Bytes()
	acts, unplayed := actsWithout(e.Acts, worlds)
	e.Acts = acts
	return e, append(gone, unplayed...), nil
}

// field returns the value of a key of a mapping; nil if it has no such key.
func field(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// Values returns those of all that override the example's vars.
func (e Example) Values(all map[string]string) map[string]any {
	var doc struct{ Vars map[string]any }
	if err := yaml.Unmarshal(e.Source, &doc); err != nil {
		return nil // Parse says what is wrong with it
	}
	values := map[string]any{}
	for name := range doc.Vars {
		if v, known := all[name]; known {
			values[name] = v
		}
	}
	return values
}
