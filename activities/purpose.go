package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Purposes are a worker's record of what its steps were for, for some time: an agent that has lost
// track would pay again what it has paid in another task.
type Purposes interface {
	// Begin notes, durably, that a deed is about to be done for a purpose, and returns the newest
	// other one that was begun for it in another task and was not withdrawn; nil if there is none. A
	// deed that was let do so is never judged again: see Let. isNew reports that it was not noted yet.
	Begin(purpose Digest, d Deed) (earlier *Deed, isNew bool, err error)
	// Earlier is what Begin would return. It notes nothing.
	Earlier(purpose Digest, d Deed) (*Deed, error)
	// Let notes that a deed that has begun may be done.
	Let(purpose Digest, d Deed) error
	// Withdraw forgets the deed of a token: it was not done, or it was undone.
	Withdraw(token string) error
}

// Deed is a step that has a purpose.
type Deed struct {
	Token string    `json:"token"`
	Task  string    `json:"task"`
	Step  string    `json:"step"`
	At    time.Time `json:"at"`
}

// Meant returns the values of those parameters that say what a step is for: see Spec.Intent.
func Meant(params json.RawMessage, intent []string) map[string]any {
	var all map[string]any
	_ = json.Unmarshal(params, &all) // made by EntryParams
	meant := map[string]any{}
	for _, name := range intent {
		if value, isGiven := all[name]; isGiven {
			meant[name] = value
		}
	}
	return meant
}

// purpose is what a step is for, and how the worker's record knows it.
type purpose struct {
	record Purposes
	digest Digest
	deed   Deed
	what   string // for people
}

// purposeOf returns the purpose of a forward; nil if its action declares none, or nobody keeps a
// record.
func (b boundAction) purposeOf(ctx context.Context, f Forward) *purpose {
	if b.host.Purposes == nil || len(b.intent) == 0 {
		return nil
	}
	meant := encodeJSON(Meant(f.Entry.Params, b.intent))
	return &purpose{
		record: b.host.Purposes, digest: DigestOf([]byte(f.Agent), []byte(b.name), meant),
		deed: Deed{Token: f.Entry.Token, Task: OwnerOf(ctx).Workflow, Step: f.Entry.Step},
		what: b.name + " with the same " + strings.Join(b.intent, ", "),
	}
}

// describe says what was done before for the same purpose.
func (p *purpose) describe(earlier Deed) string {
	return fmt.Sprintf("step %s of task %s is for the same, by the same agent, at %s: %s", earlier.Step, earlier.Task,
		earlier.At.UTC().Format(time.RFC3339), p.what)
}

// repeatMark stands in a digest between that of the change and the token of the earlier deed for
// the same purpose that the change repeats: who approves it has seen that one.
const repeatMark = "+"

// mark says in a planned change that it repeats an earlier deed.
func (p *purpose) mark(c Change) (Change, error) {
	if p == nil {
		return c, nil
	}
	earlier, err := p.record.Earlier(p.digest, p.deed)
	if err != nil || earlier == nil {
		return c, err
	}
	c.Repeats = p.describe(*earlier)
	c.Digest += Digest(repeatMark + earlier.Token)
	return c, nil
}

// begin notes that a forward is about to act. It refuses with Asks what repeats an earlier deed
// that nobody has been shown.
func (p *purpose) begin(f Forward, shown string) (isNew bool, err error) {
	earlier, isNew, err := p.record.Begin(p.digest, p.deed)
	if err != nil {
		return isNew, err
	}
	switch {
	case earlier == nil, f.Consent == Approved && shown == earlier.Token:
		return isNew, p.record.Let(p.digest, p.deed)
	case f.Consent == Approved: // of a change that did not say so
		return isNew, Errorf(StaleApproval, "what was approved did not say that %s", p.describe(*earlier))
	}
	return isNew, Errorf(Asks, "nobody has approved this change: %s", p.describe(*earlier))
}

// forPurpose runs a forward with a note of what it is for. A note that this call has made is taken
// back if the forward has not acted.
func (b boundAction) forPurpose(ctx context.Context, f Forward, apply func(want Digest) (Result, error)) (r Result,
	err error) {
	want, shown, _ := strings.Cut(string(f.Want), repeatMark)
	p := b.purposeOf(ctx, f)
	if p == nil {
		return apply(Digest(want))
	}
	isNew, err := p.begin(f, shown)
	if err == nil {
		r, err = apply(Digest(want))
	}
	if isNew && TypeOf(err).KeptFromActing() {
		if failed := p.record.Withdraw(p.deed.Token); failed != nil {
			return r, failed
		}
	}
	return r, err
}

// withdraw forgets the purpose of a step that no longer stands.
func (b boundAction) withdraw(e Entry, u Undone) error {
	switch u.Outcome {
	case Restored, Compensated, Nothing:
		if b.host.Purposes == nil || len(b.intent) == 0 {
			return b.forgetPass(e.Token)
		}
		return errors.Join(b.host.Purposes.Withdraw(e.Token), b.forgetPass(e.Token))
	}
	return nil
}
