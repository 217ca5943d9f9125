package journal_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

func mark(t *testing.T, j *journal.Journal) string {
	t.Helper()
	m, err := j.Mark()
	require.NoError(t, err)
	return m
}

// rewind puts a journal back to a copy of it.
func rewind(t *testing.T, dir, copied string) {
	t.Helper()
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.CopyFS(dir, os.DirFS(copied)))
}

func TestARewoundJournalDoesNotKnowTheEpochsThatItHasForgotten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	j, err := journal.Open(dir)
	require.NoError(t, err)
	early := mark(t, j)
	copied := filepath.Join(t.TempDir(), "copy")
	require.NoError(t, os.CopyFS(copied, os.DirFS(dir)))
	late := []string{mark(t, j), mark(t, j)}
	other, err := journal.Open(dir)
	require.NoError(t, err)
	late = append(late, mark(t, other))
	for _, m := range append(late, early, j.ID()) {
		require.NoError(t, j.Check(m))
	}

	rewind(t, dir, copied)
	for range 3 {
		require.NoError(t, j.Check(early))
		for _, m := range late {
			err := j.Check(m)
			require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), "%v", err)
			require.ErrorContains(t, err, "was put back to a state from before this step was compiled")
		}
		for _, each := range []*journal.Journal{j, other} { // whoever goes on with it never comes to a forgotten epoch again
			m := mark(t, each)
			require.NotContains(t, late, m)
			require.NoError(t, j.Check(m))
		}
	}
}

func TestEpochsOfSeveralProcessesAreAllKnown(t *testing.T) {
	dir := t.TempDir()
	marks := make([]string, 40)
	var wg sync.WaitGroup
	var opened [4]*journal.Journal
	for i := range opened {
		j, err := journal.Open(dir)
		require.NoError(t, err)
		opened[i] = j
	}
	for i := range marks {
		wg.Go(func() { marks[i], _ = opened[i%len(opened)].Mark() })
	}
	wg.Wait()
	known := map[string]bool{}
	for _, m := range marks {
		require.NoError(t, opened[0].Check(m))
		known[m] = true
	}
	require.Len(t, known, len(marks))
	files, err := os.ReadDir(filepath.Join(dir, "epochs"))
	require.NoError(t, err)
	require.Len(t, files, len(opened), "one for each process, however many tasks it compiles")
}

func TestWhatIsNoEpochIsRefused(t *testing.T) {
	j, _ := open(t)
	good := mark(t, j)
	series := good[strings.Index(good, "~")+1 : strings.Index(good, ".")]
	for _, bad := range []string{"~../../id.1", "~" + series, "~" + series + ".x", "~.1", "~" + series + "/.1"} {
		require.Equal(t, activities.WrongPlace, activities.TypeOf(j.Check(j.ID()+bad)), bad)
	}
	require.NoError(t, os.WriteFile(filepath.Join(j.Dir(), "epochs", series), []byte("{"), 0o600))
	require.Equal(t, activities.DamagedRecord, activities.TypeOf(j.Check(good)))
	require.NoError(t, j.Check(mark(t, j)))

	place := activities.Place{Queue: "q", Journal: "a=" + good + ",b=" + good + "@engine"}
	require.Equal(t, activities.Place{Queue: "q", Journal: "a=" + j.ID() + ",b=" + j.ID() + "@engine"},
		place.WithoutEpochs())
}
