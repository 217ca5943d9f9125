package activities

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Allowances are the standing approvals that a worker can ask for.
type Allowances interface {
	// Given returns those that are proved, with those that are over, and all uses and revocations that the
	// worker has seen. An error means that they cannot be told: then none counts.
	Given(ctx context.Context) ([]GivenAllowance, error)
	// Use counts a use of one that is among its uses, durably. The error says why it does not count.
	Use(ctx context.Context, g GivenAllowance, u AllowanceUse) error
	// Touched names all that a step of an action touches, however its parameters lead there.
	Touched(ctx context.Context, action string, s Step) ([]string, error)
}

// IsStanding reports whether the approval comes from a standing one.
func (a Assent) IsStanding() bool { return a.Allowance != "" }

// workOf is what a forward would do, for allowances.
func (b boundAction) workOf(ctx context.Context, f Forward, c Change) (work, error) {
	touched, err := b.host.Allowances.Touched(ctx, b.name, f.Step)
	return work{agent: f.Agent, task: OwnerOf(ctx).Workflow, action: b.action.Spec(), change: c,
		touched: append(slices.Clone(c.Keys), touched...)}, err
}

// findAllowances adds to a planned change the standing approvals that cover it, no more than it needs. Where
// they cannot be told, a person is asked, and shown why.
func (b boundAction) findAllowances(ctx context.Context, f Forward, c Change) Change {
	if b.host.Allowances == nil {
		return c
	}
	given, err := b.host.Allowances.Given(ctx)
	if err == nil && len(given) == 0 {
		return c
	}
	w, failed := b.workOf(ctx, f, c)
	if err == nil {
		err = failed
	}
	if err != nil {
		c.Facts = append(slices.Clip(c.Facts), fmt.Sprintf("whether a standing approval covers it cannot be told: %v", err))
		return c
	}
	for _, g := range given {
		isOver := g.Over(time.Now()) != "" || len(g.Used) >= g.Uses
		if isOver || g.check(w) != nil || c.Policy.Counts(f.Agent, c.Standing, g.assent()) != nil {
			continue
		}
		c.Standing = append(c.Standing, g.assent())
		if c.Policy.Waits(f.Agent, c.Standing) == "" {
			break
		}
	}
	return c
}

// useAllowances refuses a forward whose standing approvals do not cover exactly this change now, and counts
// each use. The note tells how often they were used.
func (b boundAction) useAllowances(ctx context.Context, f Forward, c Change, change Digest) (note string, err error) {
	var notes []string
	for _, a := range f.Assents {
		if !a.IsStanding() {
			continue
		}
		used, of, err := b.useAllowance(ctx, f, c, change, a)
		if err != nil {
			return "", Errorf(StaleApproval, "standing approval %s of %s does not cover the change: %v", a.Allowance, a.Who, err)
		}
		notes = append(notes, fmt.Sprintf("standing approval %s: %d of %d used", a.Allowance, used, of))
	}
	return strings.Join(notes, "; "), nil
}

func (b boundAction) useAllowance(ctx context.Context, f Forward, c Change, change Digest, a Assent) (used, of int,
	err error) {
	if b.host.Allowances == nil {
		return 0, 0, fmt.Errorf("this worker knows of none")
	}
	given, err := b.host.Allowances.Given(ctx)
	if err != nil {
		return 0, 0, err
	}
	i := slices.IndexFunc(given, func(g GivenAllowance) bool { return g.ID == a.Allowance && g.Who == a.Who })
	if i < 0 {
		return 0, 0, fmt.Errorf("nobody has given it, or nothing proves it any more")
	}
	w, err := b.workOf(ctx, f, c)
	if err == nil {
		err = given[i].check(w)
	}
	if err != nil {
		return 0, 0, err
	}
	u := AllowanceUse{Key: string(DigestOf([]byte(f.Entry.Token), []byte(change))), Task: w.task, Step: f.Entry.Step,
		At: time.Now().UTC()}
	g := given[i]
	if err := g.Use(u); err != nil {
		return 0, 0, err
	}
	// It may have been revoked since it was read. Its keeper takes uses and revocations one after the other,
	// and counts no use after a revocation: there is no instant in which a revoked one lets a step begin.
	return len(g.Used), g.Uses, b.host.Allowances.Use(ctx, g, u)
}
