package activities

import (
	"context"
	"strings"
)

// Consent says who has let a forward make its change.
type Consent string

// The consents.
const (
	Unasked  Consent = ""         // nobody
	Approved Consent = "approved" // a person has approved the digest in Forward.Want
	Waived   Consent = "waived"   // the task file says gate: none
)

// Asks says why a person must approve the change before it is made; empty if nobody must.
func (c Change) Asks(by Consent) string {
	if by == Approved {
		return ""
	}
	why := c.alwaysAsks()
	switch {
	case c.Policy.Asks():
		return strings.TrimSuffix("the worker's policy asks: "+c.Policy.Describe()+"; "+why, "; ")
	case why != "":
		return why
	case by == Waived, c.IsAllowed():
		return ""
	}
	return c.danger()
}

// IsAllowed reports whether the worker's rules let the change be made though it is risky.
func (c Change) IsAllowed() bool { return c.Policy.allows() }

// alwaysAsks says why a person must approve the change whatever a task file or a rule lets pass.
func (c Change) alwaysAsks() string {
	switch {
	case c.Repeats != "":
		return c.Repeats
	case c.Floor != "":
		return c.Floor
	case c.Ask:
		return "this change is always asked"
	}
	return ""
}

// danger says why a change asks by itself; empty if it does not.
func (c Change) danger() string {
	switch {
	case c.Unchanged:
		return ""
	case c.Risk == High:
		return "its risk is high"
	case c.Strategy == Irreversible:
		return "it cannot be undone"
	}
	return ""
}

// Approval is what a worker knows about a forward when it acts: who has let it, what the worker's
// config demands, and what its rules have decided.
type Approval struct {
	Consent Consent `json:"consent,omitempty"`
	Floor   Floor   `json:"floor,omitzero"`
	Policy  *Ruling `json:"policy,omitempty"`
}

type approvalKey struct{}

// WithApproval returns the context of a forward that is judged by a.
func WithApproval(ctx context.Context, a Approval) context.Context {
	return context.WithValue(ctx, approvalKey{}, a)
}

// ApprovalFrom returns the approval of a forward; nil outside of a worker, where there are no
// gates.
func ApprovalFrom(ctx context.Context) *Approval {
	a, judged := ctx.Value(approvalKey{}).(Approval)
	if !judged {
		return nil
	}
	return &a
}

// Judge refuses with Asks a change that a person must approve first. An Apply calls it where there
// is no record yet, with the change as it sees it when it acts; of the change it needs Risk,
// Strategy, Ask and Unchanged.
func Judge(ctx context.Context, c Change) error { return ApprovalFrom(ctx).Judge(c) }

// Judge is Judge for an action whose calls run elsewhere than the context.
func (a *Approval) Judge(c Change) error {
	if a == nil {
		return nil
	}
	c.Floor, c.Policy = a.Floor.demand(c), a.Policy
	if why := c.Asks(a.Consent); why != "" {
		return Errorf(Asks, "nobody has approved this change: %s", why)
	}
	return nil
}

// tooMuch is the number of items from which more than half of a set is high risk.
const tooMuch = 10

// MostOf reports whether so many items are most of a set that had total: more than half, and at
// least ten. That is high risk.
func MostOf(items, total int64) bool { return items >= tooMuch && 2*items > total }
