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

	lines map[string]*line // by step
	open  int              // the number of decisions that are being verified
}

// line is where decisions about one step wait for their turns, in the order in which they have come:
// a rejection that came before an approval counts.
type line struct{ last, served int }

// maxInLine is how many decisions about a step are verified, or wait for that. More are not taken, so
// that who only sends signals cannot hold up the others for long.
const maxInLine = 20

// turn is the place of a decision in its line.
type turn struct {
	*line

	number int
}

// proofLimit is how long a worker has to verify a decision. A decision that none has verified decides
// nothing, and can be sent again.
const proofLimit = time.Minute

// errUnsigned refuses a decision whose signer cannot be told.
var errUnsigned = errors.New("only a signed decision counts here, and a bare name is a claim; sign it with " +
	"`starter approve`, `starter reject` or `starter resolve` and --key")

// lineUp has a decision about a step wait for its turn. Whoever lines up must also take its turn.
func (p *proofs) lineUp(step string) (turn, error) {
	l := p.lines[step]
	if l == nil {
		l = &line{}
		p.lines[step] = l
	}
	if l.last-l.served >= maxInLine {
		return turn{}, fmt.Errorf("step %q: %s wait to be verified already, so this one decided nothing; send it again", step,
			activities.CountOf(maxInLine, "decision"))
	}
	l.last++
	return turn{l, l.last}, nil
}

// take carries out a decision when it is its turn.
func (t turn) take(ctx workflow.Context, carryOut func(workflow.Context) error) error {
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	defer func() { t.served++ }()
	if err := workflow.Await(ctx, func() bool { return t.served == t.number-1 }); err != nil {
		return err
	}
	return carryOut(ctx)
}

// takeSignal carries out a decision that came as a signal, once it is proved.
func (p *proofs) takeSignal(signal, step string, carryOut func(workflow.Context) error) error {
	t, err := p.lineUp(step)
	if err != nil {
		return err
	}
	p.open++
	ctx, _ := workflow.NewDisconnectedContext(p.ctx)
	workflow.GoNamed(ctx, signal+" of "+step, func(ctx workflow.Context) {
		defer func() { p.open-- }()
		if err := t.take(ctx, carryOut); err != nil {
			p.inbox.Ignore(signal, err)
			p.changed()
		}
	})
	return nil
}

// takeUpdate carries out a decision that came as an update, once it is proved.
func (p *proofs) takeUpdate(ctx workflow.Context, step string, carryOut func(workflow.Context) error) error {
	t, err := p.lineUp(step)
	if err != nil {
		return err
	}
	return t.take(ctx, carryOut)
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
