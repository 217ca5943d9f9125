package activities

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Passes are a worker's record of the forwards that its rules have let act: an attempt that follows
// is not judged again.
type Passes interface {
	// A Locker is held while the history by which a change was judged is compared, and its pass kept: no
	// two are let act by one history.
	sync.Locker
	// History is what a task has been let do on this host, and what has not been undone.
	History(task string) (History, error)
	// Find returns the pass of a token, and whether there is one.
	Find(token string) (p Pass, isThere bool, err error)
	// Keep notes a pass, durably.
	Keep(token string, p Pass) error
	// Forget forgets the pass of a token. It is no error if there is none.
	Forget(token string) error
}

// Pass lets a forward make exactly one change.
type Pass struct {
	Action string `json:"action"`
	// Task is the id of the step's workflow.
	Task string `json:"task"`
	// Added, Removed and Changed sum up the counts of the change.
	Added   int64 `json:"added,omitempty"`
	Removed int64 `json:"removed,omitempty"`
	Changed int64 `json:"changed,omitempty"`
	// Change is the digest of the change that was judged.
	Change Digest `json:"change"`
	// Ruling is what the rules have decided; nil if none matched.
	Ruling *Ruling `json:"ruling,omitempty"`
	// Note tells, in the step's report, of a risk that the rules have let pass.
	Note string `json:"note,omitempty"`
}

// underRules runs a forward that rules judge, or whose approval must be proved, with the pass that it
// is given; any other has an empty one. The action then refuses a change that is another by now.
func (b boundAction) underRules(ctx context.Context, f Forward, written Step, apply func(Pass) (Result, error)) (Result,
	error) {
	isProved := f.Consent == Approved && (b.host.Signers != nil || slices.ContainsFunc(f.Assents, Assent.IsStanding))
	if b.host.Rules == nil && !isProved {
		return apply(Pass{})
	}
	pass, err := b.admit(ctx, f, written)
	if err != nil {
		return Result{}, err
	}
	r, err := apply(pass)
	if err == nil && pass.Note != "" {
		r.Notes = append(slices.Clip(r.Notes), pass.Note)
	}
	if TypeOf(err).KeptFromActing() { // the next attempt is judged by itself
		if failed := b.forgetPass(f.Entry.Token); failed != nil {
			return r, failed
		}
	}
	return r, err
}

// admit returns the pass of a forward: the one that an earlier attempt was given, else what the
// rules decide now, about what the step would do now. Who has let the change be made, and which one,
// came through the namespace: it is a claim, and checked here.
func (b boundAction) admit(ctx context.Context, f Forward, written Step) (Pass, error) {
	if earlier, isThere, err := b.findPass(f); isThere || err != nil {
		return earlier, err
	}
	c, err := b.planChange(ctx, f)
	if err != nil {
		return Pass{}, err
	}
	for {
		// Outside of the lock, for rules may ask somebody who takes a second to answer.
		seen := b.historyOf(ctx)
		judged, err := b.judge(ctx, f, written, c, seen)
		// If another attempt was let act meanwhile, the history had this very step.
		if earlier, isThere, failed := b.findPass(f); isThere || failed != nil {
			return earlier, failed
		}
		if err != nil {
			return Pass{}, err
		}
		pass, isStale, err := b.keepPass(ctx, f, judged, seen)
		if err != nil || !isStale {
			return pass, err
		}
	}
}

// findPass returns the pass of an earlier attempt. An action that only reads leaves no record, so each
// attempt is judged; and a token of another action is no token of this one.
func (b boundAction) findPass(f Forward) (earlier Pass, isThere bool, err error) {
	if b.readOnly {
		return earlier, false, nil
	}
	earlier, isThere, err = b.host.Passes.Find(f.Entry.Token)
	return earlier, err == nil && isThere && earlier.Action == b.name, err
}

// keepPass lets a forward make a change that was judged. The judgement is stale if another step of the
// task was let act, or undone, since rules looked at the task's history.
func (b boundAction) keepPass(ctx context.Context, f Forward, c Change, seen *seenHistory) (p Pass, isStale bool,
	err error) {
	b.host.Passes.Lock()
	defer b.host.Passes.Unlock()
	if isStale, err := seen.isStale(); isStale || err != nil {
		return p, isStale, err
	}
	p, err = b.letAct(ctx, f, c)
	return p, false, err
}

// letAct checks who has let a change be made that was judged, and notes its pass.
func (b boundAction) letAct(ctx context.Context, f Forward, c Change) (pass Pass, err error) {
	own, _, _ := strings.Cut(string(c.Digest), repeatMark)
	if own == "" {
		return Pass{}, Errorf(Refused,
			"%s plans a change without a digest, so nothing could tell whether what runs is what this worker has let pass",
			b.name)
	}
	if err := b.proveAssents(ctx, f, c); err != nil {
		return Pass{}, err
	}
	pass = Pass{Action: b.name, Task: OwnerOf(ctx).Workflow, Change: Digest(own), Ruling: c.Policy}
	for _, n := range c.Counts {
		pass.Added, pass.Removed, pass.Changed = pass.Added+n.Added, pass.Removed+n.Removed, pass.Changed+n.Changed
	}
	if why := c.danger(); c.IsAllowed() && why != "" && f.Consent == Unasked {
		pass.Note = fmt.Sprintf("nobody was asked though %s: %s", why, c.Policy.Describe())
	}
	if err := pass.check(f); err != nil {
		return pass, err
	}
	if f.Consent == Approved {
		if pass.Note, err = b.useAllowances(ctx, f, c, pass.Change); err != nil {
			return pass, err
		}
	}
	if b.readOnly {
		return pass, nil
	}
	return pass, b.host.Passes.Keep(f.Entry.Token, pass)
}

// check refuses a forward that may not make the change now.
func (p Pass) check(f Forward) error {
	want, _, _ := strings.Cut(string(f.Want), repeatMark)
	if want != "" && Digest(want) != p.Change {
		return Errorf(StaleApproval, "the change, or its target, is not what was approved")
	}
	waits := p.Ruling.Waits(f.Agent, f.Assents)
	switch {
	case !p.Ruling.Asks():
		return nil
	case f.Consent != Approved:
		return Errorf(Asks, "nobody has approved this change: the worker's policy asks: %s", p.Ruling.Describe())
	case waits != "":
		return Errorf(StaleApproval, "what was approved is not enough for the worker's policy, %s: %s", p.Ruling.Describe(),
			waits)
	}
	return nil
}

func (b boundAction) forgetPass(token string) error {
	if b.host.Passes == nil {
		return nil
	}
	return b.host.Passes.Forget(token)
}
