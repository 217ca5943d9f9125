package sessions

import (
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// maxNotes is how many notes a session shows.
const maxNotes = 100

// makeNote notes something for people.
var makeNote = ask[protocol.NoteRequest]{check: (*session).checkNote,
	carryOut: (*session).makeNote}.as(protocol.UpdateNote)

func (t *session) checkNote(r protocol.NoteRequest) error {
	if err := t.checkGrows(); err != nil {
		return err
	}
	switch {
	case r.Text == "":
		return protocol.RefuseRequestf(protocol.BadRequest, "text: it is empty")
	case len(r.Text) > payload.MaxWhy:
		return protocol.RefuseRequestf(protocol.BadRequest,
			"text: it has %s, and can have %d; what is longer can be a context",
			activities.CountOf(len(r.Text), "byte"), payload.MaxWhy)
	}
	return nil
}

func (t *session) makeNote(ctx workflow.Context, _ *request, r protocol.NoteRequest) error {
	if err := t.Admit(ctx, "note", payload.SizeOf(r)); err != nil {
		return err
	}
	n := protocol.Note{Text: r.Text, At: workflow.Now(ctx)}
	if entries := t.Saga.Entries(); len(entries) > 0 {
		n.After = entries[len(entries)-1].Step
	}
	t.notes = append(t.notes, n)
	if len(t.notes) > maxNotes {
		t.notes = t.notes[1:]
	}
	return nil
}
