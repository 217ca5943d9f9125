package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"

	"github.com/seed-62bf7108/unwind/workflows/task"
)

// checkCedar says which names of a policy mean nothing: one that asks for what can never be there
// would pass for one that does not match. It reads the policy in Cedar's format in JSON.
func checkCedar(p *cedar.Policy) (problems []string) {
	raw, err := p.MarshalJSON()
	if err != nil {
		return []string{err.Error()}
	}
	var tree map[string]any
	if err := json.Unmarshal(raw, &tree); err != nil {
		return []string{err.Error()}
	}
	delete(tree, "annotations")
	c := cedarChecker{}
	c.visit(tree)
	slices.Sort(c.problems)
	return slices.Compact(c.problems)
}

// cedarFields are the attributes of a policy's variables, as maps; true stands for what may have
// any.
var cedarFields = map[string]any{
	"principal": map[string]any{}, "action": map[string]any{}, "resource": map[string]any{"key": true},
	"context": map[string]any{"with": true, "time": true, "host": true, "task": fieldsOf[Task](), "step": fieldsOf[Step](),
		"change": fieldsOf[Change](), "history": fieldsOf[History]()},
}

func fieldsOf[T any]() map[string]any {
	fields := map[string]any{}
	for field := range reflect.TypeFor[T]().Fields() {
		fields[field.Tag.Get("yaml")] = true
	}
	return fields
}

type cedarChecker struct{ problems []string }

func (c *cedarChecker) badf(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

func (c *cedarChecker) visit(node any) {
	switch n := node.(type) {
	case []any:
		for _, item := range n {
			c.visit(item)
		}
	case map[string]any:
		for operator, operands := range n {
			switch operator {
			case ".", "has":
				c.checkField(operands.(map[string]any))
			case "==", "!=", "contains":
				c.checkWord(operands.(map[string]any))
			case "Value":
				literal, _ := operands.(map[string]any)
				if of, isEntity := literal["__entity"].(map[string]any); isEntity {
					c.checkEntity(of)
				}
				continue
			case "Record": // its names are anybody's
				for _, of := range operands.(map[string]any) {
					c.visit(of)
				}
				continue
			case "entity":
				c.checkEntity(operands.(map[string]any))
			case "entities":
				for _, of := range operands.([]any) {
					c.checkEntity(of.(map[string]any))
				}
			case "entity_type":
				c.checkType(operands.(string))
			}
			c.visit(operands)
		}
	}
}

// pathOf is the way to an attribute, as in context, change, risk; nil if it does not begin at a
// variable.
func pathOf(node any) []string {
	n, _ := node.(map[string]any)
	if name, is := n["Var"].(string); is {
		return []string{name}
	}
	access, is := n["."].(map[string]any)
	if !is {
		return nil
	}
	if path := pathOf(access["left"]); path != nil {
		return append(path, access["attr"].(string))
	}
	return nil
}

func (c *cedarChecker) checkField(access map[string]any) {
	path := pathOf(access["left"])
	if path == nil {
		return
	}
	attr := access["attr"].(string)
	fields := any(cedarFields)
	for _, name := range path {
		known, isMap := fields.(map[string]any)
		if !isMap {
			return // it may have any
		}
		if fields, isMap = known[name]; !isMap {
			return // it was complained of where it stands
		}
	}
	if known, isMap := fields.(map[string]any); isMap && known[attr] == nil {
		fix := task.SuggestNearest(attr, slices.Sorted(maps.Keys(known)))
		if fix == "" {
			fix = "a policy can look at resource.key, and of context at " + fieldsToSee
		}
		c.badf("there is no %s.%s; %s", strings.Join(path, "."), attr, fix)
	}
}

// checkWord looks at a comparison of a field with a text, or with a set of them.
func (c *cedarChecker) checkWord(operands map[string]any) {
	for _, sides := range [][2]any{{operands["left"], operands["right"]}, {operands["right"], operands["left"]}} {
		field := strings.TrimPrefix(strings.Join(pathOf(sides[0]), "."), "context.")
		known, hasWords := words[field]
		if !hasWords {
			continue
		}
		other, _ := sides[1].(map[string]any)
		items, isSet := other["Set"].([]any)
		if !isSet {
			items = []any{other}
		}
		for _, item := range items {
			value, _ := item.(map[string]any)
			if text, isText := value["Value"].(string); isText && !slices.Contains(known, text) {
				c.badf("context.%s is never %q; it is one of %s", field, text, strings.Join(known, ", "))
			}
		}
	}
}

func (c *cedarChecker) checkType(name string) {
	known := []string{string(typeAgent), string(typeAction), string(typeResource)}
	if !slices.Contains(known, name) {
		c.badf("there are no entities of type %s; there are Agent, Action and Resource", name)
	}
}

func (c *cedarChecker) checkEntity(of map[string]any) {
	kind, id := of["type"].(string), of["id"].(string)
	c.checkType(kind)
	if kind == string(typeResource) && strings.HasSuffix(id, "/") && !strings.HasSuffix(id, ":/") {
		c.badf("no resource ends with a slash: write Resource::%q", strings.TrimRight(id, "/"))
	}
}
