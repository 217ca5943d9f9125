package statement

import (
	"strings"
	"unicode"
)

// Split returns the statements in a text, with their words in lower case, without comments and
// quoted texts. A quoted name keeps its quotes: it is no keyword. Statements end where psql ends
// them: not within parentheses, nor within the body of a function between BEGIN and END.
func Split(text string) (statements []string, words [][]string) {
	var found []string
	begin, seen, parens, bodies := 0, false, 0, 0
	end := func(at int) {
		if seen {
			statements, words = append(statements, strings.TrimSpace(text[begin:at])), append(words, found)
		}
		begin, seen, found, parens, bodies = at+1, false, nil, 0, 0
	}
	for i := 0; i < len(text); {
		switch rest := text[i:]; {
		case strings.HasPrefix(rest, "--"):
			i += lineLength(rest)
		case strings.HasPrefix(rest, "/*"):
			i += commentLength(rest)
		case rest[0] == '\'':
			i += quotedLength(rest)
			seen = true
		case rest[0] == '"':
			n := quotedLength(rest)
			found = append(found, strings.ToLower(rest[:n]))
			i += n
			seen = true
		case rest[0] == '$' && dollarTag(rest) != "":
			tag := dollarTag(rest)
			i += lengthTo(rest, tag, len(tag))
			seen = true
		case rest[0] == ';' && parens == 0 && bodies == 0:
			end(i)
			i++
		case isWordByte(rest[0]):
			n := wordLength(rest)
			word := strings.ToLower(rest[:n])
			if word == "e" && n < len(rest) && rest[n] == '\'' {
				n += escapedLength(rest[n:])
			} else {
				found = append(found, word)
			}
			bodies = bodiesAfter(word, bodies, found, parens)
			i += n
			seen = true
		default:
			parens = parensAfter(rest[0], parens)
			seen = seen || !unicode.IsSpace(rune(rest[0]))
			i++
		}
	}
	end(len(text))
	return statements, words
}

func parensAfter(b byte, parens int) int {
	switch b {
	case '(':
		return parens + 1
	case ')':
		return max(0, parens-1)
	}
	return parens
}

// bodiesAfter counts, after a word, how many blocks of the body of a function are open; words are
// all of the statement.
func bodiesAfter(word string, bodies int, words []string, parens int) int {
	if kind := created(words); kind != "function" && kind != "procedure" || parens > 0 {
		return bodies
	}
	switch {
	case word == "begin", word == "case" && bodies > 0:
		return bodies + 1
	case word == "end" && bodies > 0:
		return bodies - 1
	}
	return bodies
}

// created is what a statement with these words creates, as its first word says; empty for other
// statements.
func created(words []string) string {
	if len(words) < 2 || words[0] != "create" {
		return ""
	}
	if len(words) > 3 && words[1] == "or" && words[2] == "replace" {
		return words[3]
	}
	return words[1]
}

// wordLength is the length of the word, or of the digits, that text begins with.
func wordLength(text string) int {
	n := 1
	for n < len(text) &&
		(isDigit(text[0]) && isDigit(text[n]) || !isDigit(text[0]) && (isWordByte(text[n]) || text[n] == '$')) {
		n++
	}
	return n
}

func isDigit(b byte) bool { return b >= '0' && b <= '9' }

func isWordByte(b byte) bool {
	return b == '_' || b >= 0x80 || isDigit(b) || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
}

// lengthTo is the length of text up to the end of the first mark from a place on, or all of it.
func lengthTo(text, mark string, from int) int {
	if i := strings.Index(text[from:], mark); i >= 0 {
		return from + i + len(mark)
	}
	return len(text)
}

// lineLength is the length of text up to the end of its line, which is not a comment any more.
func lineLength(text string) int {
	if i := strings.IndexAny(text, "\r\n"); i >= 0 {
		return i
	}
	return len(text)
}

// commentLength is the length of the comment, which may hold others, that text begins with.
func commentLength(text string) int {
	depth := 0
	for i := 0; i+1 < len(text); i++ {
		switch text[i : i+2] {
		case "/*":
			depth++
			i++
		case "*/":
			depth--
			i++
			if depth == 0 {
				return i + 1
			}
		}
	}
	return len(text)
}

// quotedLength is that of a text in quotes, which holds a quote only doubled.
func quotedLength(text string) int {
	quote := text[:1]
	for i := 1; i < len(text); i++ {
		switch {
		case strings.HasPrefix(text[i:], quote+quote):
			i++
		case text[i] == quote[0]:
			return i + 1
		}
	}
	return len(text)
}

// escapedLength is that of a text in single quotes that backslashes escape in.
func escapedLength(text string) int {
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == '\\' || strings.HasPrefix(text[i:], "''"):
			i++
		case text[i] == '\'':
			return i + 1
		}
	}
	return len(text)
}

// dollarTag is the opening mark of a dollar-quoted text, such as $$ or $body$; empty for a
// parameter such as $1.
func dollarTag(text string) string {
	n := 1
	for n < len(text) && isWordByte(text[n]) {
		n++
	}
	if n == len(text) || text[n] != '$' || n > 1 && isDigit(text[1]) {
		return ""
	}
	return text[:n+1]
}
