package task

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// parser makes typed values of nodes, and collects what is wrong with them. All its methods take a nil node for a field
// that is not there.
type parser struct {
	collector
	// resolved says that expressions were replaced: a "${{" that is left is text.
	resolved bool
}

func (p *parser) at(name string) *trail { return &trail{name: name} }

// is says whether n is there and of a kind; it complains about another kind.
func (p *parser) is(n *node, at *trail, k kind, fix string) bool {
	if n == nil {
		return false
	}
	if n.kind != k {
		if n.kind == null {
			fix = "give it a value, or leave it out"
		}
		p.add(n, at, n.shown(), "must be "+k.String(), fix)
		return false
	}
	return true
}

// fields is the values of a map by name; it complains about those that are not known. Nil where n is no map.
func (p *parser) fields(n *node, at *trail, known ...string) map[string]*node {
	if !p.is(n, at, object, "it has the fields "+strings.Join(known, ", ")) {
		return nil
	}
	values := make(map[string]*node, len(n.fields))
	for _, f := range n.fields {
		if !slices.Contains(known, f.key.text) {
			p.add(f.key, at.key(f.key.text), "", "unknown field", meant(f.key.text, known, "known are"))
			continue
		}
		values[f.key.text] = f.value
	}
	return values
}

func (p *parser) required(parent *node, values map[string]*node, at *trail, name, fix string) bool {
	if values[name] == nil {
		p.add(parent, at.key(name), "", "is missing", "add "+fix)
		return false
	}
	return true
}

// templated says whether n holds an expression, so that its value is not known yet.
func (p *parser) templated(n *node) bool { return !p.resolved && strings.Contains(n.text, "${{") }

// text reads text of a length.
func (p *parser) text(n *node, at *trail, limit int) string {
	fix := ""
	if n != nil && (n.kind == number || n.kind == boolean) {
		fix = `write it in quotes: "` + n.source + `"`
	}
	if !p.is(n, at, text, fix) {
		return ""
	}
	if size := utf8.RuneCountInString(n.text); size > limit && !p.templated(n) {
		p.add(n, at, "", fmt.Sprintf("has %d characters, more than %d", size, limit), "shorten it")
	}
	return n.text
}

// line reads one line of text, not empty.
func (p *parser) line(n *node, at *trail, limit int) string {
	s := p.text(n, at, limit)
	switch {
	case n == nil || n.kind != text:
	case strings.TrimSpace(s) == "":
		p.add(n, at, n.shown(), "is empty", "give it a value, or leave it out")
	case strings.ContainsFunc(s, unicode.IsControl):
		p.add(n, at, n.shown(), "must be one line without control characters", "write it on one line")
	}
	return s
}

// word reads one of a few words.
func (p *parser) word(n *node, at *trail, known ...string) string {
	if !p.is(n, at, text, "one of "+strings.Join(known, ", ")) {
		return ""
	}
	if !slices.Contains(known, n.text) {
		p.add(n, at, n.shown(), "must be one of "+strings.Join(known, ", "), nearest(n.text, known))
		return ""
	}
	return n.text
}

// count reads a whole number from 1 to limit. fix says what to write where it is none.
func (p *parser) count(n *node, at *trail, limit int, fix string) int {
	if !p.is(n, at, number, fix) {
		return 0
	}
	f, err := strconv.ParseFloat(n.text, 64)
	if err != nil || f != math.Trunc(f) || f < 1 || f > float64(limit) {
		p.add(n, at, n.shown(), fmt.Sprintf("must be a whole number from 1 to %d", limit), fix)
		return 0
	}
	return int(f)
}

// boolean reads true or false; false where it is left out.
func (p *parser) boolean(n *node, at *trail) bool {
	return p.is(n, at, boolean, "write true, or leave it out") && n.text == "true"
}

func (p *parser) duration(n *node, at *trail) time.Duration {
	const fix = "write it like 30s, 5m, 2h, 3d or 1h30m"
	if !p.is(n, at, text, fix) {
		return 0
	}
	d, ok := parseDuration(n.text)
	if !ok {
		p.add(n, at, n.shown(), "must be a time longer than zero and at most 3650d", fix)
	}
	return d
}
