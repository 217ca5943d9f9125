package protocol

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/packed"
)

func incompressibleText(r *rand.Rand, bytes int) string {
	raw := make([]byte, bytes*3/4)
	for i := range raw {
		raw[i] = byte(r.Uint32())
	}
	return base64.StdEncoding.EncodeToString(raw)
}

func TestTheLargestLedgerIsCarriedWithEveryEntryParked(t *testing.T) {
	const n = maxProgress
	r := rand.New(rand.NewPCG(1, 2))
	c := Carry{Version: CarryVersion}
	for i := range n {
		step := fmt.Sprintf("s%04d", i)
		c.Saga.Entries = append(c.Saga.Entries, activities.Entry{
			Version: 1, Seq: i + 1, Step: step, Action: "file.write", UndoType: "file.write.undo",
			Token: activities.NewToken("run", step, 1),
		})
	}
	size, err := packed.Size(bareCarry(c))
	require.NoError(t, err)
	each := (MaxLedger(n) - size) / n * 5 / 4 // base64 compresses to what it encodes
	c.Saga.Progress = map[string]compensations.Progress{}
	for i := range c.Saga.Entries {
		e := &c.Saga.Entries[i]
		e.Params = json.RawMessage(`"` + incompressibleText(r, each) + `"`)
		var l compensations.Progress
		l.State, l.Parks, l.Reason = compensations.Parked, 1, "someone else changed it since: "+incompressibleText(r, 40)
		l.Undone = activities.Undone{Outcome: activities.Drifted,
			Drift: &activities.Drift{Digest: activities.DigestOf([]byte(e.Step))}}
		c.Saga.Progress[e.Token] = l
	}
	ledger := c
	ledger.Saga.Progress = nil
	size, err = packed.Size(bareCarry(ledger))
	require.NoError(t, err)
	require.InDelta(t, MaxLedger(n), size, 0.05*packed.Max, "the ledger is about as large as it may be")
	raw, err := c.Fit()
	require.NoError(t, err)
	require.Len(t, decodeCarry(t, raw).Saga.Progress, n)
}

func TestManyGatesWithLongDiffsAreCarried(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	c := Carry{Version: CarryVersion, Steps: map[string]StepCarry{}}
	for i := range 40 {
		change := activities.Change{
			Summary: "write", Diff: incompressibleText(r, activities.MaxDiff), Undo: incompressibleText(r, activities.MaxText),
			Digest: activities.DigestOf([]byte(fmt.Sprint(i))),
			Losses: []string{incompressibleText(r, activities.MaxItem)},
			Facts:  []string{incompressibleText(r, activities.MaxItem)},
		}
		c.Steps[fmt.Sprint(i)] = StepCarry{
			Gate: &GateCarry{View: GateView{Step: fmt.Sprint(i), Digest: "sha256:opening", Change: change}}}
	}
	_, err := c.MarshalJSON()
	require.Error(t, err)
	before := *c.Steps["7"].Gate
	whole := c.Steps
	raw, err := c.Fit()
	require.NoError(t, err)
	after := decodeCarry(t, raw).Steps["7"].Gate.View
	require.Equal(t, before.View.Digest, after.Digest)
	require.Equal(t, before.View.Change.Digest, after.Change.Digest)
	require.Regexp(t, `\.\.\. not shown: 1 more line, \d+ of 32768 bytes\n$`, after.Change.Diff,
		"not more than must be, and it says so")
	require.Equal(t, before, *whole["7"].Gate, "what the run itself shows stays whole")
}

// decodeCarry returns the carry that the next run gets.
func decodeCarry(t *testing.T, raw json.RawMessage) (c Carry) {
	t.Helper()
	require.NoError(t, json.Unmarshal(raw, &c))
	return c
}
