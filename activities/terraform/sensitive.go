package terraform

import (
	"encoding/json"
	"strings"

	tfjson "github.com/hashicorp/terraform-json"
)

// sensitiveInPlan are the texts in a plan that must not be shown.
func sensitiveInPlan(p *tfjson.Plan) []string {
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
				found = append(found, stringLeaves(raw)...)
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
			return leavesOf(v)
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

// relativePaths are the addresses whose planned values point into the working copy.
func relativePaths(p *tfjson.Plan, dir string) []string {
	var found []string
	for _, rc := range p.ResourceChanges {
		if rc.Change == nil || rc.Mode != tfjson.ManagedResourceMode {
			continue
		}
		for _, text := range leavesOf(rc.Change.After) {
			if strings.HasPrefix(text, "./") || strings.HasPrefix(text, dir) {
				found = append(found, rc.Address)
				break
			}
		}
	}
	return found
}
