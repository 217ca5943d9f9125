package crash

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// unreached are the points that no task of the matrix reaches.
var unreached = map[string]string{
	"file:given-back":               "only where someone else is at the same file",
	"file:undo-given-back":          "the same",
	"file:released":                 "only when a rollback window closes",
	"file:release-dropped":          "the same",
	"stripe:released":               "the same",
	"sqlite:opened":                 "only by a query, which changes nothing",
	"redis:recorded":                "only by environments, which sitePoints break: these steps are on a whole database",
	"redis:staged":                  "the same",
	"redis:kept":                    "the same",
	"redis:captured":                "the same",
	"redis:exchanged":               "the same",
	"redis:compared":                "the same",
	"redis:undone":                  "the same",
	"redis.verify:read":             "only by a step that changes nothing",
	"redis.compare:read":            "the same",
	"disk:opened":                   "only by a look, which changes nothing",
	"disk:frozen":                   "only with a machine that runs, whose case of the suite breaks it there",
	"disk:paused":                   "only with the memory of a machine, whose case of the suite breaks it there",
	"disk:went-on":                  "only with the memory of a machine, whose case of the suite breaks it there",
	"folder.restore:created":        "only where a container is made again, whose case of the suite breaks it there",
	"folder.restore:made":           "the same",
	"folder.restore:filled":         "the same",
	"folder.restore:turn-taken":     "the same",
	"folder.restore:made-removed":   "the same",
	"folder.restore:before-left":    "the same",
	"folder.restore:left-aside":     "the same",
	"container.exec:reset-begun":    "only when a person asks for it",
	"container.exec:reset-decided":  "the same",
	"container.exec:reset-made":     "the same",
	"overlay.commit:reversed":       "in the helper's process, whose own tests end it there",
	"overlay.commit:kept":           "the same",
	"overlay.commit:written":        "the same",
	"overlay.commit:taking-off":     "the same",
	"overlay.commit:aside":          "the same",
	"terraform.checkpoint:recorded": "only by environments; the case of the suite breaks it there",
	"terraform.checkpoint:kept":     "the same",
	"terraform.checkpoint:applied":  "the same",
	"terraform.checkpoint:closed":   "the same",
	"terraform.checkpoint:dropped":  "the same",
	"terraform.restore:placed":      "the same",
	"terraform.restore:fenced":      "the same",
	"terraform.restore:files-back":  "the same",
}

func worldsInMatrix() []string { return slices.Sorted(maps.Keys(inMatrix)) }

// TestEveryPointIsInTheTable reads the sources of the worlds: the matrix must break at every point
// in them.
func TestEveryPointIsInTheTable(t *testing.T) {
	reach := regexp.MustCompile(`(?:\breach(?:Point)?|point\.Reach)\("([^"]+)"\)`)
	var inSource []string
	for _, world := range append(worldsInMatrix(), "snapshot", "docker") {
		require.NoError(t,
			filepath.WalkDir(filepath.Join("..", "..", "activities", world), func(path string, d fs.DirEntry, err error) error {
				if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
					return err
				}
				source, err := os.ReadFile(path)
				for _, m := range reach.FindAllStringSubmatch(string(source), -1) {
					label := m[1]
					if strings.HasPrefix(label, "container.replace:") { // no task of the matrix replaces a container
						continue
					}
					if !strings.Contains(label, ":") {
						label = world + ":" + label
					}
					inSource = append(inSource, label)
				}
				return err
			}))
	}
	var inTable []string
	for _, at := range targets(worldsInMatrix()) {
		world, _, _ := strings.Cut(at.Label, ".")
		_, what, _ := strings.Cut(at.Label, ":")
		switch { // these begin with a name that is put before them
		case world == "file", world == "stripe", world == "sqlite", world == "postgres", world == "redis", world == "etcd",
			world == "unit", world == "environment", world == "disk",
			strings.HasPrefix(at.Label, "terraform.front:"):
			at.Label = world + ":" + what
		}
		inTable = append(inTable, at.Label)
	}
	for label := range unreached {
		require.Contains(t, inSource, label, "a point that is said to be out of reach is no longer there")
		inTable = append(inTable, label)
	}
	slices.Sort(inSource)
	slices.Sort(inTable)
	require.Equal(t, slices.Compact(inSource), slices.Compact(inTable))
}

// TestATaskIsDrawnFromItsSeedAlone draws each task twice, and once from another seed.
func TestATaskIsDrawnFromItsSeedAlone(t *testing.T) {
	worlds := worldsInMatrix()
	all := targets(worlds)
	labels := map[string]bool{}
	for i := range all {
		p := draw(7, i, 3, worlds)
		require.Equal(t, p, draw(7, i, 3, worlds))
		require.NotEqual(t, p, draw(8, i, 3, worlds))
		for _, f := range p.Faults {
			labels[f.At] = true
		}
	}
	for _, at := range all {
		require.True(t, labels[at.Label], "no task of a round breaks at %s", at.Label)
	}
}
