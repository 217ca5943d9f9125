// Package state reads Terraform states: what they manage, how two of them differ, and what in them
// is sensitive.
package state

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
)

// State is the part of a Terraform state (format 4) that matters here.
type State struct {
	Version   int               `json:"version"`
	Serial    uint64            `json:"serial"`
	Lineage   string            `json:"lineage"`
	Outputs   map[string]Output `json:"outputs"`
	Resources []Resource        `json:"resources"`

	Raw []byte `json:"-"`
}

type Output struct {
	Value     json.RawMessage `json:"value"`
	Sensitive bool            `json:"sensitive"`
}

type Resource struct {
	Module    string     `json:"module"`
	Mode      string     `json:"mode"`
	Type      string     `json:"type"`
	Name      string     `json:"name"`
	Instances []Instance `json:"instances"`
}

type Instance struct {
	IndexKey   any             `json:"index_key"`
	Status     string          `json:"status"`
	Deposed    string          `json:"deposed"`
	Attributes json.RawMessage `json:"attributes"`
	Sensitive  []pathSteps     `json:"sensitive_attributes"`
}

type pathSteps []struct {
	Type  string          `json:"type"`
	Value json.RawMessage `json:"value"`
}

// Parse reads a state; no bytes are an empty one, as for terraform.
func Parse(raw []byte) (*State, error) {
	s := &State{Raw: raw}
	if len(bytes.TrimSpace(raw)) == 0 {
		return s, nil
	}
	if err := json.Unmarshal(raw, s); err != nil {
		return nil, fmt.Errorf("the state cannot be read: %w; restore it, or remove it, and run the undo again", err)
	}
	if s.Version != 4 {
		return nil, activities.Errorf(activities.UnknownFormat, "the state has format %d; this worker reads format 4",
			s.Version)
	}
	return s, nil
}

// ParseHidden parses a state and makes the masker hide what is sensitive in it.
func ParseHidden(ctx context.Context, raw []byte) (*State, error) {
	s, err := Parse(raw)
	if err == nil {
		activities.MaskerFrom(ctx).Add(s.Sensitive()...)
	}
	return s, err
}

// Exists reports whether there is a state at all.
func (s *State) Exists() bool { return s.Lineage != "" }

// IsEmpty reports whether nothing is managed.
func (s *State) IsEmpty() bool { return len(s.Managed()) == 0 && len(s.Outputs) == 0 }

// Managed maps the addresses of the managed objects to their canonical attributes.
func (s *State) Managed() map[string]string {
	all := map[string]string{}
	for _, r := range s.Resources {
		if r.Mode != "managed" {
			continue
		}
		for _, i := range r.Instances {
			all[r.address(i)] = i.Status + canonicalJSON(i.Attributes)
		}
	}
	return all
}

// Tainted maps the addresses of the managed objects to whether terraform calls them tainted;
// deposed ones are left out.
func (s *State) Tainted() map[string]bool {
	all := map[string]bool{}
	for _, r := range s.Resources {
		for _, i := range r.Instances {
			if r.Mode == "managed" && i.Deposed == "" {
				all[r.address(i)] = i.Status == "tainted"
			}
		}
	}
	return all
}

// address is the instance's address as terraform prints it; that of a deposed object includes its
// key.
func (r Resource) address(i Instance) string {
	a := r.Type + "." + r.Name
	if r.Module != "" {
		a = r.Module + "." + a
	}
	switch k := i.IndexKey.(type) {
	case string:
		a += fmt.Sprintf("[%q]", k)
	case float64:
		a += fmt.Sprintf("[%d]", int(k))
	}
	if i.Deposed != "" {
		a += " (deposed " + i.Deposed + ")"
	}
	return a
}

// outputs are the canonical values of the outputs.
func (s *State) outputs() map[string]string {
	all := map[string]string{}
	for name, o := range s.Outputs {
		all[name] = canonicalJSON(o.Value)
	}
	return all
}

