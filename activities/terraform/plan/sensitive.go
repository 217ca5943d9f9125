// Package plan finds in a plan what must not be shown, what runs programs, and what leads out of
// the configuration.
package plan

import (
	"encoding/json"
	"strings"

	"github.com/seed-62bf7108/unwind/activities/terraform/state"

	tfjson "github.com/hashicorp/terraform-json"
)

// SensitiveTexts are the texts in a plan that must not be shown.
func SensitiveTexts(p *tfjson.Plan) []string {
	var found []string
	changes := make([]*tfjson.Change, 0, len(p.ResourceChanges)+len(p.OutputChanges))
	for _, list := range [][]*tfjson.ResourceChange{p.ResourceChanges, p.ResourceDrift} {
		for _, rc := range list {
			changes = append(changes, rc.Change)
		}
	}
	for _, c := range p.OutputChanges {
		changes = append(changes, c)
	}
	for _, c := range changes {
		if c != nil {
			found = append(found, markedStrings(c.Before, c.BeforeSensitive)...)
			found = append(found, markedStrings(c.After, c.AfterSensitive)...)
		}
	}
	if p.Config != nil && p.Config.RootModule != nil {
		for name, v := range p.Config.RootModule.Variables {
			if set := p.Variables[name]; v.Sensitive && set != nil {
				raw, _ := json.Marshal(set.Value) // it came out of JSON
				found = append(found, state.StringLeaves(raw)...)
			}
		}
	}
	return found
}

// markedStrings are the strings in v where marks, a value of the same shape, is true.
func markedStrings(v, marks any) []string {
	switch m := marks.(type) {
	case bool:
		if m {
			return state.StringsIn(v)
		}
	case map[string]any:
		object, _ := v.(map[string]any)
		var found []string
		for k, mark := range m {
			found = append(found, markedStrings(object[k], mark)...)
		}
		return found
	case []any:
		list, _ := v.([]any)
		var found []string
		for i, mark := range m {
			if i < len(list) {
				found = append(found, markedStrings(list[i], mark)...)
			}
		}
		return found
	}
	return nil
}

// RelativePaths are the addresses whose planned values point into the working copy.
func RelativePaths(p *tfjson.Plan, dir string) []string {
	var found []string
	for _, rc := range p.ResourceChanges {
		if rc.Change == nil || rc.Mode != tfjson.ManagedResourceMode {
			continue
		}
		for _, text := range state.StringsIn(rc.Change.After) {
			if strings.HasPrefix(text, "./") || strings.HasPrefix(text, dir) {
				found = append(found, rc.Address)
				break
			}
		}
	}
	return found
}
