package task

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
)

// Resolve returns the parameters of the step with the outputs of other steps, by step id and name,
// in place of the references to them. It is a pure function, fit for workflow code.
//
// References to secrets stay, for the worker to resolve. Nothing else in the result reads as one:
// the "${" of an output, or of an escaped text, is written as "\u0024{", which is the same JSON but
// no reference to the worker, which searches the raw JSON. So the result must stay raw until then,
// as json.RawMessage does.
func (s Step) Resolve(outputs map[string]map[string]any) (json.RawMessage, error) {
	var problems Problems
	with := s.With
	if len(with) == 0 {
		with = json.RawMessage("{}")
	}
	if !json.Valid(with) {
		return nil, fmt.Errorf("steps.%s.with: is not JSON", s.ID)
	}
	root := readJSON(with, &collector{file: s.ID, problems: &problems})
	if len(problems) > 0 {
		return nil, fmt.Errorf("steps.%s.with: %w", s.ID, problems)
	}
	r := resolver{outputs: outputs}
	raw, err := r.append(nil, root)
	if err != nil {
		return nil, fmt.Errorf("steps.%s.with: %w", s.ID, err)
	}
	if len(raw) > MaxInline {
		return nil, fmt.Errorf(
			"steps.%s.with: has %s with its outputs filled in, more than %d; let the steps hand content over in a file, "+
				"named by source", s.ID, activities.CountOf(len(raw), "byte"), MaxInline)
	}
	return raw, nil
}

// maxSeen is how long a text may be to be in an Outlook: only what is short decides whether a step
// is refused.
const maxSeen = 4096

// Outlook returns the step as far as it is known before the task begins. It is a pure function, fit
// for workflow code.
func (s Step) Outlook() (activities.Outlook, error) {
	o := activities.Outlook{Step: activities.Step{ID: s.ID, Name: s.Name, Checks: s.Check}}
	raw := s.With
	if len(raw) == 0 {
		raw = json.RawMessage("{}")
	}
	var problems Problems
	root := readJSON(raw, &collector{file: s.ID, problems: &problems})
	if len(problems) > 0 {
		return o, fmt.Errorf("steps.%s.with: %w", s.ID, problems)
	}
	root, o.Later = prune(root, "")
	with, err := resolver{}.append(nil, root)
	if err != nil {
		return o, fmt.Errorf("steps.%s.with: %w", s.ID, err)
	}
	o.With = with
	return o, nil
}

// prune returns n without the parameters that are not known yet, or are long, and where they stand.
// A list that lacks an item is left out as a whole.
func prune(n *node, at string) (known *node, later []string) {
	m := *n
	switch n.kind {
	case text:
		t, bad := parseTemplate(n.text)
		if len(n.text) > maxSeen || bad == nil && slices.ContainsFunc(t, func(p part) bool { return p.kind == outputRef }) {
			return nil, []string{at}
		}
	case list:
		m.items = nil
		for i, item := range n.items {
			pruned, inside := prune(item, fmt.Sprintf("%s[%d]", at, i))
			if pruned == nil {
				return nil, []string{at}
			}
			m.items, later = append(m.items, pruned), append(later, inside...)
		}
	case object:
		m.fields = nil
		for _, f := range n.fields {
			name := f.key.text
			if at != "" {
				name = at + "." + name
			}
			pruned, inside := prune(f.value, name)
			if later = append(later, inside...); pruned != nil {
				m.fields = append(m.fields, field{f.key, pruned})
			}
		}
	}
	return &m, later
}

// References returns the ids of the steps whose outputs With refers to, sorted: what Resolve must
// be given. It is a pure function, fit for workflow code.
func (s Step) References() []string {
	// Compile writes no $ and no { as an escape.
	if !bytes.Contains(s.With, []byte("${{")) || !json.Valid(s.With) {
		return nil
	}
	var ids []string
	readJSON(s.With, &collector{problems: new(Problems)}).mapText(func(n *node) *node {
		t, _ := parseTemplate(n.text)
		for _, p := range t {
			if p.kind == outputRef {
				ids = append(ids, p.step)
			}
		}
		return n
	})
	slices.Sort(ids)
	return slices.Compact(ids)
}

// EntryParams returns the part of the resolved parameters that goes into the step's Entry.
func (s Step) EntryParams(with json.RawMessage) (json.RawMessage, error) {
	params, err := activities.EntryParams(with, s.UndoParams, s.Digested)
	if err != nil {
		return nil, fmt.Errorf("steps.%s.with: %w", s.ID, err)
	}
	return params, nil
}

type resolver struct {
	outputs map[string]map[string]any
}

// append appends n as JSON with its references resolved.
func (r resolver) append(to []byte, n *node) ([]byte, error) {
	var err error
	switch n.kind {
	case text:
		return r.text(to, n.text)
	case list:
		to = append(to, '[')
		for i, item := range n.items {
			if i > 0 {
				to = append(to, ',')
			}
			if to, err = r.append(to, item); err != nil {
				return nil, err
			}
		}
		return append(to, ']'), nil
	case object:
		to = append(to, '{')
		for i, f := range n.fields {
			if i > 0 {
				to = append(to, ',')
			}
			to = append(append(to, guard(appendText(nil, f.key.text))...), ':')
			if to, err = r.append(to, f.value); err != nil {
				return nil, err
			}
		}
		return append(to, '}'), nil
	}
	return n.json(to), nil
}

func (r resolver) text(to []byte, s string) ([]byte, error) {
	t, bad := parseTemplate(s)
	if bad != nil {
		return nil, bad
	}
	if ref, ok := t.whole(); ok && ref.kind == outputRef {
		v, err := r.output(ref)
		return append(to, guard(v)...), err
	}
	to = append(to, '"')
	for _, p := range t {
		switch p.kind {
		case literal:
			to = append(to, guard(appendTextBody(nil, p.text))...)
		case secretRef:
			to = append(to, "${{ secrets."+p.name+" }}"...)
		case outputRef:
			raw, err := r.output(p)
			if err != nil {
				return nil, err
			}
			if string(raw) == "null" {
				return nil, fmt.Errorf("%s: the output is nothing, and cannot be a part of a text", p.text)
			}
			value := string(raw)
			if raw[0] == '"' {
				if err := json.Unmarshal(raw, &value); err != nil {
					return nil, err
				}
			}
			to = append(to, guard(appendTextBody(nil, value))...)
		default:
			return nil, fmt.Errorf("%s: the step was not compiled", p.text)
		}
	}
	return append(to, '"'), nil
}

// output returns the value of an output as JSON.
func (r resolver) output(p part) ([]byte, error) {
	of, ran := r.outputs[p.step]
	if !ran {
		return nil, fmt.Errorf("%s: it is known when step %s has run", p.text, p.step)
	}
	v, has := of[p.name]
	if !has {
		return nil, fmt.Errorf("%s: there is no such output; %s", p.text,
			suggestOrList(p.name, sortedKeys(of), "outputs of step "+p.step))
	}
	return json.Marshal(v)
}

// guard writes each $ that could begin a reference, alone or with what follows it, as \u0024. In
// JSON a $ stands only in texts.
func guard(raw []byte) []byte {
	raw = bytes.ReplaceAll(raw, []byte("${"), []byte(`\u0024{`))
	if bytes.HasSuffix(raw, []byte("$")) {
		raw = append(raw[:len(raw)-1:len(raw)-1], `\u0024`...)
	}
	return raw
}
