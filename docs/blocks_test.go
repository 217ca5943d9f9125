package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// block is a fenced block of a page.
type block struct {
	page string
	line int // of its first line
	lang string
	text string
}

func (b block) String() string { return fmt.Sprintf("%s:%d", filepath.Base(b.page), b.line) }

// isTask says that a block of YAML is a task file, or steps of one. Other YAML is a worker's
// config.
func (b block) isTask() bool {
	return strings.HasPrefix(b.text, "name: ") && !b.isEnvironment() || strings.HasPrefix(b.text, "- id: ")
}

func (b block) isSession() bool { return strings.Contains(b.text, "\nsession:") }

// isPolicy says that a block of YAML is a policy.
func (b block) isPolicy() bool {
	return strings.HasPrefix(b.text, "groups:") || strings.HasPrefix(b.text, "rules:")
}

// isEnvironment says that a block of YAML is an environment.yaml.
func (b block) isEnvironment() bool { return strings.Contains(b.text, "\nparts:") }

// isDeclarations says that a block of YAML declares the tools of an MCP server.
func (b block) isDeclarations() bool { return strings.HasPrefix(b.text, "local: true\ntools:") }

// taskFile is the block as a task file: itself, or wrapped if it is a list of steps.
func (b block) taskFile() string {
	if strings.HasPrefix(b.text, "- id: ") {
		return "name: fragment\nsteps:\n" + b.text
	}
	return b.text
}

// blocks are all fenced blocks of README.md and the pages beside this test that are in one of the
// languages.
func blocks(t *testing.T, langs ...string) (all []block) {
	t.Helper()
	pages, err := filepath.Glob("*.md")
	require.NoError(t, err)
	for _, page := range append([]string{"../README.md"}, pages...) {
		content, err := os.ReadFile(page)
		require.NoError(t, err)
		var open *block
		for i, line := range strings.SplitAfter(string(content), "\n") {
			lang, fence := strings.CutPrefix(strings.TrimSpace(line), "```")
			switch {
			case fence && open == nil:
				open = &block{page: page, line: i + 2, lang: lang}
			case fence:
				for _, each := range langs {
					if open.lang == each {
						all = append(all, *open)
					}
				}
				open = nil
			case open != nil:
				open.text += line
			}
		}
		require.Nil(t, open, "%s: a block is not closed", page)
	}
	return all
}

// commands are the command lines of a block: a backslash at the end of a line continues it.
func (b block) commands() (lines []string) {
	joined := strings.ReplaceAll(b.text, "\\\n", " ")
	for line := range strings.Lines(joined) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}
