package mcpserver

import (
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/process"
)

// ShortenUndoTurn lets the tests that stop an undo not wait for it for long.
func ShortenUndoTurn() { undoTurn = 100 * time.Millisecond }

// ProcessOf is the process of the server that runs.
func ProcessOf(w activities.World, server string) process.Identity { return runningIn(w, server).id }

// IsUnsettled reports whether a call under a token has no answer from the server that runs.
func IsUnsettled(w activities.World, server, token string) bool {
	return runningIn(w, server).isUnsettled(token)
}

func runningIn(w activities.World, server string) *connection {
	for _, each := range w.Actions {
		if a, is := each.(*action); is {
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.running[server]
		}
	}
	return nil
}
