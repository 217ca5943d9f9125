package examples_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/examples"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

func TestEveryExampleIsGoodAlsoWithoutAnyOfItsWorlds(t *testing.T) {
	specs, err := host.Specs(nil)
	require.NoError(t, err)
	catalog := task.Catalog{Specs: specs, Host: "here", SharedQueue: "q"}
	for _, e := range examples.All() {
		for _, worlds := range [][]string{nil, {"container"}, {"terraform"}, {"container", "terraform"}} {
			less, gone, err := e.Without(worlds...)
			require.NoError(t, err)
			doc, err := task.Parse(e.Name+".yaml", less.Source)
			require.NoError(t, err, "%s without %v", e.Name, worlds)
			compiled, err := task.Compile(doc, catalog)
			require.NoError(t, err, "%s without %v", e.Name, worlds)
			for _, s := range compiled.Steps {
				require.NotContains(t, gone, s.ID)
			}
		}
	}
}

func TestWithoutNamesWhatItLeavesOutAndWhoNeededIt(t *testing.T) {
	e := examples.Example{Name: "x", Source: []byte(`
name: x
steps:
  - {id: a, uses: file.write}
  - {id: b, uses: container.exec}
  - {id: c, uses: file.write, needs: [a, b]}
`)}
	less, gone, err := e.Without("container")
	require.NoError(t, err)
	require.Equal(t, []string{"b"}, gone)
	require.YAMLEq(t, "name: x\nsteps: [{id: a, uses: file.write}, {id: c, uses: file.write, needs: [a]}]",
		string(less.Source))

	_, err = examples.Named("publish")
	require.EqualError(t, err,
		`there is no example "publish"; there are publish-release, publish-ok, publish-rejected, publish-canceled, session`)
}

func TestValuesAreThoseThatAnExampleAsksFor(t *testing.T) {
	e, err := examples.Named("publish-rejected")
	require.NoError(t, err)
	require.Equal(t, map[string]any{"site": "/s", "container": "c"},
		e.Values(map[string]string{"site": "/s", "container": "c", "infra": "/i"}))
}

func TestWithoutLeavesOutWhatAnAgentDoesThere(t *testing.T) {
	e, err := examples.Named("session")
	require.NoError(t, err)
	less, gone, err := e.Without("container")
	require.NoError(t, err)
	require.Equal(t, []string{"sources", "build", "patch", "try", "build-again"}, gone)
	var left []string
	for _, a := range less.Acts {
		left = append(left, a.Savepoint+a.Rollback+a.ID())
	}
	require.Equal(t, []string{"clean", "clean", "go-live"}, left)
}
