package activities

import (
	"context"
)

// proveAssents refuses a forward whose approvals are not signed for exactly this change of this step,
// with this undo. What came through the namespace is a claim: the text that must have been signed is
// put together here.
func (b boundAction) proveAssents(ctx context.Context, f Forward, planned Change) error {
	if b.host.Signers == nil || f.Consent != Approved {
		return nil
	}
	shown, err := maskAll(MaskerFrom(ctx), planned)
	if err != nil {
		return err
	}
	if len(f.Assents) == 0 {
		return Errorf(StaleApproval, "this worker takes only signed approvals, and there is none")
	}
	for _, a := range f.Assents {
		_, err := b.host.Signers.Verify(Statement{
			Task: OwnerOf(ctx).Workflow, Step: f.Entry.Step, Action: b.name, Token: f.Entry.Token, Opening: a.Opening,
			Change: f.Want, Undo: capChange(shown).UndoDigest(), Verdict: Approve, Who: a.Who, At: a.At, Why: a.Why,
		}, a.Signature)
		if err != nil {
			return Errorf(StaleApproval, "the approval by %s proves nothing: %v", a.Who, err)
		}
	}
	return nil
}

// proveDecision refuses an undo that is to overwrite or lose something because a person has said so,
// unless that one has signed it. What the step's own drift policy overwrites nobody has decided.
func (b boundAction) proveDecision(back Backward, verdict string) error {
	d := back.Decision
	isDecided := verdict == verdictReset || d.Force != "" && (back.Entry.Policy.Drift != DriftForce || d.Signing != nil)
	if b.host.Signers == nil || !isDecided {
		return nil
	}
	if d.Signing == nil {
		return Errorf(Refused, "this worker takes only signed decisions, and the one to %s was not: nothing was touched",
			verdict)
	}
	s := *d.Signing
	if verdict == verdictForce {
		s.Change = d.Force
	}
	_, err := b.host.Signers.Verify(Statement{
		Task: s.Task, Step: back.Entry.Step, Action: b.name, Token: back.Entry.Token, Opening: s.Opening, Change: s.Change,
		Verdict: verdict, Who: d.Who, At: s.At, Why: d.Why,
	}, s.Signature)
	if err != nil {
		return Errorf(Refused, "the decision of %s to %s proves nothing, and nothing was touched: %v", d.Who, verdict, err)
	}
	return nil
}

// What a person can decide about an undo that its worker has to verify: the other ways only have the
// workflow go on.
const (
	verdictForce = "force"
	verdictReset = "reset"
)
