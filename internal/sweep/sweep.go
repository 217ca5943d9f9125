// Package sweep finds statements of SQL that change all rows of a table, and those that only add to
// a schema.
package sweep

import (
	"regexp"
	"slices"
	"strings"
)

// no are words before UPDATE where it begins no statement, as in FOR UPDATE, ON CONFLICT DO UPDATE,
// INSTEAD OF UPDATE.
var no = []string{"for", "key", "do", "on", "or", "of", "before", "after", "then"}

// Find returns UPDATE or DELETE if a statement with these words, in lower case, has one without
// WHERE; otherwise nothing.
func Find(words []string) string {
	for i, w := range words {
		begins := w == "update" && (i == 0 || !slices.Contains(no, words[i-1])) ||
			w == "delete" && i+1 < len(words) && words[i+1] == "from"
		if begins && !slices.Contains(words[i:], "where") {
			return strings.ToUpper(w)
		}
	}
	return ""
}

var (
	// What is ignored is quoted, or a comment.
	ignored = regexp.MustCompile(`(?s)'(?:[^']|'')*'|"(?:[^"]|"")*"|\[[^\]]*\]|` + "`[^`]*`" + `|--[^\n]*|/\*.*?(?:\*/|$)`)
	word    = regexp.MustCompile(`[\pL\pN_$]+|;`)
)

// FindIn returns UPDATE or DELETE if a text of SQLite's SQL has one without WHERE; otherwise
// nothing. The body of a trigger does not count.
func FindIn(text string) string {
	for _, words := range split(text) {
		if words[0] == "create" {
			continue
		}
		if found := Find(words); found != "" {
			return found
		}
	}
	return ""
}

// OnlyAdds reports whether all statements in a text of SQLite's SQL only make tables, columns and
// rows, and what belongs to them.
func OnlyAdds(text string) bool {
	for _, words := range split(text) {
		at := slices.Index(words, "add")
		addsColumn := words[0] == "alter" && (at == 3 || at == 4) && words[3] != "rename" && words[3] != "drop" &&
			words[3] != "alter"
		inserts := words[0] == "insert" && !slices.Contains(words, "replace") && !slices.Contains(words, "update")
		if words[0] != "create" && !addsColumn && !inserts {
			return false
		}
	}
	return true
}

// split returns the words of each statement in a text of SQLite's SQL, in lower case, without
// comments and what is quoted.
func split(text string) (statements [][]string) {
	text = ignored.ReplaceAllStringFunc(text, func(found string) string {
		if found[0] == '-' || found[0] == '/' {
			return " "
		}
		return " x "
	})
	words := word.FindAllString(strings.ToLower(text), -1)
	for len(words) > 0 {
		end := lengthOf(words)
		if end > 0 {
			statements = append(statements, words[:end])
		}
		words = words[min(end+1, len(words)):]
	}
	return statements
}

// lengthOf is the number of words of the first statement.
func lengthOf(words []string) int {
	isTrigger := words[0] == "create" && slices.Contains(words[:min(3, len(words))], "trigger")
	for i, w := range words {
		if w == ";" && (!isTrigger || words[i-1] == "end") {
			return i
		}
	}
	return len(words)
}
