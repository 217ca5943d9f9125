package activities_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

func TestCounts(t *testing.T) {
	require.Equal(t, "1 path", activities.CountOf(1, "path"))
	require.Equal(t, "0 paths", activities.CountOf(0, "path"))
	require.Equal(t, "1 entry", activities.CountOf(1, "entry"))
	require.Equal(t, "2 entries", activities.CountOf(2, "entry"))
	require.Equal(t, "2 keys", activities.CountOf(2, "key"))
	require.Equal(t, "2 processes", activities.CountOf(int64(2), "process"))

	require.Equal(t, "995 rows added", activities.Count{Added: 995}.Describe("row"))
	require.Equal(t, "1 row removed, 2 changed", activities.Count{Removed: 1, Changed: 2}.Describe("row"))
	require.Equal(t, "1 row added, 3 removed, 1 changed",
		activities.Count{Added: 1, Removed: 3, Changed: 1}.Describe("row"))
	require.Equal(t, "no key changes", activities.Count{}.Describe("key"))
}

var (
	// plural is a count whose word is the same for 1. A limit is never 1.
	plural = regexp.MustCompile(`%d ([a-z]+ )?[a-z]+s\b`)
	limit  = regexp.MustCompile(`(at most|at least|more than|1 to|than the) %d ([a-z]+ )?[a-z]+s`)
	verbs  = regexp.MustCompile(
		`%d ((of|in|for|from) )?(is|was|has|does|holds|stands|others|less|its|after its|this|files up)\b`)
)

// TestNoTextCountsByItself finds texts that would say "1 paths", in the whole repository.
func TestNoTextCountsByItself(t *testing.T) {
	files := 0
	require.NoError(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			// Benchmarks and tests count what they make themselves; the overlay's program is small, and
			// imports little.
			if strings.HasPrefix(d.Name(), ".") && path != ".." || path == "../bench" || path == "../testrun" ||
				path == "docker/overlay" || strings.HasSuffix(path, "activities/docker/overlay") {
				return filepath.SkipDir
			}
			return nil
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		files++
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				text := verbs.ReplaceAllString(limit.ReplaceAllString(l.Value, ""), "")
				assert.NotRegexp(t, plural, text, "%s: use CountOf", set.Position(l.Pos()))
			}
			return true
		})
		return nil
	}))
	require.Greater(t, files, 400)
}
