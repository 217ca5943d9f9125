package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// maxNotes is how many notes a session shows.
const maxNotes = 100

func (t *agentTask) handleNote(ctx workflow.Context, r protocol.NoteRequest) (protocol.Answer, error) {
	return t.serve(ctx, r, t.checkGrows, func(ctx workflow.Context, _ *request) error {
		if err := t.admit(ctx, "note", payload.SizeOf(r)); err != nil {
			return err
		}
		n := protocol.Note{Text: r.Text, At: workflow.Now(ctx)}
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

func (t *agentTask) validateNote(ctx workflow.Context, r protocol.NoteRequest) error {
	isKnown, err := t.checkRequest(ctx, r)
	if isKnown || err != nil {
		return err
	}
	return first(t.checkGrows, func() error {
		switch {
		case r.Text == "":
			return protocol.RefuseRequestf(protocol.BadRequest, "text: it is empty")
		case len(r.Text) > payload.MaxWhy:
			return protocol.RefuseRequestf(protocol.BadRequest, "text: it has %s, and can have %d; what is longer can be a context", activities.CountOf(len(r.Text), "byte"), payload.MaxWhy)
		}
		return nil
	})
}
