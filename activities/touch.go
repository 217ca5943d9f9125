package activities

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Touch is a resource that a step changes, or only reads. One of Path and Name is set.
type Touch struct {
	// Path is an absolute path on the step's host. A folder stands for everything below it.
	Path string
	// Name names anything else, in the same way however a step calls it: "container:" with the full
	// id.
	Name  string
	Reads bool
}

// Toucher is a Preflighter that names what a step touches besides the paths that its Spec names:
// what only the world itself can tell.
type Toucher interface {
	// Touches looks at the resource as it is before the task's first step acts, and touches nothing.
	Touches(ctx context.Context, o Outlook) ([]Touch, error)
}

// Touched are the canonical names of what a step touches: two steps touch the same if they have a
// name in common, or if one of them has the name of a folder in which the other's is. Names are of
// one namespace over all worlds: "file:" and a path, "container:", "volume:".
type Touched struct {
	Step    string   `json:"step"`
	Changes []string `json:"changes,omitempty"`
	Reads   []string `json:"reads,omitempty"`
	// Keys are the keys that the step's Spec makes of its parameters, of a step that is about to run.
	Keys []string `json:"keys,omitempty"`
}

// KeysOf returns the keys that the Spec of an action makes of parameters that are known; nil if it
// can name none.
func (r *Registry) KeysOf(action string, params json.RawMessage) []string {
	var with any
	a := r.actions[action]
	if a == nil || a.Spec().Keys == nil || json.Unmarshal(params, &with) != nil {
		return nil
	}
	keys := []string{}
	for _, k := range a.Spec().Keys {
		for _, value := range textsAt(with, k.Param) {
			if k.Path {
				value = path.Clean(value)
			}
			keys = append(keys, k.Prefix+value)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// Touches returns what a step is going to touch, as far as its parameters are known.
func (r *Registry) Touches(ctx context.Context, action string, o Outlook) (touches []Touch, err error) {
	a := r.actions[action]
	if a == nil {
		return nil, nil
	}
	defer func() {
		if v := recover(); v != nil {
			touches, err = nil, fmt.Errorf("the action panicked: %v", v)
		}
	}()
	spec := a.Spec()
	var with any
	if err := json.Unmarshal(o.With, &with); err != nil {
		return nil, err
	}
	add := func(p string, reads bool) {
		if path.IsAbs(p) {
			touches = append(touches, Touch{Path: p, Reads: reads})
		}
	}
	for _, k := range spec.Keys {
		for _, value := range textsAt(with, k.Param) {
			if k.Path {
				add(value, spec.ReadOnly)
			}
		}
	}
	for _, param := range spec.Reads {
		for _, value := range textsAt(with, param) {
			add(value, true)
		}
	}
	if len(touches) > 0 { // files are where the checks look; elsewhere their paths are those of another root
		for _, c := range o.Checks {
			for _, read := range c.reads() {
				add(read, true)
			}
		}
	}
	if t, ok := a.(Toucher); ok {
		more, err := t.Touches(ctx, o)
		return append(touches, more...), err
	}
	return touches, nil
}

// reads returns what may be a path that a check reads.
func (c Check) reads() (paths []string) {
	if c.JSON != nil {
		paths = append(paths, c.JSON.File)
	}
	if c.Syntax != nil {
		paths = append(paths, c.Syntax.File)
	}
	if c.Exists != nil {
		paths = append(paths, c.Exists.Path)
	}
	if c.Command != nil {
		for _, arg := range c.Command.Run {
			_, value, _ := strings.Cut(arg, "=") // --name=value
			paths = append(paths, arg, value)
		}
	}
	return paths
}

// textsAt returns the texts at a dotted path into parameters; "*" is each item of a list.
func textsAt(value any, param string) []string {
	if text, ok := value.(string); ok && param == "" {
		return []string{text}
	}
	name, rest, _ := strings.Cut(param, ".")
	switch v := value.(type) {
	case []any:
		var all []string
		for _, item := range v {
			all = append(all, textsAt(item, rest)...)
		}
		return all
	case map[string]any:
		return textsAt(v[name], rest)
	}
	return nil
}
