package crash

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// worlds are those of the machine. One that is missing is not tested, and fails where nothing may be skipped.
func worlds(t *testing.T) []string {
	t.Helper()
	all := []string{"file", "stripe"}
	for world, why := range map[string]error{"container": hasEngine(), "terraform": hasTerraform()} {
		switch {
		case why == nil:
			all = append(all, world)
		case os.Getenv("CI") == "true":
			t.Fatalf("world %s: %v", world, why)
		default:
			t.Logf("SKIPPED, nothing of world %s is tested here: %v", world, why)
		}
	}
	return all
}

// TestMatrix is a small matrix: what is lost, doubled, left over or blocked in it is told in the log.
func TestMatrix(t *testing.T) {
	f, err := Run(t.Context(), Options{Kills: 15, Seed: 1, Within: time.Minute, Worlds: worlds(t), Log: t.Output()})
	require.NoError(t, err)
	require.Zero(t, f.Lost+f.Doubled+f.Orphaned+f.Blocked, "%+v", f)
	require.GreaterOrEqual(t, f.Kills, 5, "too little was killed to tell anything")
	require.NotZero(t, f.Unwound)
}
