package render

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

func TestAGateSaysWhoHasApprovedAndWhoIsMissing(t *testing.T) {
	g := protocol.GateView{Step: "tidy", Why: "the worker's policy asks", Until: time.Unix(0, 0)}
	var none, some bytes.Buffer
	Gate(&none, g)
	require.NotContains(t, none.String(), "appro")
	g.Assents = []activities.Assent{{Who: "ann", Why: "I looked\nat it"}}
	g.Waits = "1 of 2: still one of sre (cy)"
	Gate(&some, g)
	require.Contains(t, some.String(), "  approved  by ann: I looked at it (the name is a claim)\n")
	require.Contains(t, some.String(), "  approvals 1 of 2: still one of sre (cy)\n")
}
