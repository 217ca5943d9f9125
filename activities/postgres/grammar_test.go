package postgres_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// grammar is a part of the server's grammar, as its help writes it: a word, or parts of which all,
// one, or at most one are written.
type grammar struct {
	word  string
	kind  byte // 0 a word, '&' all of the parts, '|' one of them, '?' them or nothing
	parts []grammar
}

// form is a statement of the grammar, in which names are still to be put.
type form struct{ command, text string }

var (
	ofGrammar    = regexp.MustCompile(`'[^']*'|\.\.\.|[][{}|(),;=*]|[^][{}|(),;=*'\s]+`)
	ofDefinition = regexp.MustCompile(`^(?:where |and )?([a-z_]+) .*(is|are|be|of):$`)
)

// readForms reads the help of psql on all commands. It returns each way to write each command that
// differs from the shortest one in one choice.
func readForms(help string) (all []form) {
	for _, section := range strings.Split(help, "Command: ")[1:] {
		name, rest, _ := strings.Cut(section, "\n")
		_, rest, _ = strings.Cut(rest, "Syntax:\n")
		rest, _, _ = strings.Cut(rest, "\nURL: ")
		command := strings.TrimSpace(name)
		statements, definitions, oneLineEach := [][]string{}, map[string][]string{}, map[string]bool{}
		first, _, _ := strings.Cut(command, " ")
		defined := ""
		for line := range strings.SplitSeq(rest, "\n") {
			found := ofDefinition.FindStringSubmatch(line)
			switch {
			case found != nil:
				defined = found[1]
				definitions[defined], oneLineEach[defined] = nil, strings.Contains(line, "one of")
			case strings.TrimSpace(line) == "":
			case strings.HasPrefix(line, first+" ") || line == first || defined == "" && line[0] >= 'A' && line[0] <= 'Z':
				statements, defined = append(statements, []string{line}), ""
			case defined != "":
				definitions[defined] = append(definitions[defined], line)
			case len(statements) > 0:
				statements[len(statements)-1] = append(statements[len(statements)-1], line)
			}
		}
		rules := map[string]grammar{}
		for name, lines := range definitions {
			rules[name] = readDefinition(lines, oneLineEach[name])
		}
		for _, lines := range statements {
			for _, text := range readGrammar(strings.Join(lines, "\n")).write(rules, nil) {
				if one := (form{command, text}); !slices.Contains(all, one) {
					all = append(all, one)
				}
			}
		}
	}
	return all
}

// readDefinition reads what a name stands for: one text, or alternatives that each begin a line.
func readDefinition(lines []string, oneLineEach bool) grammar {
	isList := func(line string) bool {
		line = strings.TrimSpace(line)
		return strings.HasPrefix(line, "|") || strings.HasSuffix(line, "|")
	}
	if !oneLineEach || slices.ContainsFunc(lines, isList) {
		return readGrammar(strings.Join(lines, "\n"))
	}
	indent := func(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }
	least := indent(slices.MinFunc(lines, func(x, y string) int { return indent(x) - indent(y) }))
	var texts []string
	for _, line := range lines {
		if indent(line) == least {
			texts = append(texts, line)
		} else {
			texts[len(texts)-1] += "\n" + line
		}
	}
	one := grammar{kind: '|'}
	for _, text := range texts {
		one.parts = append(one.parts, readGrammar(text))
	}
	return one
}

func readGrammar(text string) grammar {
	tokens := ofGrammar.FindAllString(text, -1)
	g, _ := readChoice(tokens)
	return g
}

// readChoice reads alternatives until what closes them, and returns the tokens from there on.
func readChoice(tokens []string) (grammar, []string) {
	one, now := grammar{kind: '|'}, grammar{kind: '&'}
	for len(tokens) > 0 {
		token := tokens[0]
		tokens = tokens[1:]
		switch token {
		case "]", "}":
			return closed(one, now), append([]string{token}, tokens...)
		case "|":
			one.parts, now = append(one.parts, now), grammar{kind: '&'}
		case "[", "{":
			var inner grammar
			inner, tokens = readChoice(tokens)
			if len(tokens) > 0 {
				tokens = tokens[1:]
			}
			if token == "[" {
				inner = grammar{kind: '?', parts: []grammar{inner}}
			}
			now.parts = append(now.parts, inner)
		case "...": // once is enough
		default:
			now.parts = append(now.parts, grammar{word: token})
		}
	}
	return closed(one, now), nil
}

func closed(one, last grammar) grammar {
	if one.parts == nil {
		return last
	}
	one.parts = append(one.parts, last)
	return one
}

// write returns the shortest text first, and then one for each choice that is another one. Within
// is what the text is of.
func (g grammar) write(rules map[string]grammar, within []string) []string {
	switch g.kind {
	case '?':
		if g.isComma() { // of a list
			return []string{""}
		}
		return append([]string{""}, g.parts[0].write(rules, within)...)
	case '|':
		var all []string
		for _, part := range g.parts {
			all = append(all, part.write(rules, within)...)
		}
		return all
	case '&':
		var ways [][]string
		for _, part := range g.parts {
			way := part.write(rules, within)
			if way == nil {
				return nil
			}
			ways = append(ways, way)
		}
		all := []string{join(ways, -1, 0)}
		for i, way := range ways {
			for n := 1; n < len(way); n++ {
				all = append(all, join(ways, i, n))
			}
		}
		return all
	}
	rule, known := rules[g.word]
	switch {
	case !known:
		return []string{g.word}
	case slices.Contains(within, g.word):
		return nil
	}
	return rule.write(rules, append(slices.Clone(within), g.word))
}

func (g grammar) isComma() bool {
	inner := g.parts[0]
	return inner.kind == '&' && (len(inner.parts) == 0 || len(inner.parts) == 1 && inner.parts[0].word == ",")
}

// join joins the first of each of the ways, but for one of them.
func join(ways [][]string, other, n int) string {
	var words []string
	for i, way := range ways {
		word := way[0]
		if i == other {
			word = way[n]
		}
		if word != "" {
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

func TestFormsOfTheGrammar(t *testing.T) {
	t.Parallel()
	const help = `Command:     ALTER TABLE
Description: change it
Syntax:
ALTER TABLE [ IF EXISTS ] name [, ...]
    action [, ... ]
ALTER TABLE name
    RENAME TO new_name

where action is one of:

    ADD { COLUMN | thing } x
    SET
      y

and thing is:

NULL | 'text' |
  WITH ( a = b )

URL: https://

Command:     END
Description: end
Syntax:
END

URL: https://
`
	require.Equal(t, []form{
		{"ALTER TABLE", "ALTER TABLE name ADD COLUMN x"},
		{"ALTER TABLE", "ALTER TABLE IF EXISTS name ADD COLUMN x"},
		{"ALTER TABLE", "ALTER TABLE name ADD NULL x"},
		{"ALTER TABLE", "ALTER TABLE name ADD 'text' x"},
		{"ALTER TABLE", "ALTER TABLE name ADD WITH ( a = b ) x"},
		{"ALTER TABLE", "ALTER TABLE name SET y"},
		{"ALTER TABLE", "ALTER TABLE name RENAME TO new_name"},
		{"END", "END"},
	}, readForms(help))
}
