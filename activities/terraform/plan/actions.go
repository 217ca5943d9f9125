package plan

import (
	"reflect"
	"slices"
	"strings"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/seed-62bf7108/unwind/activities"
)

// Kind is what a plan does to an object, besides importing or moving it.
type Kind string

// The kinds. An object that is only imported or moved is kept.
const (
	Keep    Kind = "keep"
	Create  Kind = "create"
	Update  Kind = "update"
	Replace Kind = "replace"
	Delete  Kind = "delete"
	Forget  Kind = "forget"
)

// Action is what a plan does to one object.
type Action struct {
	// Address is where the object stands afterwards, or stood last.
	Address string `json:"address"`
	Kind    Kind   `json:"kind"`
	// From is the address that the object leaves, if it is moved.
	From string `json:"from,omitempty"`
	// Imported: the object exists, and no state has it yet.
	Imported bool `json:"imported,omitempty"`
	// Changed names the attributes that an update of an imported object changes: no state has their
	// values from before.
	Changed []string `json:"changed,omitempty"`
}

// Origin is the address of the object before the plan.
func (a Action) Origin() string {
	if a.From != "" {
		return a.From
	}
	return a.Address
}

// Makes reports whether the plan makes an object at the address.
func (a Action) Makes() bool { return a.Kind == Create || a.Kind == Replace }

// Loses reports whether the plan ends an object.
func (a Action) Loses() bool { return a.Kind == Replace || a.Kind == Delete }

// kinds are the actions that an undo knows.
var kinds = map[string]Kind{
	"no-op": Keep, "create": Create, "update": Update, "delete": Delete, "delete,create": Replace,
	"create,delete": Replace, "forget": Forget,
}

// ReadActions lists what a plan does, by address. A plan that does anything else than an undo knows
// is refused.
func ReadActions(p *tfjson.Plan) ([]Action, error) {
	for _, d := range p.DeferredChanges {
		if d.ResourceChange != nil {
			return nil, unknown(d.ResourceChange.Address, "defers its changes ("+d.Reason+")")
		}
	}
	for _, i := range p.ActionInvocations {
		return nil, unknown(i.Address, "invokes an action of its provider")
	}
	var all []Action
	for _, rc := range p.ResourceChanges {
		if rc.Mode == tfjson.DataResourceMode {
			continue
		}
		a, err := readAction(rc)
		if err != nil {
			return nil, err
		}
		if a.Kind != Keep || a.From != "" || a.Imported {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b Action) int { return strings.Compare(a.Address, b.Address) })
	return all, nil
}

func readAction(rc *tfjson.ResourceChange) (Action, error) {
	a := Action{Address: rc.Address}
	if rc.Mode != tfjson.ManagedResourceMode || rc.Change == nil {
		return a, unknown(rc.Address, "changes an object of the mode "+string(rc.Mode))
	}
	var names []string
	for _, name := range rc.Change.Actions {
		names = append(names, string(name))
	}
	var known bool
	if a.Kind, known = kinds[strings.Join(names, ",")]; !known {
		return a, unknown(rc.Address, "does "+strings.Join(names, " and "))
	}
	if rc.PreviousAddress != rc.Address {
		a.From = rc.PreviousAddress
	}
	a.Imported = rc.Change.Importing != nil
	before, _ := rc.Change.Before.(map[string]any)
	id, _ := before["id"].(string)
	switch {
	case a.From != "" && typeOf(a.From) != rc.Type:
		return a, unknown(rc.Address, "moves it from "+a.From+", which is of another type")
	case a.Imported && a.Kind != Keep && a.Kind != Update:
		return a, unknown(rc.Address, "imports it and does "+strings.Join(names, " and ")+" at once")
	case a.Kind == Forget && (id == "" || rc.DeposedKey != ""):
		return a, unknown(rc.Address, "forgets an object without an id, by which it could be imported again")
	case rc.DeposedKey != "":
		a.Address += " (deposed " + rc.DeposedKey + ")" // as in a state
	case a.Imported && a.Kind == Update:
		a.Changed = changedNames(before, rc.Change)
	}
	return a, nil
}

// typeOf is the type of the object at an address.
func typeOf(address string) string {
	parts := strings.Split(instanceKey.ReplaceAllString(address, ""), ".")
	if len(parts) < 2 {
		return ""
	}
	return parts[len(parts)-2]
}

// changedNames are the attributes that differ, or may, after an update.
func changedNames(before map[string]any, c *tfjson.Change) []string {
	after, _ := c.After.(map[string]any)
	unset, _ := c.AfterUnknown.(map[string]any)
	var names []string
	for name, value := range before {
		if !reflect.DeepEqual(value, after[name]) || unset[name] == true {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func unknown(address, does string) error {
	return activities.Errorf(activities.Refused,
		"the plan of %s %s: this worker does not know how to undo that. Leave it out of the step, or "+
			"apply it outside of Unwind", address, does)
}
