package readonly

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/testrun"
)

// shells are those that images have as sh.
var shells = [][]string{{"sh"}, {"dash"}, {"bash"}, {"bash", "--posix"}, {"busybox", "ash"}, {"mksh"}}

// programs are those that the shells find, none of them built in.
var programs = []string{"look", "list", "view", "plant"}

// pieces are what scripts are made of here: half of them mean something to some shell.
var pieces = []string{
	"look", "list", "view ", "a", "-v", "b.c", "%1", "x=y", " ", " ", " ", "\t", "'", "'", "'a b'", `"`, `"c d"`, `"e`,
	"|", "||", "&&", ";", "\n", "\n",
	"#", "# ", "\\", "\\\n", "$", "$'", `$"`, "$x", "${x}", "$(plant x)", "`plant x`", "plant x", " >made", "2>made",
	"<in", "&", "(", ")", "{ ", " }", "!",
	"!!", "~", "*", "?", "[", "]", "{a,b}", "^", "=", "@", "+", "if ", "do ", "time ", "function ", "é", "\x00", "\r",
	"\x80", "<<x", "x[$(plant x)]", "((", "[[ ",
}

// TestShellsReadWhatTheParserReads gives real shells what the parser accepts of random scripts.
// They may call only what it has read, word for word, and write nothing.
func TestShellsReadWhatTheParserReads(t *testing.T) {
	t.Parallel()
	random, count := testrun.Rand(t), 25
	if testrun.Deep() {
		count = 1_000
	}
	for _, shell := range shells {
		testrun.NeedProgram(t, shell[0], "apt-get install mksh busybox-static")
	}
	bin, called := stubs(t), 0
	for range count {
		script, calls := acceptedScript(random)
		for _, shell := range shells {
			n, wrong := misread(t, shell, bin, script, calls)
			assert.Empty(t, wrong, "%v: %q", shell, script)
			called += n
		}
	}
	assert.Greater(t, called, count, "the shells run most of the scripts")
	for script, calls := range map[string][][]string{
		"look # list \\\nplant x": {{"look"}},
		"look a >made":            {{"look", "a"}},
		"look 'a' b":              {{"look", "a b"}},
	} {
		_, wrong := misread(t, []string{"sh"}, bin, script, calls)
		assert.NotEmpty(t, wrong, "a parser that reads %q as %q", script, calls)
	}
}

// acceptedScript draws scripts until the parser takes one that has something in it that shells
// could take otherwise.
func acceptedScript(random *rand.Rand) (script string, calls [][]string) {
	for {
		script = "look "
		for range 2 + random.IntN(10) {
			script += pieces[random.IntN(len(pieces))]
		}
		calls, ok := splitCalls(script)
		known := func(argv []string) bool { return slices.Contains(programs, argv[0]) }
		if ok && !slices.ContainsFunc(calls, func(argv []string) bool { return !known(argv) }) &&
			strings.ContainsAny(script, `#\$>&({!~*[^'"`+"`") {
			return script, calls
		}
	}
}

// misread runs a script. It returns how many programs the shell called, and what it did that is not
// in calls. The programs that it finds, in the folder bin, only log how they were called.
func misread(t *testing.T, shell []string, bin, script string, calls [][]string) (called int, wrong []string) {
	t.Helper()
	dir := t.TempDir()
	log, work := filepath.Join(dir, "log"), filepath.Join(dir, "work")
	require.NoError(t, os.Mkdir(work, 0o700))
	at, err := exec.LookPath(shell[0])
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), at, append(shell[1:len(shell):len(shell)], "-c", script)...)
	cmd.Dir, cmd.Env = work, []string{"PATH=" + bin, "LOG=" + log}
	_ = cmd.Run() // a word that is no program fails it
	raw, err := os.ReadFile(log)
	if err != nil && !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	for record := range strings.SplitSeq(string(raw), "\x00END\x00") {
		if record == "" {
			continue
		}
		called++
		argv := strings.Split(record, "\x00")
		if !slices.ContainsFunc(calls, func(c []string) bool { return slices.Equal(c, argv) }) {
			wrong = append(wrong, fmt.Sprintf("called %q", argv))
		}
	}
	made, err := os.ReadDir(work)
	require.NoError(t, err)
	for _, entry := range made {
		wrong = append(wrong, "made "+entry.Name())
	}
	return called, wrong
}

// stubs is a folder of programs that append how they were called to the file LOG.
func stubs(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "bin")
	require.NoError(t, os.Mkdir(bin, 0o700))
	for _, name := range programs {
		stub := `#!/bin/sh` + "\n" + `printf '%s\000' "${0##*/}" "$@" "END" >>"$LOG"` + "\n"
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte(stub), 0o700))
	}
	return bin
}
