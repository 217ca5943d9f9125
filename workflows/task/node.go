package task

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/seed-62bf7108/unwind/workflows/payload"
)

// kind is the type of a node, in JSON's terms.
type kind uint8

const (
	null kind = iota
	boolean
	number
	text
	list
	object
)

func (k kind) String() string {
	return [...]string{"nothing", "true or false", "a number", "text", "a list", "a map"}[k]
}

// node is a value of a task file, YAML or JSON, with the position that it was written at. Nodes
// never change once they are read.
type node struct {
	kind         kind
	line, column int
	// text is a text's value, and the JSON of a number or boolean.
	text string
	// source is how a scalar was written, for messages.
	source string
	items  []*node
	fields []field
	origin *origin // of a step, where the task has groups
}

// field is a key of a map, in file order.
type field struct {
	key   *node
	value *node
}

// findValue returns the value of a key, or nil.
func (n *node) findValue(name string) *node {
	if n == nil {
		return nil
	}
	for _, f := range n.fields {
		if f.key.text == name {
			return f.value
		}
	}
	return nil
}

// moveTo returns n with the position of at.
func (n *node) moveTo(at *node) *node {
	m := *n
	m.line, m.column = at.line, at.column
	return &m
}

// display returns n as a message shows it.
func (n *node) display() string {
	switch n.kind {
	case text:
		return strconv.Quote(clip(n.text))
	case number, boolean:
		return clip(n.source)
	case list:
		if len(n.items) == 0 {
			return "an empty list"
		}
	case object:
		if len(n.fields) == 0 {
			return "an empty map"
		}
	}
	return n.kind.String()
}

// clip keeps a value short enough for an error.
func clip(s string) string { return payload.Clip(s, 60) }

// size returns the number of bytes of n as JSON.
func (n *node) size() int { return len(n.json(nil)) }

// json appends n as JSON, keys in file order.
func (n *node) json(to []byte) []byte {
	switch n.kind {
	case null:
		return append(to, "null"...)
	case boolean, number:
		return append(to, n.text...)
	case text:
		return appendText(to, n.text)
	case list:
		to = append(to, '[')
		for i, item := range n.items {
			if i > 0 {
				to = append(to, ',')
			}
			to = item.json(to)
		}
		return append(to, ']')
	default:
		to = append(to, '{')
		for i, f := range n.fields {
			if i > 0 {
				to = append(to, ',')
			}
			to = append(appendText(to, f.key.text), ':')
			to = f.value.json(to)
		}
		return append(to, '}')
	}
}

// appendText appends s as a JSON string.
func appendText(to []byte, s string) []byte {
	return append(appendTextBody(append(to, '"'), s), '"')
}

// appendTextBody appends s as what stands between the quotes of a JSON string.
func appendTextBody(to []byte, s string) []byte {
	for _, r := range s { // a byte that is no UTF-8 comes as U+FFFD
		switch {
		case r == '"' || r == '\\':
			to = append(to, '\\', byte(r))
		case r == '\n':
			to = append(to, `\n`...)
		case r == '\t':
			to = append(to, `\t`...)
		case r < 0x20 || r == 0x7f || r == 0x2028 || r == 0x2029:
			const digits = "0123456789abcdef"
			to = append(to, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
		default:
			to = utf8.AppendRune(to, r)
		}
	}
	return to
}

// value returns n as encoding/json would decode it.
func (n *node) value() any {
	switch n.kind {
	case boolean:
		return n.text == "true"
	case number:
		f, _ := strconv.ParseFloat(n.text, 64) // the reader has seen to it that it is one
		return f
	case text:
		return n.text
	case list:
		items := make([]any, len(n.items))
		for i, item := range n.items {
			items[i] = item.value()
		}
		return items
	case object:
		m := make(map[string]any, len(n.fields))
		for _, f := range n.fields {
			m[f.key.text] = f.value.value()
		}
		return m
	}
	return nil
}

// mapText returns n with f applied to every text in it but the keys.
func (n *node) mapText(f func(*node) *node) *node {
	switch n.kind {
	case text:
		return f(n)
	case list:
		m := *n
		m.items = make([]*node, len(n.items))
		for i, item := range n.items {
			m.items[i] = item.mapText(f)
		}
		return &m
	case object:
		m := *n
		m.fields = make([]field, len(n.fields))
		for i, fd := range n.fields {
			m.fields[i] = field{fd.key, fd.value.mapText(f)}
		}
		return &m
	}
	return n
}

// nodeOf makes a node from a Go value; all of it has the position of at.
func nodeOf(v any, at *node) (*node, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var unread Problems
	n := readJSON(raw, &collector{problems: &unread})
	if len(unread) > 0 {
		return nil, unread
	}
	var place func(*node)
	place = func(n *node) {
		n.line, n.column = at.line, at.column
		for _, item := range n.items {
			place(item)
		}
		for _, f := range n.fields {
			place(f.value)
		}
	}
	place(n)
	return n, nil
}

// trail says where a node stands: steps.configure.with.path, or steps[2].with.path where the step
// has no id.
type trail struct {
	parent *trail
	name   string
	index  int // where name is empty
}

func (p *trail) key(name string) *trail { return &trail{parent: p, name: name} }
func (p *trail) item(i int) *trail      { return &trail{parent: p, index: i} }

// step is the trail of an item of a list. A step has the name that people and other errors know it
// by: its id.
func (p *trail) step(i int, id *node) *trail {
	if p != nil && p.parent == nil && p.name == "steps" && id != nil && id.kind == text && idForm.MatchString(id.text) {
		return p.key(id.text)
	}
	return p.item(i)
}

func (p *trail) String() string {
	if p == nil {
		return ""
	}
	before := p.parent.String()
	switch {
	case p.name == "":
		return before + "[" + strconv.Itoa(p.index) + "]"
	case strings.ContainsFunc(p.name, func(r rune) bool { return r <= ' ' || strings.ContainsRune(`.[]"'{}$:`, r) }):
		return before + "[" + strconv.Quote(clip(p.name)) + "]"
	case before == "":
		return clip(p.name)
	}
	return before + "." + clip(p.name)
}
