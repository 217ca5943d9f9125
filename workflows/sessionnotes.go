package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
)

// Note is what the agent of a session has noted for the people who look at it.
type Note struct {
	Text string `json:"text"`
	// After is the last step that was on the ledger; empty if there was none.
	After string    `json:"after,omitempty"`
	At    time.Time `json:"at"`
}

func (n Note) String() string {
	if n.After == "" {
		return "the agent noted: " + n.Text
	}
	return fmt.Sprintf("the agent noted after step %s: %s", n.After, n.Text)
}

// maxNotes is how many notes a session shows.
const maxNotes = 100

func (t *agentTask) handleNote(ctx workflow.Context, r NoteRequest) (Answer, error) {
	return t.serve(ctx, r, t.checkGrows, func(ctx workflow.Context, _ *request) error {
		if err := t.admit(ctx, "note", sizeOf(r)); err != nil {
			return err
		}
		n := Note{Text: r.Text, At: workflow.Now(ctx)}
		if entries := t.saga.Entries(); len(entries) > 0 {
			n.After = entries[len(entries)-1].Step
		}
		t.session.notes = append(t.session.notes, n)
		if len(t.session.notes) > maxNotes {
			t.session.notes = t.session.notes[1:]
		}
		return nil
	})
}

func (t *agentTask) validateNote(ctx workflow.Context, r NoteRequest) error {
	isKnown, err := t.checkRequest(ctx, r)
	if isKnown || err != nil {
		return err
	}
	return first(t.checkGrows, func() error {
		switch {
		case r.Text == "":
			return refuseRequestf(BadRequest, "text: it is empty")
		case len(r.Text) > maxWhy:
			return refuseRequestf(BadRequest, "text: it has %s, and can have %d; what is longer can be a context", activities.CountOf(len(r.Text), "byte"), maxWhy)
		}
		return nil
	})
}
