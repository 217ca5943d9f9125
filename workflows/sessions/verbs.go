package sessions

import (
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// verbs are all that an agent can ask of its session, in a fixed order: what has arrived before is
// handled in it.
var verbs = []verb{
	openSession, takeSteps, makeSavepoint, makeNote, keepContext, rollBack, redoPart, resolveStep, finishSession,
	abortSession, awaitRequest,
}

// Attend takes up the verbs, and the query for an answer.
func (t *session) Attend(ctx workflow.Context) error {
	for _, v := range verbs {
		handle, validate := v.bind(t)
		if err := workflow.SetUpdateHandlerWithOptions(ctx, v.update, handle,
			workflow.UpdateHandlerOptions{Validator: validate}); err != nil {
			return err
		}
	}
	return workflow.SetQueryHandler(ctx, protocol.QueryAnswer, t.answerNow)
}
