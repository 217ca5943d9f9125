package container

import (
	"path"
	"regexp"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// readOnlyScript says that a command line can be proven to change nothing. It is parsed as a POSIX shell would; every
// construct and every program that is not known to be harmless makes the whole line risky, whatever stands first in it.
// The proof rests on the container's standard programs being what their names say.
func readOnlyScript(script string) bool {
	if strings.ContainsRune(script, 0) {
		return false
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangPOSIX)).Parse(strings.NewReader(script), "")
	return err == nil && len(file.Stmts) > 0 && readOnlyStmts(file.Stmts)
}

// readOnlyArgv says the same of a program that runs without a shell.
func readOnlyArgv(argv []string) bool {
	if len(argv) == 0 {
		return false
	}
	words := make([]word, len(argv))
	for i, a := range argv {
		words[i] = word{text: a, fixed: true}
	}
	return readOnlyCall(words)
}

func readOnlyStmts(stmts []*syntax.Stmt) bool {
	for _, s := range stmts {
		if s.Background || s.Coprocess || s.Disown || !readOnlyRedirs(s.Redirs) || !readOnlyCommand(s.Cmd) {
			return false
		}
	}
	return true
}

// readOnlyCommand knows calls, and what only puts calls together. Loops, functions, case and arithmetic are risky.
func readOnlyCommand(cmd syntax.Command) bool {
	switch c := cmd.(type) {
	case *syntax.CallExpr:
		if len(c.Assigns) > 0 || len(c.Args) == 0 {
			return false
		}
		words := make([]word, len(c.Args))
		for i, a := range c.Args {
			w, ok := readWord(a)
			if !ok {
				return false
			}
			words[i] = w
		}
		return readOnlyCall(words)
	case *syntax.BinaryCmd:
		return readOnlyStmts([]*syntax.Stmt{c.X, c.Y})
	case *syntax.Subshell:
		return readOnlyStmts(c.Stmts)
	case *syntax.Block:
		return readOnlyStmts(c.Stmts)
	case *syntax.IfClause:
		for c != nil {
			if !readOnlyStmts(c.Cond) || !readOnlyStmts(c.Then) {
				return false
			}
			c = c.Else
		}
		return true
	}
	return false
}

var fileDescriptor = regexp.MustCompile(`^([0-9]|-)$`)

// readOnlyRedirs allows reading, throwing away and joining streams.
func readOnlyRedirs(redirs []*syntax.Redirect) bool {
	for _, r := range redirs {
		if r.Word == nil || r.Hdoc != nil {
			return false
		}
		target, ok := readWord(r.Word)
		if !ok {
			return false
		}
		switch r.Op {
		case syntax.RdrIn:
		case syntax.RdrOut, syntax.AppOut, syntax.RdrClob:
			if !target.fixed || target.text != "/dev/null" {
				return false
			}
		case syntax.DplOut, syntax.DplIn:
			if !target.fixed || !fileDescriptor.MatchString(target.text) {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// word is an argument as far as it is known before the shell runs. One that is not fixed may become anything: another
// text, a flag, several words, none.
type word struct {
	text  string
	fixed bool
}

// readWord is not ok where merely expanding the word could change something.
func readWord(w *syntax.Word) (word, bool) {
	out := word{fixed: true}
	ok := readParts(w.Parts, false, &out)
	if lone := w.Lit(); lone == "[" || lone == "]" || lone == "!" { // alone they stand for themselves
		out.fixed = true
	}
	return out, ok
}

func readParts(parts []syntax.WordPart, quoted bool, out *word) bool {
	for _, part := range parts {
		switch p := part.(type) {
		case *syntax.Lit:
			// Globs, braces, tildes and escapes are for a shell to interpret, and shells differ.
			if strings.ContainsAny(p.Value, "\\$`") || !quoted && strings.ContainsAny(p.Value, "*?[]{}~!") {
				out.fixed = false
			}
			out.text += p.Value
		case *syntax.SglQuoted:
			if p.Dollar {
				return false
			}
			out.text += p.Value
		case *syntax.DblQuoted:
			if p.Dollar || !readParts(p.Parts, true, out) {
				return false
			}
		case *syntax.ParamExp:
			out.fixed = false
			if p.Param == nil || p.Exp != nil || p.Repl != nil || p.Slice != nil || p.Index != nil || p.Excl || p.Length || p.Width {
				return false
			}
		case *syntax.CmdSubst:
			out.fixed = false
			if p.TempFile || p.ReplyVar || !readOnlyStmts(p.Stmts) {
				return false
			}
		default:
			return false
		}
	}
	return true
}

func readOnlyCall(words []word) bool {
	if !words[0].fixed {
		return false
	}
	name := words[0].text
	if dir, base := path.Split(name); dir == "/bin/" || dir == "/usr/bin/" {
		name = base
	}
	harmless, known := programs[name]
	return known && harmless(words[1:])
}
