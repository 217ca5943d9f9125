package activities

import (
	"context"
	"errors"

	"go.temporal.io/sdk/activity"
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
		return Errorf(Unproved, "this worker takes only signed approvals, and there is none")
	}
	for _, a := range f.Assents {
		if a.Allowance != "" { // see useAllowances
			continue
		}
		_, err := b.host.Signers.Verify(Statement{
			Task: OwnerOf(ctx).Workflow, Step: f.Entry.Step, Action: b.name, Token: f.Entry.Token, Opening: a.Opening,
			Change: f.Want, Undo: capChange(shown).UndoDigest(), Verdict: Approve, Who: a.Who, At: a.At, Why: a.Why,
		}, a.Signature)
		if err != nil {
			return Errorf(Unproved, "the approval by %s proves nothing: %v", a.Who, err)
		}
	}
	return nil
}

// Decisions are a worker's record of the signed decisions about undos that it has carried out: each
// counts once.
type Decisions interface {
	// Begin notes, durably, that a call carries out the decision about an opening of a token. If one did
	// before, it returns that one, and notes nothing.
	Begin(token string, opening Digest, by Carrying) (earlier *Carrying, err error)
	// Replace notes another call, or none, in the place of one. A note that is another by now stays.
	Replace(token string, opening Digest, was Carrying, by *Carrying) error
	// Forget forgets the decisions about a token whose calls were about that entry. It is no error if
	// there are none.
	Forget(token string, entry Digest) error
}

// Carrying is a call that carries out a signed decision.
type Carrying struct {
	Run      string `json:"run"` // of the workflow
	Activity string `json:"activity"`
	Attempt  int32  `json:"attempt"`
	// Entry is the identity of what it undoes.
	Entry Digest `json:"entry"`
	// Over means that it has had its answer.
	Over bool `json:"over,omitempty"`
}

// mayFollow reports whether a call may carry out what an earlier one did: as another attempt, or
// because the workflow has had no answer. The server, and not who asks, says which run a call is of.
func (c Carrying) mayFollow(earlier Carrying) bool {
	return c.Run == earlier.Run && (!earlier.Over || c.Activity == earlier.Activity)
}

// asDecided runs an undo. What a person must have signed is proved before, and carried out once.
func (b boundAction) asDecided(ctx context.Context, back Backward, verdict string,
	undo func() (Undone, error)) (Undone, error) {
	isProved, err := b.proveDecision(ctx, back, verdict)
	if err != nil {
		return Undone{}, err
	}
	if !isProved {
		return undo()
	}
	token, opening, info := back.Entry.Token, back.Decision.Signing.Opening, activity.GetInfo(ctx)
	by := Carrying{Run: info.WorkflowExecution.RunID, Activity: info.ActivityID, Attempt: info.Attempt,
		Entry: back.Entry.identity()}
	if by, err = b.beginDecided(back, verdict, by); err != nil {
		return Undone{}, err
	}
	undone, err := undo()
	switch {
	case err == nil, TypeOf(err).Final() && TypeOf(err) != WorkerStopping && TypeOf(err) != BreakerOpen:
		over := by
		over.Over = true
		return undone, errors.Join(err, b.host.Decisions.Replace(token, opening, by, &over))
	case by.Over: // it was carried out, though its answer was lost
	case TypeOf(err) == BreakerOpen, errors.Is(ctx.Err(), context.Canceled) && !isWorkerStopping(ctx):
		// the next call carries it out, perhaps in the next run of the workflow
		return undone, errors.Join(err, b.host.Decisions.Replace(token, opening, by, nil))
	}
	return undone, err
}

