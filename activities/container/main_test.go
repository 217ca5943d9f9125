package container_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/calltest"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

func TestMain(m *testing.M) {
	calltest.Main()
	container.Attend()
	if worker := os.Getenv(workerEnv); worker != "" {
		actAsWorker(worker)
	}
	// it has no case here, and runs more tests at once than there are processors: they mostly wait
	code := actiontest.Main(m)
	if err := containertest.RemoveImages(); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// stage is a world with its journal, and the steps that a test takes in it.
type stage struct {
	world   activities.World
	action  activities.Action
	replace activities.Action
	state   string
	place   string
}

// newStage is a world that takes checkpoints by docker commit, but of containers that have layers.
func newStage(t testing.TB, state string) *stage {
	t.Helper()
	return newStageAt(t, container.Config{State: state, Layers: container.LayersNever})
}

func newStageAt(t testing.TB, c container.Config) *stage {
	t.Helper()
	if c.Host == "" {
		containertest.Docker(t)
	}
	w, err := container.New(c)
	require.NoError(t, err)
	place, err := w.Journal(t.Context())
	require.NoError(t, err)
	return &stage{world: w, action: w.Actions[0], replace: w.Actions[1], state: c.State, place: place}
}

// token is what the journal has of an entry.
func (s *stage) token(t testing.TB, e activities.Entry) *journal.Token {
	t.Helper()
	j, err := journal.Open(filepath.Join(s.state, "container"))
	require.NoError(t, err)
	token, err := j.Token(e.Token)
	require.NoError(t, err)
	return token
}

// entry is that of a new step with a token of its own. What it has left is gone after the test.
func (s *stage) entry(t testing.TB) activities.Entry {
	token := activities.NewToken(containertest.Random(), "it", 1)
	t.Cleanup(func() { containertest.Clear(t, token) })
	return activities.Entry{
		Version: activities.EntryVersion, Seq: 1, Step: "it", Action: "container.exec", UndoType: "container.exec.undo",
		Token: token, Place: activities.Place{Journal: s.place},
	}
}

func step(t testing.TB, with map[string]any, checks ...activities.Check) activities.Step {
	t.Helper()
	raw, err := json.Marshal(with)
	require.NoError(t, err)
	return activities.Step{ID: "it", With: raw, Checks: checks}
}
