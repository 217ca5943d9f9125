package readonly

import (
	"regexp"
	"slices"
	"strings"
)

// program is one that can be told to change nothing.
type program struct {
	// harmless says which arguments leave it so.
	harmless func(args []word) bool
	// runs are the other programs that it runs.
	runs []string
	// scratch says that it may use /tmp on the way.
	scratch bool
}

// programs are here only if none of their common implementations (GNU, BusyBox, toybox, a shell's own) writes with such
// arguments.
var programs = harmlessPrograms()

func harmlessPrograms() map[string]program {
	programs := map[string]program{}
	add := func(harmless func([]word) bool, names ...string) {
		for _, name := range names {
			programs[name] = program{harmless: harmless}
		}
	}
	add(anything,
		"arch", "b2sum", "basename", "break", "cat", "cd", "cksum", "cmp", "comm", "continue", "cut", "df", "dirname", "du",
		"echo", "exit", "expand", "expr", "false", "fold", "free", "grep", "groups", "head", "hexdump",
		"id", "join", "ls", "lsblk", "lscpu", "md5sum", "netstat", "nl", "nproc", "od", "paste", "pgrep", "printenv", "ps", "pwd",
		"readlink", "realpath", "rev", "seq", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "sleep", "stat",
		"sum", "tail", "tr", "true", "tty", "type", "uname", "unexpand", "uptime", "wc", "which", "who", "whoami", ":")
	add(nothing, "env", "mount") // with arguments they mount, or run another program
	add(harmlessGetent, "getent")
	add(harmlessTest, "[", "test")
	add(harmlessAwk, "awk", "gawk", "mawk")
	add(harmlessSed, "sed")
	add(flagsAmong(`^-([di]|w.+)$`, "-w", 1), "base64") // some write with -o
	add(flagsAmong(`^-([defgklnstx]+|[clN].+)$`, "-c -l -N", -1), "column")
	add(harmlessDate, "date")
	add(flagsAmong(`^-([qsuNraBbwiyceE]+|U[0-9]+|-brief|-color(=[a-z]+)?|-recursive|-unified)$`, "", 2), "diff")
	add(flagsAmong(`^-T$`, "", 0), "dmesg")                              // -H runs a pager
	add(flagsAmong(`^-[bhikL]+$|^--(brief|mime-type)$`, "", -1), "file") // -C compiles
	add(harmlessFind, "find")
	add(flagsAmong(`^-[fisdIA]$`, "", 0), "hostname") // with an operand it sets
	add(flagsAmong(`^-[rcCeMSnsaj]+$`, "", -1), "jq") // some write with -i
	add(harmlessPrintf, "printf")
	add(harmlessRead, "read")
	add(harmlessSet, "set")
	add(flagsAmong(`^-[tulnpaxes46rmoH]+$`, "", 0), "ss")                // -D writes, -K kills
	add(flagsAmong(`^-[adfilpsughDhCnN]+$`, "-L -I -P", -1), "tree")     // -o and -R write, also at the end of -Io, which is -I and -o
	add(flagsAmong(`^-([cdDuiz]+|[fsw].+)$`, "-f -s -w", 1), "uniq")     // the second file is written
	add(flagsAmong(`^-([pbuiCeE]+|[lscg].+)$`, "-l -s -c -g", 1), "xxd") // the second file is written
	add(oneOf("--version"), "bash", "gcc", "g++", "cc", "c++", "git", "make")
	add(oneOf("--version", "-V"), "python", "python3")
	add(oneOf("--version", "-v"), "node")
	add(func(args []word) bool { return len(args) > 1 && fixed(args) && isOneOf(args[0], "-v", "-V") }, "command")

	programs["tac"] = program{harmless: anything, scratch: true}
	programs["sort"] = program{harmless: flagsAmong(`^-([bdfgiMhnRrVcCmsuz]+|[kt].+)$`, "-k -t", -1), scratch: true}
	programs["egrep"] = program{harmless: anything, runs: []string{"grep"}} // these two are scripts in places
	programs["fgrep"] = program{harmless: anything, runs: []string{"grep"}}
	programs["dpkg-query"] = program{harmless: flagsAmong(`^-([lsLSWp]|f.+|-list|-status|-listfiles|-search|-show)$`, "-f", -1)}
	programs["dpkg"] = program{
		harmless: flagsAmong(`^-([lsLSp]|-list|-status|-listfiles|-search|-print-architecture)$`, "", -1), runs: []string{"dpkg-query"},
	}
	return programs
}

