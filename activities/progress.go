package activities

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
)

// Progress says how far a running step has come, for people who watch it. It is what an activity's
// heartbeats carry: the server keeps the last one while the activity runs, and adds nothing to the
// history.
type Progress struct {
	Step string `json:"step"`
	// Lines are the last lines of what the step has told, secrets masked.
	Lines []string `json:"lines"`
}

// Bounds on the lines of a progress.
const (
	progressLines = 3
	progressLine  = 160 // bytes
)

// progressEvery is how often a running call is asked how far it has come. The worker sends less
// often: see worker.Options.MaxHeartbeatThrottleInterval.
const progressEvery = time.Second

// progress is what the heartbeats of one call say.
type progress struct {
	step   string
	masker *Masker

	mu   sync.Mutex
	last []string
}

// ShowProgress asks lines, each second until stop is called, how far the call of an action with
// this context has come, and shows it to whoever watches the task. Of long output it takes the end.
// Outside of a call it does nothing.
func ShowProgress(ctx context.Context, lines func() []string) (stop func()) {
	p, _ := ctx.Value(progressKey).(*progress)
	if p == nil {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(progressEvery)
		defer t.Stop()
		for {
			select {
			case <-done:
				return
			case <-ctx.Done():
				return
			case <-t.C:
				if p.set(lines()) {
					p.beat(ctx)
				}
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// set reports whether the lines differ from the last ones.
func (p *progress) set(lines []string) bool {
	kept := make([]string, 0, progressLines)
	for _, line := range lines[max(0, len(lines)-progressLines):] {
		kept = append(kept, headText(p.masker.String(line), progressLine)) // masked first: half a secret would not be found
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Equal(kept, p.last) {
		return false
	}
	p.last = kept
	return true
}

// beat heartbeats with what was last told: a heartbeat without it would take it away.
func (p *progress) beat(ctx context.Context) {
	p.mu.Lock()
	last := p.last
	p.mu.Unlock()
	if last == nil {
		activity.RecordHeartbeat(ctx)
		return
	}
	activity.RecordHeartbeat(ctx, Progress{Step: p.step, Lines: last})
}

// LastLines are the lines of a text that are complete, without empty ones: an unfinished line may
// hold half a secret.
func LastLines(text string) []string {
	end := strings.LastIndexAny(text, "\r\n")
	var lines []string
	for line := range strings.FieldsFuncSeq(text[:max(0, end)], func(r rune) bool { return r == '\n' || r == '\r' }) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}
