package readonly

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// harmless are the programs that change nothing, whatever their arguments are: neither GNU's nor
// BusyBox' nor a shell's own has an option that writes, runs another program or evaluates a text,
// or reads a configuration that could make it do so.
var harmless = []string{
	"basename", "cat", "cd", "cksum", "cut", "df", "dirname", "du", "echo", "false", "grep", "head", "id", "ls", "md5sum",
	"nl", "nproc",
	"od", "pwd", "readlink", "realpath", "sha1sum", "sha256sum", "sha512sum", "stat", "tail", "tr", "true", "uname", "wc",
	"whoami",
}

// These are all that a command line may consist of: what every shell takes for the same thing.
var (
	blank = regexp.MustCompile(`^[ \t]+`)
	joint = regexp.MustCompile(`^(\|\||&&|[|;\n])`)
	plain = regexp.MustCompile(`^[A-Za-z0-9_./:,=@%+-]+`)
	// quoted holds printable ASCII: in single quotes all of it, in double quotes nothing that is
	// expanded or escapes.
	quoted = regexp.MustCompile("^('[ -&(-~]*'|\"[ #%-\\[\\]-_a-~]*\")")
)

// ParseScript reads a command line for a shell. It is ok only if the line calls harmless programs
// with literal words, joined by |, ||, && and ;, or by line ends. It returns the programs that run,
// the shell among them.
func ParseScript(script string) (programs []string, ok bool) {
	calls, ok := splitCalls(script)
	if !ok {
		return nil, false
	}
	programs = []string{"sh"}
	for _, argv := range calls {
		called, ok := ParseArgv(argv)
		if !ok {
			return nil, false
		}
		programs = append(programs, called...)
	}
	return programs, true
}

// splitCalls returns the words of each call in a command line, if every shell reads the same there.
func splitCalls(script string) (calls [][]string, ok bool) {
	var call []string
	within := false // a word
	for rest := strings.Trim(script, " \t\n"); ; {
		cut := len(joint.FindString(rest))
		switch space := len(blank.FindString(rest)); {
		case rest == "" || cut > 0:
			if len(call) == 0 {
				return nil, false
			}
			if calls = append(calls, call); rest == "" {
				return calls, true
			}
			call, within = nil, false
		case space > 0:
			cut, within = space, false
		default:
			text := plain.FindString(rest)
			if cut = len(text); cut == 0 {
				part := quoted.FindString(rest)
				if cut = len(part); cut == 0 {
					return nil, false
				}
				text = part[1 : cut-1]
			}
			if !within {
				call, within = append(call, ""), true
			}
			call[len(call)-1] += text
		}
		rest = rest[cut:]
	}
}

// standardPlace is where a program that is named with its path may be.
var standardPlace = regexp.MustCompile(`^/(usr/)?bin/[^/]+$`)

// ParseArgv does the same for a program that runs without a shell.
func ParseArgv(argv []string) (programs []string, ok bool) {
	if len(argv) == 0 || slices.ContainsFunc(argv[1:], NamesDevice) {
		return nil, false
	}
	base := argv[0]
	if standardPlace.MatchString(base) {
		base = path.Base(base)
	}
	return argv[:1], slices.Contains(harmless, base)
}

// NamesDevice reports whether a path may lead to a device, or to what another process reads from:
// reading it takes something away.
func NamesDevice(at string) bool {
	return slices.ContainsFunc(strings.Split(at, "/"), func(name string) bool { return name == "dev" || name == "proc" })
}
