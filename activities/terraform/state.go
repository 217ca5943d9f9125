package terraform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
)

// state is the part of a Terraform state (format 4) that matters here.
type state struct {
	Version   int                    `json:"version"`
	Serial    uint64                 `json:"serial"`
	Lineage   string                 `json:"lineage"`
	Outputs   map[string]stateOutput `json:"outputs"`
	Resources []stateResource        `json:"resources"`

	raw []byte
}

type stateOutput struct {
	Value     json.RawMessage `json:"value"`
	Sensitive bool            `json:"sensitive"`
}

type stateResource struct {
	Module    string          `json:"module"`
	Mode      string          `json:"mode"`
	Type      string          `json:"type"`
	Name      string          `json:"name"`
	Instances []stateInstance `json:"instances"`
}

type stateInstance struct {
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

// parseState reads a state; no bytes are an empty one, as for terraform.
func parseState(raw []byte) (*state, error) {
	s := &state{raw: raw}
	if len(bytes.TrimSpace(raw)) == 0 {
		return s, nil
	}
	if err := json.Unmarshal(raw, s); err != nil {
		return nil, fmt.Errorf("the state cannot be read: %w; restore it, or remove it, and run the undo again", err)
	}
	if s.Version != 4 {
		return nil, activities.Errorf(activities.UnknownFormat, "the state has format %d; this worker reads format 4", s.Version)
	}
	return s, nil
}

// exists reports whether there is a state at all.
func (s *state) exists() bool { return s.Lineage != "" }

// empty reports whether nothing is managed.
func (s *state) empty() bool { return len(s.managed()) == 0 && len(s.Outputs) == 0 }

// managed maps the addresses of the managed objects to their canonical attributes.
func (s *state) managed() map[string]string {
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

// tainted maps the addresses of the managed objects to whether terraform calls them tainted; deposed ones are left out.
func (s *state) tainted() map[string]bool {
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

// address is the instance's address as terraform prints it; that of a deposed object includes its key.
func (r stateResource) address(i stateInstance) string {
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
func (s *state) outputs() map[string]string {
	all := map[string]string{}
	for name, o := range s.Outputs {
		all[name] = canonicalJSON(o.Value)
	}
	return all
}

// digest covers resources, attributes and outputs; not serial, lineage and data sources.
func (s *state) digest() activities.Digest {
	b, _ := json.Marshal([]any{s.managed(), s.outputs()}) // maps of strings come out sorted
	return activities.DigestOf(b)
}

// same reports whether two states have the same resources, attributes and outputs.
func (s *state) same(o *state) bool { return s.digest() == o.digest() }

// changes lists what differs from s to o: addresses and names of outputs, never values.
func (s *state) changes(o *state) []string {
	lines := diffValues(s.managed(), o.managed(), "")
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

// sensitive are the texts in s that must not be shown.
func (s *state) sensitive() []string {
	var found []string
	for _, o := range s.Outputs {
		if o.Sensitive {
			found = append(found, stringLeaves(o.Value)...)
		}
	}
	for _, r := range s.Resources {
		for _, i := range r.Instances {
			for _, path := range i.Sensitive {
				found = append(found, stringLeaves(path.in(i.Attributes))...)
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

// stringLeaves are the strings in a JSON value.
func stringLeaves(raw json.RawMessage) []string {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return nil
	}
	return leavesOf(v)
}

func leavesOf(v any) []string {
	var found []string
	switch v := v.(type) {
	case string:
		found = append(found, v)
	case []any:
		for _, x := range v {
			found = append(found, leavesOf(x)...)
		}
	case map[string]any:
		for _, x := range v {
			found = append(found, leavesOf(x)...)
		}
	}
	return found
}
