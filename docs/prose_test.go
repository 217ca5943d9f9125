package docs_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/starter/command"
)

var (
	fenced = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	inline = regexp.MustCompile("`((?:starter|go run) [^`]+)`")
)

// TestCommandsInTheTextExist looks up the commands and flags that the text mentions. Command lines
// to type stand in blocks, which are run.
func TestCommandsInTheTextExist(t *testing.T) {
	found := 0
	for _, page := range pagesToRead(t) {
		for _, match := range inline.FindAllStringSubmatch(fenced.ReplaceAllString(read(t, page), ""), -1) {
			found++
			line := match[1]
			if words := strings.Fields(line); words[0] == "go" {
				require.FileExists(t, filepath.Join("..", words[2], "main.go"), "%s: %s", page, line)
				continue
			}
			words := strings.Fields(line)[1:]
			c, rest, err := command.Tree("linux").Find(words)
			require.NoError(t, err, "%s: %s", page, line)
			for _, word := range words {
				if name, isFlag := strings.CutPrefix(word, "--"); isFlag && name != "help" {
					require.NotNil(t, c.Flag(name), "%s: %s: %s", page, line, word)
				}
			}
			require.False(t, c.HasParent() && c.HasSubCommands() && len(rest) > 0, "%s: %s", page, line)
		}
	}
	require.Greater(t, found, 30)
}
