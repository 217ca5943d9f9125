package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// guard is the test that must turn red.
const guard = "TestATripThatFailsLeavesNothing"

// mutants leave out one compensation.
var mutants = map[string]func(t *testing.T, register *ast.CallExpr){
	// The step is on a ledger that is never unwound: its forward has an entry, but there is no
	// compensation.
	"not registered": func(t *testing.T, register *ast.CallExpr) {
		other, err := parser.ParseExpr("compensations.New(ctx, compensations.Options{})")
		require.NoError(t, err)
		register.Fun.(*ast.SelectorExpr).X = other
	},
	"registered as one that only reads": func(t *testing.T, register *ast.CallExpr) {
		replaced := false
		for _, e := range register.Args[1].(*ast.CompositeLit).Elts {
			if field := e.(*ast.KeyValueExpr); field.Key.(*ast.Ident).Name == "Undo" {
				field.Key, field.Value, replaced = ast.NewIdent("ReadOnly"), ast.NewIdent("true"), true
			}
		}
		require.True(t, replaced)
	},
}

// TestEachCompensationIsNeeded removes one compensation after another from the workflow's source,
// and requires that the guard fails each time, and passes if nothing is removed.
func TestEachCompensationIsNeeded(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED by -short: it builds the program five times")
	}
	const source = "trip.go"
	registrations := 0
	whole := mutate(t, source, func(*ast.CallExpr) { registrations++ })
	require.Equal(t, 2, registrations, "one for each forward")
	out, err := testWith(t, source, whole)
	require.NoError(t, err, "nothing is left out, and it fails:\n%s", out)

	for name, change := range mutants {
		for left := range registrations {
			t.Run(fmt.Sprintf("step %d %s", left+1, name), func(t *testing.T) {
				n := 0
				out, err := testWith(t, source, mutate(t, source, func(register *ast.CallExpr) {
					if n == left {
						change(t, register)
					}
					n++
				}))
				require.Error(t, err, "nothing has noticed")
				require.Contains(t, out, "--- FAIL: "+guard)
				require.Contains(t, out, "Should be empty, but was", "the guard has seen what is left over")
			})
		}
	}
}

// mutate passes each call of saga.Register to change, in order, and returns the changed source.
func mutate(t *testing.T, source string, change func(*ast.CallExpr)) []byte {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, source, nil, parser.ParseComments)
	require.NoError(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if f, ok := call.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Register" {
			if on, ok := f.X.(*ast.Ident); ok && on.Name == "saga" {
				change(call)
			}
		}
		return true
	})
	var out bytes.Buffer
	require.NoError(t, format.Node(&out, files, file))
	return out.Bytes()
}

// testWith runs the guard with a source file replaced.
func testWith(t *testing.T, source string, text []byte) (string, error) {
	dir := t.TempDir()
	replaced, err := filepath.Abs(source)
	require.NoError(t, err)
	mutant, overlay := filepath.Join(dir, source), filepath.Join(dir, "overlay.json")
	raw, err := json.Marshal(map[string]any{"Replace": map[string]string{replaced: mutant}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(mutant, text, 0o600))
	require.NoError(t, os.WriteFile(overlay, raw, 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-overlay="+overlay, "-run=^"+guard+"$",
		".").CombinedOutput()
	return string(out), err
}
