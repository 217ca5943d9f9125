package environment

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestARollbackGoesPastWhatIsNewerInItsPartsOnly has one task that changes a part before a checkpoint
// and another after it, and one that changes a part which the checkpoint does not have.
func TestARollbackGoesPastWhatIsNewerInItsPartsOnly(t *testing.T) {
	at := func(hour int) time.Time { return time.Date(2026, 1, 1, hour, 0, 0, 0, time.UTC) }
	var known Tasks
	known.Add(Writes{All: []Write{{Task: "t", Part: "db", At: at(10)}, {Task: "t", Part: "files", At: at(12)}}})
	to := func(parts ...string) Checkpoint {
		c := Checkpoint{Created: at(11)}
		for _, name := range parts {
			c.Parts = append(c.Parts, KeptPart{Name: name})
		}
		return c
	}
	require.Equal(t, []TaskWrote{{Task: "t", Parts: []PartWrote{{"files", at(12)}}, At: at(12)}},
		known.Past(to("db", "files")))
	require.Empty(t, known.Past(to("db")), "what it has changed there is in the checkpoint")
	require.Empty(t, known.Past(to("db", "files").Only([]string{"db"})))
	known.Add(Writes{All: []Write{{Task: "t", Part: "db", At: at(13)}}})
	require.Equal(t, []TaskWrote{{Task: "t", Parts: []PartWrote{{"db", at(13)}, {"files", at(12)}}, At: at(13)}},
		known.Past(to("db", "files")))
}

func TestTheTasksThatDoNotFitAreCounted(t *testing.T) {
	var known Tasks
	for i := range maxPast + 30 {
		known.Add(Writes{All: []Write{{Task: fmt.Sprint(i), Part: "db", At: time.Unix(int64(i), 0)}}})
	}
	past, more := FitPast(known.Past(Checkpoint{Parts: []KeptPart{{Name: "db"}}}))
	require.Len(t, past, maxPast)
	require.Equal(t, 30, more)
	require.Equal(t, fmt.Sprint(maxPast+29), past[0].Task, "the newest are told")
}
