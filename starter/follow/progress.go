package follow

import (
	"context"
	"slices"
	"time"

	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/workflows"
)

// progressEvery is how often the server is asked how far running steps have come.
const progressEvery = time.Second

// progress is how far the running steps of a task have come, as the server last knew it.
type progress struct {
	client *tasks.Client
	id     string
	asked  time.Time
	lines  map[string][]string // by step
}

// addTo adds it to a state. What the server does not tell in time is left out.
func (p *progress) addTo(ctx context.Context, s *workflows.State) {
	if !slices.ContainsFunc(s.Steps, func(v workflows.StepView) bool { return v.State == workflows.Running }) {
		return
	}
	if time.Since(p.asked) >= progressEvery {
		p.asked = time.Now()
		limited, cancel := context.WithTimeout(ctx, progressEvery)
		defer cancel()
		if lines, err := p.client.Progress(limited, p.id); err == nil {
			p.lines = lines
		}
	}
	for i, v := range s.Steps {
		if v.State == workflows.Running {
			s.Steps[i].Progress = p.lines[v.ID]
		}
	}
}
