package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// rememberedBytes is about what the session carries of each request, besides its answer.
const rememberedBytes = 12

// admit makes room for what a request adds to the session, or refuses it. what names it.
func (t *agentTask) admit(ctx workflow.Context, what string, bytes int) error {
	need, most := bytes+rememberedBytes, protocol.MaxLedger(len(t.saga.Entries())+1)
	if !t.room.fits(need, most) {
		size, err := t.room.measureOnce(ctx)
		if err != nil {
			return err
		}
		t.room.reset(size)
	}
	if !t.room.fits(need, most) {
		return protocol.RefuseRequestf(protocol.BadRequest, "%s: up to %s more, but what the session carries has %s compressed and can have %d: wait until steps are over, roll back a part, or finish it and open another",
			what, activities.CountOf(need, "byte"), activities.CountOf(t.room.packed+t.room.expected, "byte"), most)
	}
	t.room.addBytes(need)
	return nil
}

// sizeOfSteps is how many bytes steps add to what is carried: see addStep.
func sizeOfSteps(steps []task.Step) (size int) {
	for _, s := range steps {
		size += bytesOf(s)
	}
	return size
}

// awaitRoom waits until there is room for the outputs of a step that others refer to, beside those of the steps that run. It refuses the
// step if there is none even when it runs alone.
func (r *stepRunner) awaitRoom(ctx workflow.Context, s *stepRun) (ended func(), err error) {
	if !r.schedule.referred[s.step.ID] {
		return func() {}, nil
	}
	most := protocol.MaxLedger(len(r.saga.Entries()))
	hasRoom := func() bool { return r.room.fits(activities.MaxOutputs, most) }
	if !hasRoom() {
		if err := r.measureRoom(ctx); err != nil {
			return nil, err
		}
	}
	if err := workflow.Await(ctx, func() bool { return hasRoom() || r.returning == 0 }); err != nil {
		return nil, err
	}
	if !hasRoom() {
		if err := r.measureRoom(ctx); err != nil {
			return nil, err
		}
	}
	if !hasRoom() {
		return nil, protocol.Refusef("the task carries %s compressed; with the outputs of this step, up to %d, it could be more than the %d that can be carried: split the task, or refer to fewer outputs",
			activities.CountOf(r.room.packed+r.room.expected, "byte"), activities.MaxOutputs, most)
	}
	r.returning++
	done := r.room.expect(activities.MaxOutputs)
	return func() { r.returning--; done() }, nil
}

func (r *stepRunner) measureRoom(ctx workflow.Context) error {
	size, err := r.room.measureOnce(ctx)
	if err == nil {
		r.room.reset(size)
	}
	return err
}
