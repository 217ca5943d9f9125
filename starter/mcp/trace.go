package mcp

import (
	"context"

	"github.com/seed-62bf7108/unwind/starter/tasks"
)

// maxTraced is how many events a trace has.
const maxTraced = 1000

// Trace is what has happened in a session, the earliest first.
type Trace struct {
	// Earlier counts the events before these.
	Earlier int           `json:"earlier,omitempty"`
	Events  []tasks.Event `json:"events"`
}

func (s *Server) trace(ctx context.Context, handle string) (t Trace, err error) {
	c, id, err := s.find(ctx, handle)
	if err != nil {
		return t, err
	}
	run, err := c.Describe(ctx, id)
	if err != nil {
		return t, err
	}
	t.Events, err = c.Trace(ctx, run)
	t.Earlier = max(0, len(t.Events)-maxTraced)
	t.Events = t.Events[t.Earlier:]
	return t, err
}
