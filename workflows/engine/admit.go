package engine

import (
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// rememberedBytes is about what the session carries of each request, besides its answer.
const rememberedBytes = 12

// Admit makes room for what a request adds to the session, or refuses it. what names it.
func (t *Task) Admit(ctx workflow.Context, what string, bytes int) error {
	need, most := bytes+rememberedBytes, protocol.MaxLedger(len(t.Saga.Entries())+1)
	if !t.room.fits(need, most) {
		size, err := t.room.measureOnce(ctx)
		if err != nil {
			return err
		}
		t.room.reset(size)
	}
	if !t.room.fits(need, most) {
		return protocol.RefuseRequestf(protocol.BadRequest,
			"%s: up to %s more, but what the session carries has %s compressed and can have %d: wait until steps are over, "+
				"roll back a part, or finish it and open another",
			what, activities.CountOf(need, "byte"), activities.CountOf(t.room.packed+t.room.expected, "byte"), most)
	}
	t.room.addBytes(need)
	return nil
}

// SizeOfSteps is how many bytes steps add to what is carried: see addStep.
func SizeOfSteps(steps []task.Step) (size int) {
	for _, s := range steps {
		size += bytesOf(s)
	}
	return size
}
