package follow

import (
	"context"
	"time"

	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// progressEvery is how often the server is asked how far the steps under way have come, and which
// hosts they wait for.
const progressEvery = time.Second

// progress is how far the steps under way have come, as the server last knew it.
type progress struct {
	client *tasks.Client
	id     string
	asked  time.Time
	last   tasks.Progress
}

// addTo adds it to a state. What the server does not say in time is left out.
func (p *progress) addTo(ctx context.Context, s *protocol.State) {
	isToGoOn := s.Done < s.Total || s.Session != nil && s.Session.Open
	waits := s.Phase == protocol.Forward && isToGoOn && len(tasks.StepsUnderWay(*s)) == 0 // for a person or an agent
	if waits || s.Phase == protocol.Closed {
		return
	}
	if time.Since(p.asked) >= progressEvery {
		p.asked = time.Now()
		limited, cancel := context.WithTimeout(ctx, progressEvery)
		defer cancel()
		if now, err := p.client.Progress(limited, p.id); err == nil {
			p.last = now
		}
	}
	p.last.AddTo(s)
}
