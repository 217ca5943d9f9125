package task

import (
	"fmt"
	"regexp"
	"strings"
)

// refKind says what a part of a template stands for.
type refKind uint8

const (
	literal   refKind = iota // text as it is
	varRef                   // ${{ vars.name }}
	outputRef                // ${{ steps.step.outputs.name }}
	secretRef                // ${{ secrets.name }}
	targetRef                // ${{ target }} or ${{ target.name }}, in a group
)

// part is a literal or a reference.
type part struct {
	kind refKind
	// text is a literal's text, and a reference as it was written.
	text string
	step string
	name string
}

// template is a text split into literals and references. No two literals follow each other.
type template []part

const (
	varPattern    = `[A-Za-z_][A-Za-z0-9_-]{0,99}`
	secretPattern = `[A-Za-z_][A-Za-z0-9_]{0,99}`
)

var (
	varExpression    = regexp.MustCompile(`^vars\.(` + varPattern + `)$`)
	outputExpression = regexp.MustCompile(`^steps\.(` + idPattern + `)\.outputs\.(` + varPattern + `)$`)
	secretExpression = regexp.MustCompile(`^secrets\.(` + secretPattern + `)$`)
	targetExpression = regexp.MustCompile(`^target(?:\.(` + varPattern + `))?$`)
)

const expressionForms = "write ${{ vars.NAME }}, ${{ steps.ID.outputs.NAME }} or ${{ secrets.NAME }}; for the text " +
	"itself write $${{"

// badExpression is what parseTemplate refuses.
type badExpression struct{ found, message string }

func (e *badExpression) Error() string {
	return fmt.Sprintf("%s, found %q; %s", e.message, e.found, expressionForms)
}

// parseTemplate splits s. "$${{" is the text "${{"; ${{ 'text' }} is text too, with a doubled quote
// for a quote.
func parseTemplate(s string) (template, *badExpression) {
	var t joiner
	for s != "" {
		i := strings.Index(s, "${{")
		if i < 0 {
			t.joinPart(part{text: s})
			break
		}
		if i > 0 && s[i-1] == '$' {
			t.joinPart(part{text: s[:i-1]})
			t.joinPart(part{text: "${{"})
			s = s[i+3:]
			continue
		}
		t.joinPart(part{text: s[:i]})
		p, rest, bad := parseExpression(s[i:])
		if bad != nil {
			return nil, bad
		}
		t.joinPart(p)
		s = rest
	}
	return t.template(), nil
}

// joiner builds a template from parts; literals that follow each other become one.
type joiner struct {
	parts   template
	literal strings.Builder
}

func (j *joiner) joinPart(p part) {
	if p.kind == literal {
		j.literal.WriteString(p.text)
		return
	}
	j.parts = append(j.template(), p)
	j.literal.Reset()
}

func (j *joiner) template() template {
	if j.literal.Len() == 0 {
		return j.parts
	}
	return append(j.parts, part{text: j.literal.String()})
}

// parseExpression reads the expression at the start of s.
func parseExpression(s string) (p part, rest string, bad *badExpression) {
	body := strings.TrimLeft(s[3:], " \t\r\n")
	if strings.HasPrefix(body, "'") {
		return parseQuoted(s, body[1:])
	}
	inner, rest, closed := strings.Cut(s[3:], "}}")
	if !closed {
		return p, "", &badExpression{clip(s), "an expression is not closed with }}"}
	}
	p.text = s[:len(s)-len(rest)]
	inner = strings.Trim(inner, " \t\r\n")
	if m := varExpression.FindStringSubmatch(inner); m != nil {
		p.kind, p.name = varRef, m[1]
	} else if m := outputExpression.FindStringSubmatch(inner); m != nil {
		p.kind, p.step, p.name = outputRef, m[1], m[2]
	} else if m := secretExpression.FindStringSubmatch(inner); m != nil {
		p.kind, p.name = secretRef, m[1]
	} else if m := targetExpression.FindStringSubmatch(inner); m != nil {
		p.kind, p.name = targetRef, m[1]
	} else {
		return p, "", &badExpression{clip(p.text), "is not an expression that is known here"}
	}
	return p, rest, nil
}

// parseQuoted reads ${{ 'text' }}; body is what follows its first quote.
func parseQuoted(s, body string) (p part, rest string, bad *badExpression) {
	var b strings.Builder
	for {
		before, after, closed := strings.Cut(body, "'")
		if !closed {
			return p, "", &badExpression{clip(s), "a quoted text in an expression is not closed with '"}
		}
		b.WriteString(before)
		if strings.HasPrefix(after, "'") {
			b.WriteByte('\'')
			body = after[1:]
			continue
		}
		rest, closed = strings.CutPrefix(strings.TrimLeft(after, " \t\r\n"), "}}")
		if !closed {
			return p, "", &badExpression{clip(s), "an expression is not closed with }}"}
		}
		return part{text: b.String()}, rest, nil
	}
}

// plain returns the text of a template without references.
func (t template) plain() (string, bool) {
	switch {
	case len(t) == 0:
		return "", true
	case len(t) == 1 && t[0].kind == literal:
		return t[0].text, true
	}
	return "", false
}

// whole returns the reference that is all of the template.
func (t template) whole() (part, bool) {
	if len(t) == 1 && t[0].kind != literal {
		return t[0], true
	}
	return part{}, false
}

// String writes the template in a form that parseTemplate reads back.
func (t template) String() string {
	var b strings.Builder
	for i, p := range t {
		switch {
		case p.kind == secretRef:
			b.WriteString("${{ secrets." + p.name + " }}")
		case p.kind != literal:
			b.WriteString(p.text)
		case i+1 < len(t): // an expression follows: a $ before it would look like an escape
			head := strings.TrimRight(p.text, "$")
			b.WriteString(Escape(head))
			if tail := p.text[len(head):]; tail != "" {
				b.WriteString("${{ '" + tail + "' }}")
			}
		default:
			b.WriteString(Escape(p.text))
		}
	}
	return b.String()
}

// Escape writes a text so that no expression is read from it.
func Escape(s string) string { return strings.ReplaceAll(s, "${{", "$${{") }
