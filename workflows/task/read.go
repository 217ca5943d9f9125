package task

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/seed-62bf7108/unwind/activities"
)

// readSource makes a tree from a source; nil if it cannot be read.
//
// JSON has a reader of its own, because YAML folds some characters in strings and has no surrogate
// pairs.
func readSource(src []byte, c *collector) *node {
	if len(src) > MaxFile {
		c.complain(nil, nil, "", fmt.Sprintf("the file has %s, more than %d", activities.CountOf(len(src), "byte"), MaxFile),
			"split the task, or keep large content in files of its own and name them with source:")

		return nil
	}
	var n *node
	braced := bytes.HasPrefix(bytes.TrimLeft(src, " \t\r\n"), []byte("{"))
	if braced && json.Valid(src) {
		n = readJSON(src, c)
	} else if n = readYAML(src, c); n == nil && braced {
		*c.problems = nil
		explainJSON(src, c)
	}
	if len(*c.problems) > 0 {
		return nil
	}
	checkMaps(n, nil, c)
	return n
}

// checkMaps checks what must hold of every map in the file.
func checkMaps(n *node, at *trail, c *collector) {
	for i, item := range n.items {
		checkMaps(item, at.step(i, item.findValue("id")), c)
	}
	var lines map[string]int
	if len(n.fields) > 0 {
		lines = make(map[string]int, len(n.fields))
	}
	for _, f := range n.fields {
		if c.full() {
			return
		}
		name := f.key.text
		if line, twice := lines[name]; twice {
			c.complain(f.key, at.key(name), "", fmt.Sprintf("stands here a second time; the first is in line %d", line),
				"keep one of them")
		}
		lines[name] = f.key.line
		switch {
		case utf8.RuneCountInString(name) > MaxKey:
			c.complain(f.key, at.key(name), "", fmt.Sprintf("a key has at most %d characters", MaxKey), "shorten it")
		case strings.Contains(name, "${{"):
			c.complain(f.key, at.key(name), strconv.Quote(clip(name)), "a key cannot hold an expression", "write the key out")
		}
		checkMaps(f.value, at.key(name), c)
	}
}

// readJSON reads what json.Valid accepts.
func readJSON(src []byte, c *collector) *node {
	r := &jsonReader{collector: c, src: src, dec: json.NewDecoder(bytes.NewReader(src)), line: 1, column: 1}
	r.dec.UseNumber()
	return r.readValue(0)
}

// explainJSON says why src is not JSON.
func explainJSON(src []byte, c *collector) {
	r := jsonReader{collector: c, src: src, line: 1, column: 1}
	err := json.Unmarshal(src, new(any))
	if bad, ok := errors.AsType[*json.SyntaxError](err); ok {
		r.advance(min(len(src), max(0, int(bad.Offset)-1)))
	}
	c.complain(&node{line: r.line, column: r.column}, nil, "", fmt.Sprintf("is not JSON: %v", err), "")
}

type jsonReader struct {
	*collector
	src          []byte
	dec          *json.Decoder
	offset       int // line and column are those of this offset
	line, column int
}

// readToken reads the next token; n is a scalar, or the beginning of a list or map.
func (r *jsonReader) readToken() (t json.Token, n *node) {
	for r.offset < len(r.src) && strings.IndexByte(" \t\r\n,:", r.src[r.offset]) >= 0 {
		r.advance(r.offset + 1)
	}
	n = &node{line: r.line, column: r.column}
	t, err := r.dec.Token()
	if err != nil {
		r.complain(n, nil, "", "is not JSON: "+err.Error(), "")
		return nil, n
	}
	start := r.offset
	r.advance(int(r.dec.InputOffset()))
	switch v := t.(type) {
	case string:
		n.kind, n.text = text, v
	case bool:
		n.kind, n.text = boolean, strconv.FormatBool(v)
	case json.Number:
		n.kind, n.text = number, v.String()
		if _, err := v.Float64(); err != nil {
			r.complain(n, nil, clip(n.text), "this number is too large", "write it as text, in quotes")
		}
	}
	n.source = string(r.src[start:r.offset])
	return t, n
}

func (r *jsonReader) advance(to int) {
	for r.offset < to {
		ch, size := utf8.DecodeRune(r.src[r.offset:])
		r.offset += size
		r.column++
		if ch == '\n' {
			r.line, r.column = r.line+1, 1
		}
	}
}