func anything([]word) bool { return true }

func nothing(args []word) bool { return len(args) == 0 }

func all(args []word, holds func(word) bool) bool {
	return !slices.ContainsFunc(args, func(a word) bool { return !holds(a) })
}

func fixed(args []word) bool { return all(args, func(a word) bool { return a.fixed }) }

func isOneOf(a word, texts ...string) bool { return slices.Contains(texts, a.text) }

func oneOf(flags ...string) func([]word) bool {
	return func(args []word) bool { return len(args) == 1 && fixed(args) && isOneOf(args[0], flags...) }
}

// flagsAmong allows the flags that match, those of withValue (separated by spaces) followed by a value, and after them at
// most so many operands (-1: any number). A value in the same word as its flag has to match: not every program takes the rest
// of the word for the value, some find further flags there. Long flags can be shortened in more ways than one can list, and not every
// implementation takes a flag after an operand for one: risky.
func flagsAmong(flags, withValue string, operands int) func([]word) bool {
	flag, values := regexp.MustCompile(flags), strings.Fields(withValue)
	return func(args []word) bool {
		if !fixed(args) {
			return false
		}
		for len(args) > 0 && strings.HasPrefix(args[0].text, "-") && args[0].text != "-" {
			a := args[0]
			switch {
			case isOneOf(a, values...) && len(args) > 1:
				args = args[1:]
			case flag.MatchString(a.text):
			default:
				return false
			}
			args = args[1:]
		}
		if operands >= 0 && len(args) > operands {
			return false
		}
		return all(args, func(a word) bool { return a.text == "-" || !strings.HasPrefix(a.text, "-") })
	}
}

// harmlessGetent looks up in files and by the services of the container's own list: -s names others, and a database
// whose names may be international loads a library for them.
func harmlessGetent(args []word) bool {
	return len(args) > 0 && fixed(args) && isOneOf(args[0], "passwd", "group", "hosts", "services", "protocols", "networks") &&
		all(args, func(a word) bool { return !strings.HasPrefix(a.text, "-") })
}

var (
	testOfOne = regexp.MustCompile(`^-[bcdefghkLnprSstuwxz]$`)
	testOfTwo = regexp.MustCompile(`^(=|==|!=)$`)
)

// harmlessTest lets a word that is not known be looked for as a file, or compared as a text. Elsewhere it could become
// an index, which is evaluated, commands in it too: after -v, and in some shells wherever a number may stand.
func harmlessTest(args []word) bool {
	if len(args) > 0 && args[len(args)-1].text == "]" {
		args = args[:len(args)-1]
	}
	if len(args) > 0 && args[0].fixed && args[0].text == "!" {
		args = args[1:]
	}
	switch one := all(args, func(a word) bool { return a.one }); {
	case len(args) == 2 && one && args[0].fixed && testOfOne.MatchString(args[0].text):
		return true
	case len(args) == 3 && one && args[1].fixed && testOfTwo.MatchString(args[1].text):
		return true
	}
	return fixed(args) && all(args, func(a word) bool { return !strings.ContainsAny(a.text, "[$`(") && !isOneOf(a, "-v", "-R") })
}

var printFormat = regexp.MustCompile(`^([^%]|%%|%-?[0-9]*(\.[0-9]+)?[sbc])*$`)

// harmlessPrintf prints texts: some shells evaluate numbers, and -v assigns to a variable, PATH for one.
func harmlessPrintf(args []word) bool {
	return len(args) > 0 && args[0].fixed && !strings.HasPrefix(args[0].text, "-") && printFormat.MatchString(args[0].text)
}