// Digest covers resources, attributes and outputs; not serial, lineage and data sources.
func (s *State) Digest() activities.Digest {
	b, _ := json.Marshal([]any{s.Managed(), s.outputs()}) // maps of strings come out sorted
	return activities.DigestOf(b)
}

// Same reports whether two states have the same resources, attributes and outputs.
func (s *State) Same(o *State) bool { return s.Digest() == o.Digest() }

// Changes lists what differs from s to o: addresses and names of outputs, never values.
func (s *State) Changes(o *State) []string {
	lines := diffValues(s.Managed(), o.Managed(), "")
	return append(lines, diffValues(s.outputs(), o.outputs(), "output ")...)
}

func diffValues(from, to map[string]string, kind string) []string {
	names := slices.Sorted(maps.Keys(from))
	for n := range to {
		if _, both := from[n]; !both {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	var lines []string
	for _, n := range names {
		a, had := from[n]
		b, has := to[n]
		switch {
		case !had:
			lines = append(lines, "+ "+kind+n)
		case !has:
			lines = append(lines, "- "+kind+n)
		case a != b:
			lines = append(lines, "~ "+kind+n+changedKeys(a, b))
		}
	}
	return lines
}

// changedKeys names the top-level attributes that differ.
func changedKeys(a, b string) string {
	from, to := parseObject(a), parseObject(b)
	var names []string
	for _, n := range slices.Sorted(maps.Keys(to)) {
		if !bytes.Equal(from[n], to[n]) {
			names = append(names, n)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf(" %v", names)
}

func parseObject(text string) map[string]json.RawMessage {
	var m map[string]json.RawMessage
	if i := strings.IndexByte(text, '{'); i >= 0 {
		_ = json.Unmarshal([]byte(text[i:]), &m) // not an object: no attributes to name
	}
	return m
}

// canonicalJSON is JSON with sorted keys and no spaces.
func canonicalJSON(raw json.RawMessage) string {
	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return string(raw)
	}
	b, _ := json.Marshal(v)
	return string(b)
}

// Sensitive are the texts in s that must not be shown.
func (s *State) Sensitive() []string {
	var found []string
	for _, o := range s.Outputs {
		if o.Sensitive {
			found = append(found, StringLeaves(o.Value)...)
		}
	}
	for _, r := range s.Resources {
		for _, i := range r.Instances {
			for _, path := range i.Sensitive {
				found = append(found, StringLeaves(path.in(i.Attributes))...)
			}
		}
	}
	return found
}

// in is the value at the path, or the last one found on the way.
func (p pathSteps) in(raw json.RawMessage) json.RawMessage {
	for _, step := range p {
		var key struct {
			Value any `json:"value"`
		}
		if json.Unmarshal(step.Value, &key) != nil { // a name is a string, an index is an object with a type
			if json.Unmarshal(step.Value, &key.Value) != nil {
				return raw
			}
		}
		switch k := key.Value.(type) {
		case string:
			next, ok := parseObject(string(raw))[k]
			if !ok {
				return raw
			}
			raw = next
		case float64:
			var list []json.RawMessage
			if json.Unmarshal(raw, &list) != nil || int(k) >= len(list) {
				return raw
			}
			raw = list[int(k)]
		default:
			return raw
		}
	}
	return raw
}

// StringLeaves are the strings in a JSON value.
func StringLeaves(raw json.RawMessage) []string {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return nil
	}
	return StringsIn(v)
}

// StringsIn are the strings in a decoded JSON value.
func StringsIn(v any) []string {
	var found []string
	switch v := v.(type) {
	case string:
		found = append(found, v)
	case []any:
		for _, x := range v {
			found = append(found, StringsIn(x)...)
		}
	case map[string]any:
		for _, x := range v {
			found = append(found, StringsIn(x)...)
		}
	}
	return found
}

// PushableOver reports whether terraform takes s in place of now without force.
func (s *State) PushableOver(now *State) bool {
	return s != nil && s.Exists() && (!now.Exists() || now.Lineage == s.Lineage && now.Serial < s.Serial)
}
