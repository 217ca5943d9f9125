// Package docs_test runs every block of YAML and every command in README.md and docs, as they
// stand, on real parts.
package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/starter/command"
	"github.com/seed-62bf7108/unwind/testrun"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// TestMain makes the test binary serve as the programs that the documentation tells people to type,
// by links of their names.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "starter":
		os.Exit(command.Main(command.Options{}))
	case "temporal":
		if err := runTemporalCLI(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "temporal:", err)
			os.Exit(1)
		}
		return
	}
	host.Hooks()
	code := testrun.RunWaiting(m)
	testrun.StopServers()
	if err := containertest.RemoveImages(); err != nil {
		panic(err)
	}
	os.Exit(code)
}

var docsBlock = regexp.MustCompile(`(?m)^//\tname: (?:.*\n(?://\t.*\n)*)`)

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
	found := 0
	for _, b := range blocks(t, "yaml") {
		if b.isTask() {
			found++
			require.NoError(t, compile("task.yaml", b.taskFile()), b)
		}
	}
	require.GreaterOrEqual(t, found, 14)
}

func TestPackageDocumentationCompiles(t *testing.T) {
	source, err := os.ReadFile("../workflows/task/doc.go")
	require.NoError(t, err)
	shown := docsBlock.FindString(string(source))
	require.NotEmpty(t, shown)
	require.NoError(t, compile("doc.go", strings.ReplaceAll(shown, "//\t", "")))
}
