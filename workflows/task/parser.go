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

	"github.com/seed-62bf7108/unwind/activities"
)

// parser makes typed values of nodes, and collects what is wrong with them.
type parser struct {
	collector
	// resolved: expressions were replaced, so a "${{" that is left is text.
	resolved bool
}

func (p *parser) newTrail(name string) *trail { return &trail{name: name} }

// requireKind says whether n is of a kind, and complains about another one.
func (p *parser) requireKind(n *node, at *trail, k kind, fix string) bool {
	if n.kind != k {
		if n.kind == null {
			fix = "give it a value, or leave it out"
		}
		p.complain(n, at, n.display(), "must be "+k.String(), fix)
		return false
	}
	return true
}

// templated says whether n holds an expression, so that its value is not known yet.
func (p *parser) templated(n *node) bool { return !p.resolved && strings.Contains(n.text, "${{") }

// readText reads text of at most limit characters.
func (p *parser) readText(n *node, at *trail, limit int) string {
	fix := ""
	if n.kind == number || n.kind == boolean {
		fix = `write it in quotes: "` + n.source + `"`
	}
	if !p.requireKind(n, at, text, fix) {
		return ""
	}
	if size := utf8.RuneCountInString(n.text); size > limit && !p.templated(n) {
		p.complain(n, at, "", fmt.Sprintf("has %s, more than %d", activities.CountOf(size, "character"), limit), "shorten it")
	}
	return n.text
}

// readLine reads one line of text, not empty.
func (p *parser) readLine(n *node, at *trail, limit int) string {
	s := p.readText(n, at, limit)
	switch {
	case n.kind != text:
	case strings.TrimSpace(s) == "":
		p.complain(n, at, n.display(), "is empty", "give it a value, or leave it out")
	case strings.ContainsFunc(s, unicode.IsControl):
		p.complain(n, at, n.display(), "must be one line without control characters", "write it on one line")
	}
	return s
}

// readWord reads one of a few words.
func (p *parser) readWord(n *node, at *trail, known ...string) string {
	if !p.requireKind(n, at, text, "one of "+strings.Join(known, ", ")) {
		return ""
	}
	if !slices.Contains(known, n.text) {
		p.complain(n, at, n.display(), "must be one of "+strings.Join(known, ", "), SuggestNearest(n.text, known))
		return ""
	}
	return n.text
}

// readCount reads a whole number from 1 to limit. fix says what to write instead of anything else.
func (p *parser) readCount(n *node, at *trail, limit int, fix string) int {
	if !p.requireKind(n, at, number, fix) {
		return 0
	}
	f, err := strconv.ParseFloat(n.text, 64)
	if err != nil || f != math.Trunc(f) || f < 1 || f > float64(limit) {
		p.complain(n, at, n.display(), fmt.Sprintf("must be a whole number from 1 to %d", limit), fix)
		return 0
	}
	return int(f)
}

// readForm reads text that matches form.
func (p *parser) readForm(n *node, at *trail, form *regexp.Regexp, message string) string {
	s := p.readText(n, at, MaxFile)
	if n.kind == text && !form.MatchString(s) {
		p.complain(n, at, n.display(), message, "rename it")
		return ""
	}
	return s
}
