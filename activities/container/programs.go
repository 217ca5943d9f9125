package container

import (
	"regexp"
	"slices"
	"strings"
)

// programs are those that can be told to change nothing, each with the arguments that leave it so. A program is here
// only if none of its common implementations (GNU, BusyBox, toybox, a shell's own) writes with such arguments.
var programs = harmlessPrograms()

func harmlessPrograms() map[string]func(args []word) bool {
	programs := map[string]func(args []word) bool{}
	for _, name := range []string{
		"arch", "b2sum", "basename", "cat", "cd", "cksum", "cmp", "comm", "cut", "df", "dirname", "du",
		"echo", "egrep", "exit", "expand", "expr", "false", "fgrep", "fold", "free", "grep", "groups", "head", "hexdump",
		"id", "join", "jq", "ls", "md5sum", "nl", "nproc", "od", "paste", "printenv", "ps", "pwd", "readlink", "realpath",
		"rev", "seq", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "sleep", "stat", "sum", "tac", "tail",
		"tr", "true", "tty", "type", "uname", "unexpand", "uptime", "wc", "which", "whoami", ":",
	} {
		programs[name] = anything
	}
	for _, name := range []string{"env", "hostname", "mount"} { // with arguments they set, mount, or run another program
		programs[name] = nothing
	}
	programs["["] = fixedBut("-v", "-R") // an index in the name after these is evaluated, commands in it too
	programs["test"] = programs["["]
	programs["base64"] = flagsAmong(regexp.MustCompile(`^-[di]$`), []string{"-w"}, 1) // some write with -o
	programs["command"] = func(args []word) bool { return len(args) > 1 && fixed(args) && isOneOf(args[0], "-v", "-V") }
	programs["date"] = harmlessDate
	programs["diff"] = flagsAmong(regexp.MustCompile(`^-([qsuNraBbwiyceE]+|U[0-9]+)$`), nil, 2)
	programs["find"] = harmlessFind
	programs["printf"] = func(args []word) bool { // printf -v assigns to a variable, PATH for one
		return len(args) > 0 && args[0].fixed && !strings.HasPrefix(args[0].text, "-")
	}
	programs["sed"] = harmlessSed
	programs["set"] = func(args []word) bool {
		return fixed(args) && len(args) > 0 && all(args, func(a word) bool {
			return regexp.MustCompile(`^([-+][euxo]+|pipefail)$`).MatchString(a.text)
		})
	}
	programs["sort"] = flagsAmong(regexp.MustCompile(`^-[bdfgiMhnRrVcCmsuz]+$`), []string{"-k", "-t"}, -1)
	programs["uniq"] = flagsAmong(regexp.MustCompile(`^-[cdDuiz]+$`), []string{"-f", "-s", "-w"}, 1) // the second file is written
	return programs
}

func anything([]word) bool { return true }

func nothing(args []word) bool { return len(args) == 0 }

func all(args []word, holds func(word) bool) bool {
	return !slices.ContainsFunc(args, func(a word) bool { return !holds(a) })
}

func fixed(args []word) bool { return all(args, func(a word) bool { return a.fixed }) }

func isOneOf(a word, texts ...string) bool { return slices.Contains(texts, a.text) }

func fixedBut(refused ...string) func([]word) bool {
	return func(args []word) bool {
		return fixed(args) && all(args, func(a word) bool { return !isOneOf(a, refused...) })
	}
}

// flagsAmong allows the flags that match, those of withValue followed by a value, and at most so many operands (-1: any
// number). Long flags can be shortened in more ways than one can list: risky.
func flagsAmong(flag *regexp.Regexp, withValue []string, operands int) func([]word) bool {
	return func(args []word) bool {
		if !fixed(args) {
			return false
		}
		count := 0
		for i := 0; i < len(args); i++ {
			switch a := args[i]; {
			case isOneOf(a, withValue...):
				i++
			case slices.ContainsFunc(withValue, func(f string) bool { return strings.HasPrefix(a.text, f) }):
			case strings.HasPrefix(a.text, "-") && a.text != "-":
				if !flag.MatchString(a.text) {
					return false
				}
			default:
				count++
			}
		}
		return operands < 0 || count <= operands
	}
}

// harmlessDate is all but setting the clock, which a bare operand does as well as -s.
func harmlessDate(args []word) bool {
	if !fixed(args) {
		return false
	}
	for i := 0; i < len(args); i++ {
		switch a := args[i].text; {
		case a == "-d" || a == "-r":
			i++
		case a == "-u" || a == "-R" || strings.HasPrefix(a, "-I") || strings.HasPrefix(a, "+"):
		default:
			return false
		}
	}
	return true
}

var findTests = regexp.MustCompile(`^-(a|amin|and|anewer|atime|cmin|cnewer|ctime|daystart|depth|empty|executable|false|` +
	`group|iname|inum|ipath|iregex|links|ls|maxdepth|mindepth|mmin|mount|mtime|name|newer|nogroup|not|nouser|o|or|path|` +
	`perm|print|print0|printf|prune|readable|regex|size|true|type|uid|gid|user|writable|xdev|H|L|P)$`)

// harmlessFind has only tests and prints among its words; -delete, -exec, -fprint and all that comes later are risky. A
// value that looks like a flag is refused too.
func harmlessFind(args []word) bool {
	return fixed(args) && all(args, func(a word) bool {
		return !strings.HasPrefix(a.text, "-") || findTests.MatchString(a.text) || regexp.MustCompile(`^-[0-9]+[a-zA-Z]?$`).MatchString(a.text)
	})
}

var sedPrint = regexp.MustCompile(`^([0-9]+|\$)(,([0-9]+|\$))?[pq](;([0-9]+|\$)(,([0-9]+|\$))?[pq])*$`)

// harmlessSed prints lines by number. A sed script can write files and run commands; no more of it is understood here.
func harmlessSed(args []word) bool {
	if !fixed(args) || len(args) < 2 || args[0].text != "-n" || !sedPrint.MatchString(args[1].text) {
		return false
	}
	return all(args[2:], func(a word) bool { return !strings.HasPrefix(a.text, "-") })
}
