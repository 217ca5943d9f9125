package host_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/file"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// shelf is the section of a world that nothing else knows of: it puts files on a shelf, as world
// file does.
type shelf struct {
	Folder string `yaml:"folder"`
	Locks  map[string]struct {
		Key activities.OwnSecret `yaml:"key"`
	} `yaml:"locks"`
}

func (*shelf) World() string { return "shelf" }

func (s *shelf) Check(o activities.Opening, bad activities.Bad) error {
	if !filepath.IsAbs(s.Folder) {
		bad("folder", "%q must be an absolute path", s.Folder)
	}
	for name, lock := range s.Locks {
		if !o.Secrets.Has(string(lock.Key)) {
			bad("locks."+name+".key", "it is not one of secrets")
		}
	}
	return nil
}

func (s *shelf) Open(o activities.Opening) (activities.World, error) {
	w, err := file.New(file.Config{Roots: []string{s.Folder}, LookOnly: o.LookOnly})
	w.Name = s.World()
	for i, a := range w.Actions {
		w.Actions[i] = put{a}
	}
	w.Actions = w.Actions[:1]
	return w, err
}

// put is the first action of world file, under a name of the shelf.
type put struct{ activities.Action }

func (p put) Spec() activities.Spec {
	s := p.Action.Spec()
	s.Name, s.Preflights = "shelf.put", false
	return s
}

// TestAWorldIsAddedInOneLine: it is configured, checked, listed, planned, served, undone and
// released.
func TestAWorldIsAddedInOneLine(t *testing.T) {
	folder := t.TempDir()
	before := host.Kinds
	t.Cleanup(func() { host.Kinds = before })
	host.Kinds = append(host.Kinds, activities.Kind{Sample: &shelf{Folder: folder}})

	c, err := readConfig(t,
		"host: here\nsecrets: {KEY: env:KEY, MINE: env:MINE}\nshelf:\n  folder: "+folder+"\n  locks: {main: {key: KEY}}\n")
	require.NoError(t, err)
	require.Equal(t, folder, host.SettingsOf[*shelf](c).Folder)
	require.Equal(t, []string{"MINE"}, c.TaskSecrets())
	_, err = readConfig(t, "shelf:\n  foldr: /srv\n  locks: {main: {keys: A}}\nshelv: {}\n")
	for _, want := range []string{
		"worker.yaml:2: shelf.foldr: there is no such field; did you mean folder?",
		"worker.yaml:3: shelf.locks.main.keys: there is no such field; did you mean key?",
		"worker.yaml:4: shelv: there is no such field; did you mean shelf?",
	} {
		require.ErrorContains(t, err, want)
	}
	bad, err := readConfig(t, "host: here\nstate: /nowhere\nshelf:\n  folder: srv\n  locks: {main: {key: NONE}}\n")
	require.NoError(t, err)
	bad, err = bad.WithDefaults()
	require.NoError(t, err)
	require.ErrorContains(t, bad.Validate(), `worker.yaml:4: shelf.folder: "srv" must be an absolute path`)
	require.ErrorContains(t, bad.Validate(), "worker.yaml:5: shelf.locks.main.key: it is not one of secrets")

	for _, of := range []*host.Config{nil, &c} {
		specs, err := host.Specs(of)
		require.NoError(t, err)
		require.True(t, names(specs)["shelf.put"])
	}

	f := files{serve(t, c, host.Options{}), folder}
	putting := func(keep string) map[string]any {
		return map[string]any{"name": "put", "keep": keep, "steps": []any{
			map[string]any{"id": "a", "uses": "shelf.put",
				"with": map[string]any{"path": filepath.Join(folder, "book"), "content": "x"}},
		}}
	}
	planned := call[protocol.Plan](f.stage, protocol.PlanTaskType, putting("1h")).Steps
	require.Len(t, planned, 1)
	require.Contains(t, planned[0].Change.Summary, "create")
	task := f.start(putting("1h")).GetID()
	require.Equal(t, compensations.Committed, f.report(task).Status)
	f.holds(filepath.Join(folder, "book"), "x")
	done, err := f.FindDone(t.Context(), task)
	require.NoError(t, err)
	require.Equal(t, compensations.Unwound, f.report(f.rollback(done, recovery.Part{})).Status)
	_, err = os.Stat(filepath.Join(folder, "book"))
	require.ErrorIs(t, err, os.ErrNotExist)

	require.Equal(t, compensations.Committed, f.report(f.start(putting("1s")).GetID()).Status)
	require.Eventually(t, func() bool { return f.retain().Released == 1 }, waitFor, tick)
}
