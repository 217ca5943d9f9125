package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/cedar-policy/cedar-go"

	"github.com/seed-62bf7108/unwind/workflows/task"
)

// checkCedar returns a policy in Cedar's format in JSON, and what in it can mean nothing: one that
// asks for what can never be there would pass for one that does not match.
func checkCedar(p *cedar.Policy) (text string, problems []string) {
	raw, err := p.MarshalJSON()
	if err != nil {
		return "", []string{err.Error()}
	}
	var tree map[string]any
	if err := json.Unmarshal(raw, &tree); err != nil {
		return "", []string{err.Error()}
	}
	delete(tree, "annotations")
	c := cedarChecker{}
	c.visit(tree)
	slices.Sort(c.problems)
	return string(raw), slices.Compact(c.problems)
}

// The kinds of values, as texts for people.
const (
	kindText    = "a text"
	kindNumber  = "a number"
	kindBoolean = "a boolean"
	kindEntity  = "an entity"
	kindRecord  = "a record"
	kindSet     = "a set"
	kindSetOf   = "a set of " // before the kind of its items
)

// cedarFields are the attributes of a policy's variables, as maps down to their kinds. What is below
// a kind may be anything.
var cedarFields = map[string]any{
	"principal": map[string]any{}, "action": map[string]any{}, "resource": map[string]any{"key": kindText},
	"context": map[string]any{"with": kindRecord, "time": "a datetime", "host": kindText, "task": fieldsOf[Task](),
		"step": fieldsOf[Step](), "change": fieldsOf[Change](), "history": fieldsOf[History]()},
}

func fieldsOf[T any]() map[string]any {
	fields := map[string]any{}
	for field := range reflect.TypeFor[T]().Fields() {
		fields[field.Tag.Get("yaml")] = kindOf(field.Type)
	}
	return fields
}

func kindOf(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "a duration"
	case t.Kind() == reflect.Slice:
		return kindSetOf + kindOf(t.Elem())
	case t.Kind() == reflect.String:
		return kindText
	case t.Kind() == reflect.Bool:
		return kindBoolean
	case t.Kind() == reflect.Int64:
		return kindNumber
	default:
		return kindRecord
	}
}

// kindAt is the kind of an attribute, by the way to it; empty if it may be anything.
func kindAt(path []string) string {
	if len(path) == 0 {
		return ""
	}
	at := any(cedarFields)
	for _, name := range path {
		fields, isMap := at.(map[string]any)
		if !isMap {
			return ""
		}
		at = fields[name]
	}
	switch at := at.(type) {
	case string:
		return at
	case map[string]any:
		if path[0] != "context" {
			return kindEntity
		}
		return kindRecord
	default:
		return ""
	}
}

// kindOfLiteral is the kind of what stands in a policy; empty if it is to be worked out.
func kindOfLiteral(node map[string]any) string {
	if _, is := node["Set"]; is {
		return kindSet
	}
	switch value := node["Value"].(type) {
	case string:
		return kindText
	case float64:
		return kindNumber
	case bool:
		return kindBoolean
	case map[string]any:
		if value["__entity"] != nil {
			return kindEntity
		}
		return ""
	default:
		return kindAt(pathOf(node))
	}
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
			case "==", "!=":
				c.checkComparison(operands.(map[string]any), !ofSets)
			case "contains", "containsAll", "containsAny":
				c.checkComparison(operands.(map[string]any), ofSets)
			case "hasTag", "getTag":
				c.badf("no entity has tags here; a policy can look at resource.key, and of context at %s", fieldsToSee)
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

// ofSets says that a comparison is about the items of sets.
const ofSets = true

// checkComparison looks at what a field is compared with: at each item, where it is about those of
// sets.
func (c *cedarChecker) checkComparison(operands map[string]any, aboutItems bool) {
	for _, sides := range [][2]any{{operands["left"], operands["right"]}, {operands["right"], operands["left"]}} {
		path := pathOf(sides[0])
		name, kind := strings.Join(path, "."), kindAt(path)
		if item, isSet := strings.CutPrefix(kind, kindSetOf); isSet && aboutItems {
			name, kind = "an item of "+name, item
		}
		other, _ := sides[1].(map[string]any)
		items, isSet := other["Set"].([]any)
		if !isSet || !aboutItems {
			items = []any{other}
		}
		for _, item := range items {
			value, _ := item.(map[string]any)
			is := kindOfLiteral(value)
			if aboutItems { // of another field
				is = strings.TrimPrefix(is, kindSetOf)
			}
			c.checkValue(name, kind, is, value)
		}
	}
}

// checkValue refuses a value of a kind that is not its field's, or a word that the field never is.
func (c *cedarChecker) checkValue(field, kind, is string, value map[string]any) {
	if strings.HasPrefix(kind, kindSetOf) {
		kind = kindSet
	}
	if strings.HasPrefix(is, kindSetOf) {
		is = kindSet
	}
	if kind != "" && is != "" && kind != is {
		c.badf("%s is %s, and never %s", field, kind, is)
	}
	known, hasWords := words[strings.TrimPrefix(field, "context.")]
	if text, isText := value["Value"].(string); hasWords && isText && !slices.Contains(known, text) {
		c.badf("%s is never %q; it is one of %s", field, text, strings.Join(known, ", "))
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