func (r *jsonReader) readValue(depth int) *node {
	t, n := r.readToken()
	if depth > MaxDepth {
		r.complain(n, nil, "", fmt.Sprintf("lists and maps are nested deeper than %d", MaxDepth), "flatten them")
		return n
	}
	switch t {
	case json.Delim('['):
		n.kind = list
		for r.dec.More() && len(*r.problems) == 0 {
			n.items = append(n.items, r.readValue(depth+1))
		}
		r.readToken()
	case json.Delim('{'):
		n.kind = object
		for r.dec.More() && len(*r.problems) == 0 {
			_, key := r.readToken()
			n.fields = append(n.fields, field{key, r.readValue(depth + 1)})
		}
		r.readToken()
	}
	return n
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?`)

func readYAML(src []byte, c *collector) *node {
	dec := yaml.NewDecoder(bytes.NewReader(src))
	var doc, second yaml.Node
	err := dec.Decode(&doc)
	if err == nil && doc.Kind == yaml.DocumentNode && len(doc.Content) == 1 {
		n := yamlReader{c}.readValue(doc.Content[0], nil, 0)
		if err = dec.Decode(&second); errors.Is(err, io.EOF) {
			return n
		}
		if err == nil {
			c.complain(&node{line: second.Line, column: second.Column}, nil, "", "a second document begins here",
				"a file holds one task")
			return nil
		}
	}
	if err == nil || errors.Is(err, io.EOF) {
		c.complain(nil, nil, "", "the file is empty", "begin with name: and steps:")
		return nil
	}
	line, message := ExplainYAML(src, err)
	c.complain(&node{line: line, column: 1}, nil, "", message, "")
	return nil
}

// ExplainYAML says in which line a file is not YAML, and why.
func ExplainYAML(src []byte, err error) (line int, message string) {
	m := yamlLine.FindStringSubmatch(err.Error())
	line, _ = strconv.Atoi(m[1])
	line, message = max(1, line), "is not YAML: "+strings.TrimPrefix(err.Error(), m[0])
	lines := strings.Split(string(src), "\n")
	for _, near := range []int{line, line + 1, line - 1} { // the reader tells where the context of a mistake begins
		if near < 1 || near > len(lines) {
			continue
		}
		text := lines[near-1]
		if indent := text[:len(text)-len(strings.TrimLeft(text, " \t"))]; strings.Contains(indent, "\t") {
			return near, "is not YAML: a tab stands in the indentation; indent with spaces"
		}
	}
	return line, message
}

// idOf is the id of a step that has not been read yet; nil if it has none.
func idOf(y *yaml.Node) *node {
	for i := 0; y.Kind == yaml.MappingNode && i+1 < len(y.Content); i += 2 {
		if y.Content[i].Value == "id" {
			return &node{kind: text, text: y.Content[i+1].Value}
		}
	}
	return nil
}

type yamlReader struct{ *collector }

func (r yamlReader) readValue(y *yaml.Node, at *trail, depth int) *node {
	n := &node{line: y.Line, column: y.Column, source: y.Value}
	switch {
	case depth > MaxDepth:
		r.complain(n, nil, "", fmt.Sprintf("lists and maps are nested deeper than %d", MaxDepth), "flatten them")
		return n
	case y.Kind == yaml.AliasNode:
		r.complain(n, at, "*"+y.Value, "aliases are not allowed", "write the value out, or use vars:")
		return n
	case y.Anchor != "":
		r.complain(n, at, "&"+y.Anchor, "anchors are not allowed", "leave it out, or use vars:")
	}
	switch y.Kind {
	case yaml.SequenceNode:
		n.kind = list
		r.checkTag(y, n, at, "!!seq")
		for i, item := range y.Content {
			n.items = append(n.items, r.readValue(item, at.step(i, idOf(item)), depth+1))
		}
	case yaml.MappingNode:
		n.kind = object
		r.checkTag(y, n, at, "!!map")
		for i := 0; i+1 < len(y.Content); i += 2 {
			k := y.Content[i]
			key := &node{kind: text, line: k.Line, column: k.Column, text: k.Value}
			switch {
			case k.Kind != yaml.ScalarNode:
				r.complain(key, at, "", "a key must be text", "write it out")
				continue
			case k.ShortTag() == "!!merge":
				r.complain(key, at, "<<", "merge keys are not allowed", "write the fields out, or use vars:")
				continue
			case k.Anchor != "":
				r.complain(key, at, "&"+k.Anchor, "anchors are not allowed", "leave it out")
			}
			n.fields = append(n.fields, field{key, r.readValue(y.Content[i+1], at.key(k.Value), depth+1)})
		}
	default:
		r.readScalar(y, n, at)
	}
	return n
}

func (r yamlReader) readScalar(y *yaml.Node, n *node, at *trail) {
	r.checkTag(y, n, at, "!!str", "!!int", "!!float", "!!bool", "!!null")
	switch y.ShortTag() {
	case "!!null":
		n.kind = null
		return
	case "!!bool", "!!int", "!!float":
		var v any
		if err := y.Decode(&v); err != nil {
			r.complain(n, at, strconv.Quote(clip(y.Value)), "does not fit its tag "+y.ShortTag(), "leave the tag out")
			return
		}
		n.kind = number
		switch v := v.(type) {
		case bool:
			n.kind = boolean
		case float64:
			if math.IsInf(v, 0) || math.IsNaN(v) {
				r.complain(n, at, y.Value, "is not a number that JSON has", "write it as text, in quotes")
				return
			}
		}
		raw, _ := json.Marshal(v) // one of bool, int, int64, uint64, float64
		n.text = string(raw)
	default: // dates, too, are text here
		n.kind, n.text = text, y.Value
	}
}

// checkTag refuses explicit tags that have no meaning here.
func (r yamlReader) checkTag(y *yaml.Node, n *node, at *trail, allowed ...string) {
	if y.Style&yaml.TaggedStyle == 0 {
		return
	}
	for _, a := range allowed {
		if y.ShortTag() == a {
			return
		}
	}
	r.complain(n, at, y.Tag, "this tag is not allowed", "leave it out")
}
