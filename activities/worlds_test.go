package activities_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAWorldKnowsNoOtherWorld: a package below activities imports what all share, and what is below
// its own folder. A test may have the containers of another world's tests.
func TestAWorldKnowsNoOtherWorld(t *testing.T) {
	const here = "github.com/seed-62bf7108/unwind/activities/"
	isShared := map[string]bool{"actiontest": true, "declared": true, "isolated": true, "journal": true, "keyvalue": true,
		"point": true, "recordkeeping": true, "remote": true, "snapshot": true, "docker": true}
	worlds := map[string]bool{}
	require.NoError(t, filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		world, _, isBelow := strings.Cut(path, "/")
		if err != nil || e.IsDir() || !isBelow || filepath.Ext(path) != ".go" {
			return err
		}
		worlds[world] = true
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, i := range parsed.Imports {
			if imported, isHere := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), here); isHere {
				other, _, _ := strings.Cut(imported, "/")
				if strings.HasSuffix(path, "_test.go") && imported == "container/containertest" {
					continue
				}
				require.True(t, other == world || isShared[other], "%s imports %s: a world knows the contract and itself", path,
					imported)
			}
		}
		return nil
	}))
	require.Greater(t, len(worlds), len(isShared))
}
