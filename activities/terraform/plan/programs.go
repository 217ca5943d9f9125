package plan

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	tfjson "github.com/hashicorp/terraform-json"
)

// Provisioners and some data sources run programs or send requests. Terraform knows nothing of what
// they change: a person is always asked about them, and an undo takes back only what their objects
// are.

// programSources are data sources that do something, and what.
var programSources = map[string]string{
	"external": "runs a program on the worker's host, also to make this plan",
	"http":     "sends a request, also to make this plan",
}

// FindPrograms describes what a plan would run besides providers, and lists the data sources among
// it.
func FindPrograms(p *tfjson.Plan) (described, sources []string) {
	if p.Config == nil || p.Config.RootModule == nil {
		return nil, nil
	}
	for _, rc := range p.ResourceChanges {
		if rc.Mode != tfjson.ManagedResourceMode || rc.Change == nil || rc.Change.Actions.NoOp() {
			continue
		}
		if kinds := provisionersOf(p.Config.RootModule, rc); len(kinds) > 0 {
			described = append(described, fmt.Sprintf("%s has provisioners, which run programs when it is made or destroyed: %s",
				rc.Address, strings.Join(kinds, ", ")))
		}
	}
	slices.Sort(described)
	sources = sourcesIn(p.Config.RootModule, "")
	return append(described, sources...), sources
}

var instanceKey = regexp.MustCompile(`\[("(\\.|[^"\\])*"|\d+)\]`)

// provisionersOf are the kinds of the provisioners of an object.
func provisionersOf(root *tfjson.ConfigModule, rc *tfjson.ResourceChange) []string {
	module := root
	for name := range strings.SplitSeq(instanceKey.ReplaceAllString(rc.ModuleAddress, ""), ".") {
		if name == "module" || name == "" {
			continue
		}
		call := module.ModuleCalls[name]
		if call == nil || call.Module == nil {
			return nil // it is no longer in the configuration: its provisioners do not run
		}
		module = call.Module
	}
	var kinds []string
	for _, r := range module.Resources {
		if r.Mode != tfjson.ManagedResourceMode || r.Type != rc.Type || r.Name != rc.Name {
			continue
		}
		for _, p := range r.Provisioners {
			if !slices.Contains(kinds, p.Type) {
				kinds = append(kinds, p.Type)
			}
		}
	}
	return kinds
}

// sourcesIn describes the data sources of a module and of those that it calls which do something.
func sourcesIn(m *tfjson.ConfigModule, prefix string) []string {
	var all []string
	for _, r := range m.Resources {
		if does, known := programSources[r.Type]; known && r.Mode == tfjson.DataResourceMode {
			all = append(all, prefix+r.Address+" "+does)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.ModuleCalls)) {
		if call := m.ModuleCalls[name]; call.Module != nil {
			all = append(all, sourcesIn(call.Module, prefix+"module."+name+".")...)
		}
	}
	return all
}
