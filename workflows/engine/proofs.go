package engine

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/compensations/inbox"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// proofs have workers verify who has decided, where only signed decisions count.
type proofs struct {
	ctx     workflow.Context // of the run, for decisions that come as signals
	task    string
	inbox   *inbox.Inbox
	changed func() // a decision was ignored

	turns map[string]workflow.Mutex // by step: what comes first counts first
	open  int                       // the number of decisions that are being verified
}

// proofLimit is how long a worker has to verify a decision. A decision that none has verified decides
// nothing, and can be sent again.
const proofLimit = time.Minute

// errUnsigned refuses a decision whose signer cannot be told.
var errUnsigned = errors.New("only a signed decision counts here, and a bare name is a claim; sign it with " +
	"`starter approve`, `starter reject` or `starter resolve` and --key")

// takeSignal carries out a decision that came as a signal, once it is proved.
func (p *proofs) takeSignal(signal, step string, carryOut func(workflow.Context) error) {
	p.open++
	ctx, _ := workflow.NewDisconnectedContext(p.ctx)
	workflow.GoNamed(ctx, signal+" of "+step, func(ctx workflow.Context) {
		defer func() { p.open-- }()
		if err := carryOut(ctx); err != nil {
			p.inbox.Ignore(signal, err)
			p.changed()
		}
	})
}

// inTurn carries out decisions about a step one after the other, as they have come.
func (p *proofs) inTurn(ctx workflow.Context, step string, carryOut func(workflow.Context) error) error {
	if p.turns[step] == nil {
		p.turns[step] = workflow.NewMutex(p.ctx)
	}
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	if err := p.turns[step].Lock(ctx); err != nil {
		return err
	}
	defer p.turns[step].Unlock()
	return carryOut(ctx)
}

// verify returns the fingerprint of the key that proves who has decided. Whatever acts on it verifies
// it once more: this worker may be another one.
func (p *proofs) verify(ctx workflow.Context, s activities.Statement, signature string) (key string, err error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		ScheduleToCloseTimeout: proofLimit, StartToCloseTimeout: 10 * time.Second,
		Summary:     "verify who decides about " + s.Step,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2},
	})
	var proof protocol.Proof
	err = workflow.ExecuteActivity(ctx, protocol.VerifyActivity,
		protocol.SignedDecision{Statement: s, Signature: signature}).Get(ctx, &proof)
	switch {
	case err != nil:
		return "", fmt.Errorf("step %q: no worker has verified the decision, so it decided nothing; send it again: %s",
			s.Step, compensations.Reason(err))
	case proof.Refusal != "":
		return "", fmt.Errorf("step %q: %s", s.Step, proof.Refusal)
	}
	return proof.Key, nil
}
