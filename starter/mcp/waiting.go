package mcp

import (
	"context"
	"strings"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/session"
)

// awaitPerson waits for the end of a request that a person must decide about, for as long as a call
// may take. What it returns is pending if nobody has decided by then.
func (s *Server) awaitPerson(ctx context.Context, of session.Session, pending protocol.Answer) protocol.Answer {
	limited, cancel := context.WithTimeout(ctx, s.Wait)
	defer cancel()
	answer, err := of.Await(limited, pending.Request)
	if err != nil {
		return pending
	}
	return answer
}

// whatWaits says what a person must decide.
func whatWaits(a protocol.Answer) string {
	for _, s := range a.Steps {
		if s.Gate != nil {
			return "step " + s.ID + " waits for a person's approval"
		}
		if s.Park != nil {
			return "step " + s.ID + " has failed, and waits for a person's decision"
		}
	}
	if a.Stuck != "" {
		return a.Stuck
	}
	if len(a.WaitsFor) > 0 {
		return "it waits for step " + strings.Join(a.WaitsFor, " and step ") + ", which waits for a decision"
	}
	return "it waits for a person"
}
