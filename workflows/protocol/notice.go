package protocol

import (
	"slices"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/payload"
)

// Waiting is something that waits for a person, as a channel keeps it.
type Waiting struct {
	Alert

	// Told counts the notices that the channel has sent of it, and Last is when it sent the last one.
	Told int       `json:"told,omitempty"`
	Last time.Time `json:"last,omitzero"`
	// Looked is when the task was last asked whether it still waits; zero: it has just said so.
	Looked time.Time `json:"looked,omitzero"`
	// Unanswered is when the task was last asked and did not answer; zero if it has answered since.
	Unanswered time.Time `json:"unanswered,omitzero"`
	// Escalated says that another channel was told of it, and From which one has handed it over.
	Escalated bool   `json:"escalated,omitempty"`
	From      string `json:"from,omitempty"`
	// Lapse says that nobody has decided in time: it no longer waits.
	Lapse string `json:"lapse,omitempty"`
}

// MayWait reports whether it need not be told at once, nor at night. Of a risk that is not known nobody
// says so.
func (w Waiting) MayWait() bool {
	return w.State == Gated && (w.Risk == activities.Low || w.Risk == activities.Medium)
}

// Notices are what one channel has to tell.
type Notices struct {
	Channel string    `json:"channel"`
	Waiting []Waiting `json:"waiting"`
	// More are how many were too many to be kept.
	More int `json:"more,omitempty"`
	// Next is when something is due again.
	Next time.Time `json:"next,omitzero"`
	// Failures counts in a row how often the channel could not be reached, and Trouble says why, or
	// why not everybody was told.
	Failures int    `json:"failures,omitempty"`
	Trouble  string `json:"trouble,omitempty"`
	// Pause is until when nothing is sent after a failure.
	Pause time.Time `json:"pause,omitzero"`
}

// SignalWaiting hands a channel what waits: payload []Waiting.
const SignalWaiting = "waiting"

// NoticesID is the id of the workflow that tells a channel of the workers on a shared queue.
func NoticesID(queue, channel string) string { return queue + "-notices-" + channel }

// maxWaiting bounds the bytes that a channel keeps.
const maxWaiting = 250_000

// IsEmpty reports whether there is nothing to tell.
func (n Notices) IsEmpty() bool { return len(n.Waiting) == 0 && n.More == 0 }

// Add has the channel keep what waits, each once. Another opening of a gate takes the place of the
// one before. A full channel counts what it cannot keep: first gates of low and medium risk, those
// that were told before the others.
func (n *Notices) Add(all []Waiting) {
	for _, w := range all {
		i := slices.IndexFunc(n.Waiting, w.replaces)
		switch {
		case i < 0:
			n.Waiting = append(n.Waiting, w)
		case n.Waiting[i].ID() != w.ID():
			n.Waiting[i] = w
		}
	}
	if len(payload.KeepFirst(n.Waiting, maxWaiting)) == len(n.Waiting) {
		return
	}
	slices.SortStableFunc(n.Waiting, func(a, b Waiting) int { return a.spare() - b.spare() })
	kept := payload.KeepFirst(n.Waiting, maxWaiting)
	n.More += len(n.Waiting) - len(kept)
	n.Waiting = kept
}

// spare is the higher, the sooner a full channel can do without it.
func (w Waiting) spare() (n int) {
	if w.MayWait() {
		n = 2
	}
	if w.Told > 0 {
		n++
	}
	return n
}

// replaces reports whether it is told instead of what the channel knows.
func (w Waiting) replaces(known Waiting) bool {
	return known.From == w.From && (known.ID() == w.ID() ||
		w.State == Gated && known.State == Gated && known.Task == w.Task && known.Step == w.Step)
}
