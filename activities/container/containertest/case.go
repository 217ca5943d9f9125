package containertest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container"
)

// What cases of actiontest have in common: a box whose name stands in a file of the case's folder,
// beside the journal.

// StartIn starts the box of a case, with these files in /srv.
func StartIn(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	b := Start(t)
	b.Put(t, "/srv", files)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "name"), []byte(b.Name), 0o600))
	t.Cleanup(func() { ClearIn(t, dir) })
}

// StartCase starts the box of a case of container.exec.
func StartCase(t testing.TB, dir string) {
	t.Helper()
	StartIn(t, dir, map[string]string{"a": "one\n", "d/x": "x\n"})
}

// Manifest is the filesystem of a case's box, how it stands, and what a token has left beside it.
func Manifest(t testing.TB, dir string) string {
	t.Helper()
	b := In(t, dir)
	lines := []string{Files(t, b), b.Inspect(t).State.Status}
	for _, token := range TokensIn(t, dir) {
		for _, left := range Left(t, token) {
			lines = append(lines, left.Names...)
		}
		if kept := Kept(t, token); len(kept) > 1 {
			lines = append(lines, fmt.Sprintf("%s of what a rollback has kept", activities.CountOf(len(kept), "image")))
		}
	}
	return strings.Join(lines, "\n")
}

// Open opens the world of a case, which takes checkpoints by docker commit.
func Open(dir string) (activities.World, error) {
	return container.New(container.Config{State: dir, Layers: container.LayersNever})
}

// NameIn is the name of the box of a case.
func NameIn(dir string) string {
	name, err := os.ReadFile(filepath.Join(dir, "name"))
	if err != nil {
		panic(err)
	}
	return string(name)
}

// In is the box of a case.
func In(t testing.TB, dir string) *Box { return &Box{Client: Docker(t), Name: NameIn(dir)} }

// TokensIn are the tokens of a case's journal.
func TokensIn(t testing.TB, dir string) []string {
	t.Helper()
	folders, err := os.ReadDir(filepath.Join(dir, "container", "tokens"))
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	names := make([]string, 0, len(folders))
	for _, f := range folders {
		names = append(names, f.Name())
	}
	return names
}

// ClearIn removes what the tokens of a journal have left. It is for a Cleanup.
func ClearIn(t testing.TB, dir string) {
	t.Helper()
	for _, token := range TokensIn(t, dir) {
		Clear(t, token)
	}
}
