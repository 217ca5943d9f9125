// Package docs_test checks that the task files in the documentation are valid.
package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

func TestMain(m *testing.M) {
	host.Hooks()
	os.Exit(m.Run())
}

var (
	yamlBlock = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```")
	docsBlock = regexp.MustCompile(`(?m)^//\tname: (?:.*\n(?://\t.*\n)*)`)
)

// taskFile returns a block of YAML as a task file: itself, or wrapped where it is a list of steps. Other YAML, such as a
// worker's config, is none.
func taskFile(block string) (src string, ok bool) {
	switch {
	case strings.HasPrefix(block, "name: "):
		return block, true
	case strings.HasPrefix(block, "- id: "):
		return "name: fragment\nsteps:\n" + block, true
	}
	return "", false
}

func compile(file, src string) error {
	specs, err := host.Specs(nil)
	if err != nil {
		return fmt.Errorf("list the actions: %w", err)
	}
	doc, err := task.Parse(file, []byte(src))
	if err != nil {
		return fmt.Errorf("parse: %w", err)
	}
	if _, err = task.Compile(doc, task.Catalog{Specs: specs, Host: "here", SharedQueue: "unwind"}); err != nil {
		return fmt.Errorf("compile: %w", err)
	}
	return nil
}

func TestTaskFilesCompile(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	require.NoError(t, err)
	pages = append(pages, "../README.md")
	found := map[string]int{}
	for _, page := range pages {
		content, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, match := range yamlBlock.FindAllSubmatchIndex(content, -1) {
			src, ok := taskFile(string(content[match[2]:match[3]]))
			if !ok {
				continue
			}
			found[page]++
			line := 1 + strings.Count(string(content[:match[2]]), "\n")
			require.NoError(t, compile("task.yml", src), "%s:%d", page, line)
		}
	}
	require.Equal(t, 10, found["task-file.md"])
	require.Equal(t, 1, found["../README.md"])
}

func TestPackageDocumentationCompiles(t *testing.T) {
	source, err := os.ReadFile("../workflows/task/doc.go")
	require.NoError(t, err)
	shown := docsBlock.FindString(string(source))
	require.NotEmpty(t, shown)
	require.NoError(t, compile("doc.go", strings.ReplaceAll(shown, "//\t", "")))
}
