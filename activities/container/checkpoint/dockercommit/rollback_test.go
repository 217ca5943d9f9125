package dockercommit

import (
	"slices"
	"testing"

	"github.com/seed-62bf7108/unwind/activities/container/checkpoint"
)

func TestAnUndoBeatsCandidatesOfForwardsAndAResetThoseOfUndos(t *testing.T) {
	const token = "0123456789abcdef0123456789abcdef"
	name := func(turn string) string { return "/unwind-" + token + "-" + turn + "-abcdefgh" }
	for turn, beaten := range map[string][]string{
		checkpoint.ResetTurn: {checkpoint.ResetTurn, checkpoint.UndoTurn, checkpoint.RedoTurn, "attempt-2"},
		checkpoint.UndoTurn:  {checkpoint.UndoTurn, checkpoint.RedoTurn, "attempt-2"},
		checkpoint.RedoTurn:  {checkpoint.RedoTurn},
		"attempt-2":          {"attempt-2"},
	} {
		for _, other := range []string{checkpoint.ResetTurn, checkpoint.UndoTurn, checkpoint.RedoTurn, "attempt-2",
			"attempt-3"} {
			want := slices.Contains(beaten, other) || other == "attempt-3" && checkpoint.Rank(turn) > 0
			if got := beats(checkpoint.Rollback{Token: token, Turn: turn}, name(other)); got != want {
				t.Errorf("%s beats %s: %v", turn, other, got)
			}
		}
	}
	if beats(checkpoint.Rollback{Token: token[1:] + "0", Turn: checkpoint.ResetTurn}, name(checkpoint.UndoTurn)) {
		t.Error("another token's candidate is nobody else's")
	}
}
