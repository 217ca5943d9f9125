package state

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// identities maps the addresses of the managed objects to what tells them apart: type and id; of
// one without an id, its attributes. Deposed ones are left out.
func (s *State) identities() map[string]string {
	all := map[string]string{}
	for _, r := range s.Resources {
		for _, i := range r.Instances {
			if r.Mode == "managed" && i.Deposed == "" {
				all[r.address(i)] = r.identity(i)
			}
		}
	}
	return all
}

func (r Resource) identity(i Instance) string {
	if id := i.ID(); id != "" {
		return r.Type + "\x00" + id
	}
	return r.Type + "\x00" + canonicalJSON(i.Attributes)
}

// ID is the object's attribute id, if that is a text.
func (i Instance) ID() string {
	var id string
	_ = json.Unmarshal(parseObject(string(i.Attributes))["id"], &id) // a number, or none
	return id
}

// IDOf is the id of the managed object at an address.
func (s *State) IDOf(address string) string {
	for _, r := range s.Resources {
		for _, i := range r.Instances {
			if r.Mode == "managed" && i.Deposed == "" && r.address(i) == address {
				return i.ID()
			}
		}
	}
	return ""
}

// Has reports whether there is a managed object at an address.
func (s *State) Has(address string) bool {
	_, has := s.identities()[address]
	return has
}

// Holds reports whether there is, at an address, the object that stood at another in an earlier
// state.
func (s *State) Holds(address string, earlier *State, at string) bool {
	now, has := s.identities()[address]
	was, had := earlier.identities()[at]
	return has && had && now == was
}

// StayedAs names the attributes of the object from before at an address whose values differ from
// before and are those that the step left, at the address leftAt. Where left is nil, what the step
// left is not known, and all that differ are named.
func (s *State) StayedAs(before, left *State, address, leftAt string) []string {
	if !s.Holds(address, before, address) || left != nil && !left.Has(leftAt) {
		return nil
	}
	now, was := parseObject(s.Managed()[address]), parseObject(before.Managed()[address])
	var as map[string]json.RawMessage
	if left != nil {
		as = parseObject(left.Managed()[leftAt])
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if !bytes.Equal(now[name], was[name]) && (left == nil || bytes.Equal(now[name], as[name])) {
			names = append(names, name)
		}
	}
	return names
}

// Superseded maps the addresses whose current object of an earlier state is a deposed one now, with
// another in its place, to its key.
func (s *State) Superseded(earlier *State) map[string]string {
	was, now := earlier.identities(), s.identities()
	all := map[string]string{}
	for _, r := range s.Resources {
		for _, i := range r.Instances {
			if i.Deposed == "" || r.Mode != "managed" {
				continue
			}
			key := i.Deposed
			i.Deposed = ""
			if address := r.address(i); was[address] == r.identity(i) && now[address] != "" && now[address] != was[address] {
				all[address] = key
			}
		}
	}
	return all
}

// Rearrange returns the next state, without the objects at the addresses in forget, and with others
// at the address that moves has for theirs. Those stood in an earlier state, which says what else
// belongs to an address. Superseded objects of it become the current ones again, and those in their
// places deposed.
func (s *State) Rearrange(forget []string, moves map[string]string, earlier *State) ([]byte, error) {
	now, from, err := decodePair(s.Raw, earlier.Raw)
	if err != nil {
		return nil, err
	}
	var kept []any
	superseded := s.Superseded(earlier)
	moved := map[string][]any{}
	for n, r := range s.Resources {
		resource := now.resources[n].(map[string]any)
		var stay []any
		for m, instance := range listOf(resource["instances"]) {
			address, _, _ := strings.Cut(r.address(r.Instances[m]), " (deposed")
			if key := superseded[address]; key != "" && r.Mode == "managed" {
				swapDeposed(instance.(map[string]any), key)
			}
			to, moves := moves[address]
			switch {
			case r.Mode != "managed":
				stay = append(stay, instance)
			case slices.Contains(forget, address):
			case moves:
				moved[to] = append(moved[to], instance)
			default:
				stay = append(stay, instance)
			}
		}
		if resource["instances"] = stay; len(stay) > 0 {
			kept = append(kept, resource)
		}
	}
	for _, to := range slices.Sorted(maps.Keys(moved)) {
		if kept, err = place(kept, moved[to], to, earlier, from.resources); err != nil {
			return nil, err
		}
	}
	now.document["resources"] = kept
	now.document["serial"] = s.Serial + 1
	return json.MarshalIndent(now.document, "", "  ")
}

// swapDeposed makes the deposed object with a key current, and the current one the deposed one with
// that key.
func swapDeposed(instance map[string]any, key string) {
	switch instance["deposed"] {
	case nil:
		instance["deposed"] = key
	case key:
		delete(instance, "deposed")
	}
}

// place adds instances at an address, as the earlier state has it.
func place(resources, instances []any, address string, earlier *State, from []any) ([]any, error) {
	for n, r := range earlier.Resources {
		for m, i := range r.Instances {
			if r.Mode != "managed" || r.address(i) != address {
				continue
			}
			resource := maps.Clone(from[n].(map[string]any))
			old := listOf(resource["instances"])[m].(map[string]any)
			for _, instance := range instances {
				object := instance.(map[string]any)
				for _, name := range []string{"index_key", "dependencies"} {
					if delete(object, name); old[name] != nil {
						object[name] = old[name]
					}
				}
			}
			for _, there := range resources {
				there := there.(map[string]any)
				if there["mode"] == r.Mode && there["type"] == r.Type && there["name"] == r.Name &&
					textOf(there["module"]) == r.Module {
					there["instances"] = append(listOf(there["instances"]), instances...)
					return resources, nil
				}
			}
			resource["instances"] = instances
			return append(resources, resource), nil
		}
	}
	return nil, fmt.Errorf("the state from before the step has no object at %s", address)
}

// decoded is a state as it stands, with all that Parse leaves out.
type decoded struct {
	document  map[string]any
	resources []any
}

func decodePair(a, b []byte) (x, y decoded, err error) {
	if x, err = decode(a); err == nil {
		y, err = decode(b)
	}
	return x, y, err
}

func decode(raw []byte) (decoded, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var s decoded
	if len(bytes.TrimSpace(raw)) == 0 {
		return s, nil
	}
	err := d.Decode(&s.document)
	s.resources = listOf(s.document["resources"])
	return s, err
}

func listOf(v any) []any {
	list, _ := v.([]any)
	return list
}

func textOf(v any) string {
	text, _ := v.(string)
	return text
}
