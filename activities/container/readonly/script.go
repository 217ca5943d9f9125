package readonly

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Command is one that changes nothing, as far as its text tells. That rests on its programs being what their names say, which
// only the container can tell.
type Command struct {
	// Programs are those that it runs, as it names them.
	Programs map[string]bool
	// Scratch says that they may write to /tmp on the way.
	Scratch bool
}

// ParseScript parses a command line as a POSIX shell would. It is not ok where any construct or program in it is not known to
// be harmless, whatever stands first in it.
func ParseScript(script string) (cmd *Command, ok bool) {
	if strings.ContainsAny(script, "\x00\r") || strings.Contains(script, "((") || strings.Contains(script, "$[") {
		return nil, false // what other shells take for arithmetic runs what it finds in a variable
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangPOSIX)).Parse(strings.NewReader(script), "")
	cmd = &Command{Programs: map[string]bool{"sh": true}}
	return cmd, err == nil && len(file.Stmts) > 0 && cmd.allowStmts(file.Stmts)
}

// ParseArgv does the same for a program that runs without a shell.
func ParseArgv(argv []string) (cmd *Command, ok bool) {
	words := make([]word, len(argv))
	for i, a := range argv {
		words[i] = word{text: a, fixed: true, one: true}
	}
	cmd = &Command{Programs: map[string]bool{}}
	return cmd, len(words) > 0 && cmd.allowCall(words)
}

func (cmd *Command) allowStmts(stmts []*syntax.Stmt) bool {
	for _, s := range stmts {
		if s.Background || s.Coprocess || s.Disown || !cmd.allowRedirects(s.Redirs) || !cmd.allowCommand(s.Cmd) {
			return false
		}
	}
	return true
}

// allowCommand knows calls, and what only puts calls together. Functions and arithmetic are risky.
func (cmd *Command) allowCommand(node syntax.Command) bool {
	switch c := node.(type) {
	case *syntax.CallExpr:
		return cmd.allowCallExpr(c)
	case *syntax.BinaryCmd:
		return cmd.allowStmts([]*syntax.Stmt{c.X, c.Y})
	case *syntax.Subshell:
		return cmd.allowStmts(c.Stmts)
	case *syntax.Block:
		return cmd.allowStmts(c.Stmts)
	case *syntax.IfClause:
		for c != nil {
			if !cmd.allowStmts(c.Cond) || !cmd.allowStmts(c.Then) {
				return false
			}
			c = c.Else
		}
		return true
	case *syntax.WhileClause:
		return cmd.allowStmts(c.Cond) && cmd.allowStmts(c.Do)
	case *syntax.ForClause:
		each, ok := c.Loop.(*syntax.WordIter)
		return ok && !c.Select && ownVariable(each.Name.Value) && cmd.allowWords(each.Items) && cmd.allowStmts(c.Do)
	case *syntax.CaseClause:
		for _, item := range c.Items {
			if !cmd.allowWords(item.Patterns) || !cmd.allowStmts(item.Stmts) {
				return false
			}
		}
		return cmd.allowWords([]*syntax.Word{c.Word})
	}
	return false
}

// allowCallExpr is a call, or assignments to the script's own variables. Before a call only the language may be set.
func (cmd *Command) allowCallExpr(c *syntax.CallExpr) bool {
	for _, a := range c.Assigns {
		if a.Append || a.Naked || a.Index != nil || a.Array != nil {
			return false
		}
		value := word{fixed: true, one: true}
		if a.Value != nil {
			var ok bool
			if value, ok = cmd.parseWord(a.Value); !ok {
				return false
			}
		}
		if len(c.Args) == 0 && ownVariable(a.Name.Value) {
			continue
		}
		if len(c.Args) == 0 || !strings.HasPrefix(a.Name.Value, "LC_") && a.Name.Value != "LANG" || !value.fixed || !plainLocale(value.text) {
			return false
		}
	}
	if len(c.Args) == 0 {
		return len(c.Assigns) > 0
	}
	words := make([]word, len(c.Args))
	for i, a := range c.Args {
		var ok bool
		if words[i], ok = cmd.parseWord(a); !ok {
			return false
		}
	}
	return cmd.allowCall(words)
}

var variable = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// ownVariable says that a variable means something to the script only: those that shells and programs look at are in
// capitals, but for some shells' path and its like.
func ownVariable(name string) bool {
	return variable.MatchString(name) && !strings.HasSuffix(name, "path")
}

// plainLocale says that a program loads no code for a locale.
func plainLocale(name string) bool {
	return slices.Contains([]string{"", "C", "POSIX", "C.UTF-8", "C.utf8", "en_US.UTF-8", "en_US.utf8"}, name)
}

