package statement

import (
	"strings"
	"unicode"
)

// Split returns the statements in a text, with their words in lower case, without comments and quoted texts. A quoted name keeps its quotes:
// it is no keyword.
func Split(text string) (statements []string, words [][]string) {
	var found []string
	begin, seen := 0, false
	end := func(at int) {
		if seen {
			statements, words = append(statements, strings.TrimSpace(text[begin:at])), append(words, found)
		}
		begin, seen, found = at+1, false, nil
	}
	for i := 0; i < len(text); {
		switch rest := text[i:]; {
		case strings.HasPrefix(rest, "--"):
			i += lengthTo(rest, "\n", 0)
		case strings.HasPrefix(rest, "/*"):
			i += commentLength(rest)
		case rest[0] == '\'':
			escapes := i > 0 && (text[i-1] == 'e' || text[i-1] == 'E')
			i += quotedLength(rest, '\'', escapes)
			seen = true
		case rest[0] == '"':
			n := quotedLength(rest, '"', false)
			found = append(found, strings.ToLower(rest[:n]))
			i += n
			seen = true
		case rest[0] == '$' && dollarTag(rest) != "":
			tag := dollarTag(rest)
			i += lengthTo(rest, tag, len(tag))
			seen = true
		case rest[0] == ';':
			end(i)
			i++
		case isWordByte(rest[0]):
			n := 1
			for n < len(rest) && (isWordByte(rest[n]) || rest[n] == '$') {
				n++
			}
			found = append(found, strings.ToLower(rest[:n]))
			i += n
			seen = true
		default:
			seen = seen || !unicode.IsSpace(rune(rest[0]))
			i++
		}
	}
	end(len(text))
	return statements, words
}

func isWordByte(b byte) bool {
	return b == '_' || b >= 0x80 || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
}

// lengthTo is the length of text up to the end of the first mark from a place on, or all of it.
func lengthTo(text, mark string, from int) int {
	if i := strings.Index(text[from:], mark); i >= 0 {
		return from + i + len(mark)
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

func quotedLength(text string, quote byte, escapes bool) int {
	for i := 1; i < len(text); i++ {
		switch {
		case escapes && text[i] == '\\':
			i++
		case text[i] == quote && i+1 < len(text) && text[i+1] == quote:
			i++
		case text[i] == quote:
			return i + 1
		}
	}
	return len(text)
}

// dollarTag is the opening mark of a dollar-quoted text, such as $$ or $body$; empty for a parameter such as $1.
func dollarTag(text string) string {
	n := 1
	for n < len(text) && isWordByte(text[n]) {
		n++
	}
	if n == len(text) || text[n] != '$' || n > 1 && text[1] >= '0' && text[1] <= '9' {
		return ""
	}
	return text[:n+1]
}