// harmlessRead reads a line into the script's own variables.
func harmlessRead(args []word) bool {
	if len(args) > 0 && args[0].fixed && args[0].text == "-r" {
		args = args[1:]
	}
	return all(args, func(a word) bool { return a.fixed && ownVariable(a.text) })
}

var shellOptions = regexp.MustCompile(`^([-+][euxo]+|pipefail)$`)

func harmlessSet(args []word) bool {
	return fixed(args) && len(args) > 0 && all(args, func(a word) bool { return shellOptions.MatchString(a.text) })
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

var negative = regexp.MustCompile(`^-[0-9]+[a-zA-Z]?$`)

var findTests = regexp.MustCompile(`^-(a|amin|and|anewer|atime|cmin|cnewer|ctime|daystart|depth|empty|executable|false|` +
	`group|iname|inum|ipath|iregex|links|ls|maxdepth|mindepth|mmin|mount|mtime|name|newer|nogroup|not|nouser|o|or|path|` +
	`perm|print|print0|printf|prune|readable|regex|size|true|type|uid|gid|user|writable|xdev|H|L|P)$`)

// harmlessFind has only tests and prints among its words; -delete, -exec, -fprint and all that comes later are risky. A
// value that looks like a flag is refused too.
func harmlessFind(args []word) bool {
	return fixed(args) && all(args, func(a word) bool {
		return !strings.HasPrefix(a.text, "-") || findTests.MatchString(a.text) || negative.MatchString(a.text)
	})
}

// harmlessSed understands scripts of one command that prints, deletes or replaces. Others can write files and run commands.
func harmlessSed(args []word) bool {
	if !fixed(args) {
		return false
	}
	for len(args) > 0 && sedFlags.MatchString(args[0].text) {
		args = args[1:]
	}
	if len(args) == 0 || !sedPrints.MatchString(args[0].text) && !replaces(args[0].text) {
		return false
	}
	return all(args[1:], func(a word) bool { return !strings.HasPrefix(a.text, "-") })
}

const (
	sedAt    = `([0-9]+|\$|/[^/\\\n]+/)`
	sedPrint = `(` + sedAt + `(,` + sedAt + `)?)?[pdq=]`
)

var (
	sedFlags  = regexp.MustCompile(`^-[nErsuz]+$`)
	sedPrints = regexp.MustCompile(`^` + sedPrint + `(;` + sedPrint + `)*$`)
	sedEnd    = regexp.MustCompile(`^[gpIi0-9]*$`)
)

// replaces says that a sed script is one s command whose flags neither write nor run. Its delimiter stands in it three
// times and not once more, so that no implementation can find the end of the command elsewhere.
func replaces(script string) bool {
	if len(script) < 4 || script[0] != 's' || !strings.ContainsRune("/|,#:@!%_", rune(script[1])) || strings.Contains(script, "\n") {
		return false
	}
	parts := strings.Split(script, script[1:2])
	return len(parts) == 4 && sedEnd.MatchString(parts[3]) && !strings.HasSuffix(parts[1], "\\") && !strings.HasSuffix(parts[2], "\\")
}

// harmlessAwk refuses what could be a redirection, a pipe, a call of another program or of another file of awk.
func harmlessAwk(args []word) bool {
	if !fixed(args) {
		return false
	}
	for len(args) > 1 && strings.HasPrefix(args[0].text, "-") {
		switch f := args[0].text; {
		case f == "-F" || f == "-v":
			args = args[2:]
		case strings.HasPrefix(f, "-F"):
			args = args[1:]
		default:
			return false
		}
	}
	if len(args) == 0 || strings.HasPrefix(args[0].text, "-") {
		return false
	}
	script := strings.ReplaceAll(args[0].text, "||", "")
	for _, risky := range []string{"|", ">", "@", "system", "getline", "\\\n"} {
		if strings.Contains(script, risky) {
			return false
		}
	}
	return all(args[1:], func(a word) bool { return !strings.HasPrefix(a.text, "-") })
}
