package task

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// parser makes typed values of nodes, and collects what is wrong with them.
type parser struct {
	collector
	// resolved says that expressions were replaced: a "${{" that is left is text.
	resolved bool
}

func (p *parser) at(name string) *trail { return &trail{name: name} }

// is says whether n is of a kind; it complains about another one.
func (p *parser) is(n *node, at *trail, k kind, fix string) bool {
	if n.kind != k {
		if n.kind == null {
			fix = "give it a value, or leave it out"
		}
		p.add(n, at, n.shown(), "must be "+k.String(), fix)
		return false
	}
	return true
}

// templated says whether n holds an expression, so that its value is not known yet.
func (p *parser) templated(n *node) bool { return !p.resolved && strings.Contains(n.text, "${{") }

// text reads text of a length.
func (p *parser) text(n *node, at *trail, limit int) string {
	fix := ""
	if n.kind == number || n.kind == boolean {
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
	case n.kind != text:
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

// form reads text of a form.
func (p *parser) form(n *node, at *trail, form *regexp.Regexp, message string) string {
	s := p.text(n, at, MaxFile)
	if n.kind == text && !form.MatchString(s) {
		p.add(n, at, n.shown(), message, "rename it")
		return ""
	}
	return s
}