var fileDescriptor = regexp.MustCompile(`^([0-9]|-)$`)

// allowRedirects allows reading, throwing away and joining streams.
func (cmd *Command) allowRedirects(redirs []*syntax.Redirect) bool {
	for _, redir := range redirs {
		if redir.Word == nil || redir.Hdoc != nil {
			return false
		}
		target, ok := cmd.parseWord(redir.Word)
		if !ok {
			return false
		}
		switch redir.Op {
		case syntax.RdrIn:
			if special(target) {
				return false
			}
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
// text, a flag, several words, none; unless it is surely one word.
type word struct {
	text       string
	fixed, one bool
}

// parseWord is not ok where merely expanding the word could change something.
func (cmd *Command) parseWord(w *syntax.Word) (word, bool) {
	out := word{fixed: true, one: true}
	ok := cmd.parseParts(w.Parts, false, &out)
	if lone := w.Lit(); lone == "[" || lone == "]" || lone == "!" { // alone they stand for themselves
		out.fixed, out.one = true, true
	}
	return out, ok
}

func (cmd *Command) allowWords(words []*syntax.Word) bool {
	for _, w := range words {
		if _, ok := cmd.parseWord(w); !ok {
			return false
		}
	}
	return true
}

func (cmd *Command) parseParts(parts []syntax.WordPart, quoted bool, out *word) bool {
	for i, part := range parts {
		switch p := part.(type) {
		case *syntax.Lit:
			if !quoted && i+1 < len(parts) && strings.HasSuffix(p.Value, "$") {
				return false // $'a\'b' is one text to some shells, and to others one and the beginning of another
			}
			// Globs, braces, tildes and escapes are for a shell to interpret, and shells differ.
			if strings.ContainsAny(p.Value, "\\$`") || !quoted && strings.ContainsAny(p.Value, "*?[]{}~!") {
				out.fixed, out.one = false, out.one && quoted
			}
			out.text += p.Value
		case *syntax.SglQuoted:
			if p.Dollar {
				return false
			}
			out.text += p.Value
		case *syntax.DblQuoted:
			if p.Dollar || !cmd.parseParts(p.Parts, true, out) {
				return false
			}
		case *syntax.ParamExp:
			out.fixed, out.one = false, out.one && quoted && p.Param != nil && p.Param.Value != "@"
			if !cmd.allowExpansion(p) {
				return false
			}
		case *syntax.CmdSubst:
			out.fixed, out.one = false, out.one && quoted
			if p.TempFile || p.ReplyVar || !cmd.allowStmts(p.Stmts) {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// allowExpansion allows a parameter, its length, another word in its place and a part cut off. ${x:=y} assigns.
func (cmd *Command) allowExpansion(p *syntax.ParamExp) bool {
	if p.Param == nil || p.Repl != nil || p.Slice != nil || p.Index != nil || p.Excl || p.Width || p.Names != 0 {
		return false
	}
	if p.Exp == nil {
		return true
	}
	switch p.Exp.Op {
	case syntax.DefaultUnset, syntax.DefaultUnsetOrNull, syntax.AlternateUnset, syntax.AlternateUnsetOrNull,
		syntax.RemSmallPrefix, syntax.RemLargePrefix, syntax.RemSmallSuffix, syntax.RemLargeSuffix:
		return p.Exp.Word == nil || cmd.allowWords([]*syntax.Word{p.Exp.Word})
	}
	return false
}

var standardPlace = regexp.MustCompile(`^/(usr/)?bin/[^/]+$`)

func (cmd *Command) allowCall(words []word) bool {
	name := words[0].text
	base := name
	if standardPlace.MatchString(name) {
		base = path.Base(name)
	}
	p, known := programs[base]
	if !known || !words[0].fixed || slices.ContainsFunc(words[1:], special) || !p.harmless(words[1:]) {
		return false
	}
	cmd.Programs[name] = true
	for _, other := range p.runs {
		cmd.Programs[other] = true
	}
	cmd.Scratch = cmd.Scratch || p.scratch
	return true
}

var descriptors = regexp.MustCompile(`^/proc/(.*/)?(fd|kmsg)(/|$)`)

// special says that a word names what it is not harmless to read: a device, or what another process reads from.
func special(w word) bool {
	if !path.IsAbs(w.text) {
		return false
	}
	at := path.Clean(w.text)
	return descriptors.MatchString(at) || strings.HasPrefix(at, "/dev/") && at != "/dev/null" && at != "/dev/zero" && at != "/dev/stdin"
}