// beginDecided notes a call that carries out a decision, and returns the note. A late end of an earlier
// attempt then leaves it.
func (b boundAction) beginDecided(back Backward, verdict string, by Carrying) (Carrying, error) {
	token, opening := back.Entry.Token, back.Decision.Signing.Opening
	earlier, err := b.host.Decisions.Begin(token, opening, by)
	switch {
	case err != nil || earlier == nil:
		return by, err
	case by.mayFollow(*earlier):
		by.Over = earlier.Over
		return by, b.host.Decisions.Replace(token, opening, *earlier, &by)
	case earlier.Over:
		return by, Errorf(Unproved, "the decision of %s to %s was carried out before, and counts once; nothing was "+
			"touched: decide about what is shown now", back.Decision.Who, verdict)
	}
	return by, Errorf(Unproved, "the decision of %s to %s was being carried out when the run went on, and counts once; "+
		"nothing was touched: sign again, about what is shown now", back.Decision.Who, verdict)
}

// proveDecision refuses an undo that is to overwrite or lose something because a person has said so,
// unless that one has signed it. What the step's own drift policy overwrites nobody has decided; that
// policy and the task are those of the worker's own record, since an entry comes from a history.
func (b boundAction) proveDecision(ctx context.Context, back Backward, verdict string) (isProved bool, err error) {
	d := back.Decision
	if b.host.Signers == nil || verdict == verdictForce && d.Force == "" {
		return false, nil
	}
	own, err := b.ownRecord(ctx, back.Entry)
	switch {
	case err != nil:
		return false, err
	case d.Signing == nil && verdict == verdictForce && own.Entry.Policy.Drift == DriftForce:
		return false, nil
	case d.Signing == nil && d.Orphan:
		return false, Errorf(Unproved,
			"this worker takes only signed decisions, and the one to %s an orphan cannot be signed: nothing was touched; "+
				"put back by hand what was changed since, then undo it without --force", verdict)
	case d.Signing == nil:
		return false, Errorf(Unproved,
			"this worker takes only signed decisions, and the one to %s was not: nothing was touched", verdict)
	case d.Signing.Task != OwnerOf(ctx).Workflow && d.Signing.Task != own.Owner.Workflow:
		return false, Errorf(Unproved,
			"the decision of %s to %s was signed for task %q, not for this one: nothing was touched", d.Who, verdict,
			d.Signing.Task)
	}
	s := *d.Signing
	if verdict == verdictForce {
		s.Change = d.Force
	}
	_, err = b.host.Signers.Verify(Statement{
		Task: s.Task, Step: back.Entry.Step, Action: b.name, Token: back.Entry.Token, Opening: s.Opening, Change: s.Change,
		Verdict: verdict, Who: d.Who, At: s.At, Why: d.Why,
	}, s.Signature)
	if err != nil {
		return false, Errorf(Unproved, "the decision of %s to %s proves nothing, and nothing was touched: %v", d.Who, verdict,
			err)
	}
	return true, nil
}

// forgetDecisions forgets what was decided about an entry whose record is gone: its undo acts no more.
// Where no record ever was, it may.
func (b boundAction) forgetDecisions(e Entry) error {
	if b.host.Decisions == nil || b.records == nil || b.readOnly {
		return nil
	}
	return b.host.Decisions.Forget(e.Token, e.identity())
}

// ownRecord is what the worker's own journals have of an entry; empty if that is nothing, or of a step
// that does something else. Where several have its token, anybody may have made one: its policy is to
// force only if all say so.
func (b boundAction) ownRecord(ctx context.Context, e Entry) (own Record, err error) {
	if b.records == nil {
		return Record{}, nil
	}
	all, problems, err := b.records.Records(ctx)
	if err != nil {
		return Record{}, err
	}
	isFound, allForce := false, true
	for _, r := range all {
		if r.Entry.Token != e.Token {
			continue
		}
		isFound, allForce = true, allForce && r.Entry.Policy.Drift == DriftForce
		if r.Entry.identity() == e.identity() {
			own = r
		}
	}
	switch {
	case !isFound && len(problems) > 0: // it may be there
		return Record{}, Errorf(ActionFailed, "what this worker has recorded of the step cannot be read; nothing was "+
			"touched: %v", errors.Join(problems...))
	case !allForce:
		own.Entry.Policy.Drift = DriftAsk
	}
	return own, nil
}

// What a person can decide about an undo that its worker has to verify: the other ways only have the
// workflow go on.
const (
	verdictForce = "force"
	verdictReset = "reset"
)
