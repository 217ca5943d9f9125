package faults

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
)

func TestMain(m *testing.M) {
	if child, err := Child(); child {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// What is measured, in the words of the table: how it ended, how often it acted, what is left over.
var measured = map[string][2]string{
	"cancel":    {"canceled; acted 2; left first +1, second +1", "canceled, unwound; acted 2; left nothing"},
	"lie":       {"failed; acted 1; left first +1", "failed, unwound; acted 1; left nothing"},
	"undo-down": {"failed; acted 2; left second +1", "failed, unwound; acted 2; left nothing"},
	"terminate": {"terminated; acted 2; left first +1, second +1",
		"terminated, Recover completed, unwound; acted 2; left nothing"},
	"terminate-undo": {"terminated; acted 2; left first +1, second +1",
		"terminated, Recover completed, unwound; acted 2; left nothing"},
	"kill":  {"completed; acted 3; left nothing", "completed, committed; acted 3; left nothing"},
	"kills": {"failed; acted 2; left second +1", "failed, unwound; acted 2; left nothing"},
	"timeout": {"timed out; acted 2; left first +1, second +1",
		"failed, refused at its start; acted 0; left nothing"},
}

func (o outcome) String() string {
	return fmt.Sprintf("%s; acted %d; left %s", o.Ended, o.Acted, o.leftText())
}

func TestWhoEndsWithWhatLeftOver(t *testing.T) {
	thrown := faults
	if testing.Short() {
		thrown = nil
		for _, f := range faults {
			if !f.killed {
				thrown = append(thrown, f)
			}
		}
		t.Log("short: no workers are killed")
	}
	f, err := measure(t.Context(), servertest.Shared(t).ClientOptions(), thrown)
	require.NoError(t, err)
	require.Len(t, f.Faults, len(thrown))
	for _, r := range f.Faults {
		t.Run(r.Fault, func(t *testing.T) {
			require.Equal(t, measured[r.Fault][0], r.Usual.String())
			require.Equal(t, measured[r.Fault][1], r.Unwind.String())
			require.Empty(t, r.Unwind.Unnamed)
		})
	}
}

// TestWhatIsLeftOverIsSeen holds the counting itself to account: an effect that nobody names is
// found.
func TestWhatIsLeftOverIsSeen(t *testing.T) {
	c := newCounters()
	defer c.close()
	c.openTrial("lie-unwind", script{lies: "first"})
	s := service(c.server.URL)
	a := addition{Trial: "lie-unwind", Step: "first", Key: "k"}
	require.ErrorContains(t, s.addValue(t.Context(), a), "500")
	require.ErrorContains(t, s.addValue(t.Context(), a), "500")
	lie := &trial{stage: &stage{counters: c}, fault: fault{name: "lie"}, side: unwindSide, ended: "failed"}
	require.Equal(t, outcome{Ended: "failed", Acted: 1, Left: []string{"first +1"}, Unnamed: []string{"first"}},
		lie.result())

	taken, err := s.takeBack(t.Context(), a)
	require.NoError(t, err)
	require.True(t, taken.Had)
	require.Equal(t, outcome{Ended: "failed", Acted: 1, Left: []string{}, Unnamed: []string{}}, lie.result())
	require.ErrorContains(t, s.addValue(t.Context(), a), "taken back")
	lie.ended = "completed"
	require.Equal(t, "first -1, second -1, third -1", strings.Join(lie.result().Left, ", "), "it did not do what it says")
}
