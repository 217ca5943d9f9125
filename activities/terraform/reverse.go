package terraform

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/terraform/plan"
	"github.com/seed-62bf7108/unwind/activities/terraform/record"
	"github.com/seed-62bf7108/unwind/activities/terraform/salvage"
	"github.com/seed-62bf7108/unwind/activities/terraform/state"
	"github.com/seed-62bf7108/unwind/activities/terraform/stream"
	"github.com/seed-62bf7108/unwind/activities/terraform/workspace"
)

// What the undo does with an address follows from the plan that the step applied: only what that
// made is destroyed.

// madeAddresses are the addresses of objects that the step made where none was before. New objects
// that the step had not planned are among them if a person has forced the undo on them.
func (u *undo) madeAddresses(now *state.State) ([]string, error) {
	var cleared record.Cleared
	if _, err := u.ws.Token.Read(record.DocCleared, &cleared); err != nil {
		return nil, err
	}
	var all []string
	for address := range now.Managed() {
		address, _, _ = strings.Cut(address, " (deposed")
		if !slices.Contains(all, address) && u.isMade(now, address, cleared.Forced) {
			all = append(all, address)
		}
	}
	slices.Sort(all)
	return all, nil
}

func (u *undo) isMade(now *state.State, address string, forced bool) bool {
	if slices.Contains(u.record.Addresses, address) {
		return false // an object that the step replaced is replaced again by the previous configuration
	}
	actions := u.record.ActionsAt(address)
	if len(actions) == 0 {
		return forced
	}
	return slices.ContainsFunc(actions, func(a plan.Action) bool {
		return a.Makes() && (a.From == "" || !now.Holds(address, u.before, a.From)) // it is moved before it is replaced
	})
}

// forgetImported takes what the step imported out of the state again. The objects stay.
func (u *undo) forgetImported(ctx context.Context) error {
	now, err := u.ws.PullState(ctx)
	if err != nil {
		return err
	}
	var imported []string
	for _, a := range u.record.Planned {
		if a.Imported && now.Has(a.Address) {
			imported = append(imported, a.Address)
		}
	}
	return u.rearrange(ctx, now, imported, nil)
}

// moveBack puts what the step moved at the addresses from before. Where making another object in
// its place failed before the old one was destroyed, the old one becomes the current one again.
func (u *undo) moveBack(ctx context.Context) error {
	now, err := u.ws.PullState(ctx)
	if err != nil {
		return err
	}
	moves := map[string]string{}
	for _, a := range u.record.Planned {
		switch {
		case a.From == "" || !now.Has(a.Address):
		case a.Kind == plan.Replace && !now.Holds(a.Address, u.before, a.From): // a new object: it is destroyed
		case now.Has(a.From):
			return activities.Errorf(activities.ActionDenied,
				"%s cannot be moved back to %s, where another object stands now. Move that away or "+
					"destroy it, then retry; or accept what there is", a.Address, a.From)
		default:
			moves[a.Address] = a.From
		}
	}
	return u.rearrange(ctx, now, nil, moves)
}

// rearrange replaces the state, if there is anything to do.
func (u *undo) rearrange(ctx context.Context, now *state.State, forget []string, moves map[string]string) error {
	if len(forget) == 0 && len(moves) == 0 && len(now.Superseded(u.before)) == 0 {
		return nil
	}
	next, err := now.Rearrange(forget, moves, u.before)
	if err != nil {
		return err
	}
	return u.ws.PushState(ctx, next)
}

// regainForgotten imports what the step made terraform forget, by the ids from before. An object
// that is gone is drift: the previous configuration would make another one.
func (u *undo) regainForgotten(ctx context.Context, ws *workspace.Workspace) (*activities.Drift, error) {
	var gone []string
	for _, a := range u.record.Planned {
		origin := a.Origin()
		if a.Kind != plan.Forget {
			continue
		}
		now, err := ws.PullState(ctx)
		if err != nil {
			return nil, err
		}
		if now.Has(origin) {
			continue
		}
		id := u.before.IDOf(origin)
		imported, err := salvage.Import(ctx, ws, origin, id)
		if err != nil {
			return nil, err
		}
		if !imported {
			return nil, activities.Errorf(activities.ActionDenied,
				"%s, with the id %q, was forgotten by the step, and its provider cannot import it again. Put it "+
					"back into the state by hand, then retry; or accept what there is", origin, id)
		}
		if now, err = ws.PullState(ctx); err != nil {
			return nil, err
		}
		if !now.Has(origin) {
			gone = append(gone,
				fmt.Sprintf("- %s: the step forgot it, and the object with the id %q is gone since; another would be made", origin,
					id))
		}
	}
	if len(gone) == 0 {
		return nil, nil
	}
	return u.unlessForced(gone, nil), nil
}

// unlessForced is the drift that lines describe, unless a person has forced exactly that.
func (u *undo) unlessForced(lines []string, now *state.State) *activities.Drift {
	text := strings.Join(lines, "\n")
	parts := [][]byte{[]byte(text)}
	if now != nil {
		parts = append(parts, []byte(now.Digest()))
	}
	drift := &activities.Drift{Digest: activities.DigestOf(parts...), Diff: text}
	if drift.Digest == u.decision.Force {
		return nil
	}
	return drift
}

// unexpectedLosses compares what the undo would destroy with what the step made or ended. Anything
// else is someone's newer work, or an object from before that going back would replace: it is shown
// as drift.
func (u *undo) unexpectedLosses(ctx context.Context, ws *workspace.Workspace, said stream.Report) (*activities.Drift,
	error) {
	now, err := ws.PullState(ctx)
	if err != nil {
		return nil, err
	}
	made, err := u.madeAddresses(now)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, address := range said.LostAddresses() {
		switch {
		case slices.Contains(made, address), u.mayLose(now, address):
		case u.record.PlansFor(address):
			lines = append(lines, "- "+address+" would be destroyed or replaced, though the step has not made it")
		default:
			lines = append(lines, "- "+address+" would be destroyed or replaced, though the step has not touched it")
		}
	}
	if len(lines) == 0 {
		return nil, nil
	}
	return u.unlessForced(lines, now), nil
}

// mayLose reports whether the step has ended an object at an address, or made another.
func (u *undo) mayLose(now *state.State, address string) bool {
	return slices.ContainsFunc(u.record.ActionsAt(address), func(a plan.Action) bool {
		return a.Loses() || a.Kind == plan.Create && !now.Holds(address, u.before, address)
	})
}

// protectedError is err, unless a prevent_destroy forbids it that the undo cannot leave out: then
// no retry helps.
func protectedError(said stream.Report, err error) error {
	for _, d := range said.Errors {
		if d.Summary == "Instance cannot be destroyed" {
			return activities.Errorf(activities.ActionDenied,
				"%s The undo leaves prevent_destroy out where the step made the object, but not in modules from "+
					"outside of the configuration's folder. Destroy the object by hand, then retry; or accept what there is",
				firstSentence(d.Detail))
		}
	}
	return err
}

func firstSentence(text string) string {
	first, _, found := strings.Cut(text, ". ")
	if found {
		return first + "."
	}
	return text
}
