package task

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares got with a file.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

// compileFile is what a command does with a file: the problems of Parse, else those of Compile.
func compileFile(name string, src []byte) error {
	doc, err := Parse(name, src)
	if err != nil {
		return err
	}
	_, err = Compile(doc, catalog())
	return err
}

// Every file in testdata/refused is refused with exactly the text that stands beside it.
func TestRefused(t *testing.T) {
	files, err := filepath.Glob("testdata/refused/*.yml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yml"), func(t *testing.T) {
			src, err := os.ReadFile(file)
			require.NoError(t, err)
			err = compileFile("task.yml", src)
			var problems Problems
			require.True(t, errors.As(err, &problems), "%v", err)
			golden(t, strings.TrimSuffix(file, ".yml")+".txt", err.Error()+"\n")
		})
	}
}

// A worker knows fields, and the starter knows their lines.
func TestRefusalsCiteTheFile(t *testing.T) {
	doc := mustParse(t,
		"name: x\nsteps:\n  - id: one\n    uses: file.write\n    with:\n      path: /a\n      files: [{path: /b}]\n    "+
			"check:\n      - command: [rm]\n")
	for refusal, want := range map[string]string{
		"steps.one: path: no":             "task.yml:6:13: steps.one: path: no",
		"steps[0].with.path: no":          "task.yml:6:13: steps[0].with.path: no",
		"steps.one: files[0].path: no":    "task.yml:7:22: steps.one: files[0].path: no",
		"steps.one: check[0].command: no": "task.yml:9:18: steps.one: check[0].command: no",
		"steps.one: secrets.X: no":        "task.yml:3:5: steps.one: secrets.X: no",
		"nothing was touched: Refused: steps.one: a\nsteps.one: path: b": "nothing was touched: Refused: task.yml:3:5: " +
			"steps.one: a\ntask.yml:6:13: steps.one: path: b",
		"steps.two: no":  "steps.two: no",
		"some steps: no": "some steps: no",
	} {
		require.Equal(t, want, doc.Cite(refusal))
	}
}
