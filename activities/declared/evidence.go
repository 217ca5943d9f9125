package declared

import (
	"fmt"

	"github.com/seed-62bf7108/unwind/activities"
)

// Evidence is what is known of a call when it is taken back, or observed.
type Evidence struct {
	Call

	Answer *Answer // nil if there is none
	Left   *Sight  // nil if the call was not looked at afterwards
	// Pending says why the call may still act; empty if it cannot.
	Pending string
	// IsRepeated means that an earlier undo may have taken the call back.
	IsRepeated bool
	// IsShown means that the look was seen to tell the world before the call from that after it.
	// Without that it proves nothing.
	IsShown bool
}

// Succeeded reports whether the call is known to have succeeded.
func (e *Evidence) Succeeded() bool { return e.Answer != nil && e.Answer.Succeeded() }

func (e *Evidence) changedNothing() bool {
	return e.Answer != nil && !e.Succeeded() && e.Answer.IsFinal && e.Declared.ErrorsChangeNothing
}

// isLost reports whether the call has happened as a look alone tells.
func (e *Evidence) isLost() bool { return e.Answer != nil && e.Answer.IsLost }

// InverseArguments are those of the inverse; now is what the look sees.
func (e *Evidence) InverseArguments(token string, now *Sight) (map[string]any, error) {
	v := e.Values(e.Answer)
	switch {
	case e.Left != nil:
		v["left"] = e.Left.fields()
	case now != nil:
		v["left"] = now.fields()
	}
	v["token"] = token
	return v.Fill(e.Inverse.With)
}

// Judge is the outcome if the inverse must not be called, and nil if it must. now is what the look
// sees, nil if that is impossible; force is the drift that a person has overruled.
func (e *Evidence) Judge(now *Sight, force activities.Digest) *activities.Undone {
	if now == nil {
		return e.judgeUnseen()
	}
	is := now.Digest()
	hasSucceeded, isBefore, wasChanged := e.Succeeded(), e.IsBefore(now), !e.IsBefore(e.Left)
	switch {
	case e.Inverse == nil && hasSucceeded:
		return &activities.Undone{Outcome: activities.Final, Observed: e.Tool + " was called, and cannot be undone"}
	case hasSucceeded && !wasChanged && isBefore: // the look does not show what the call does
		return e.judgeUnseen()
	case hasSucceeded && !e.isLost() && e.Left == nil && !e.IsRepeated && isBefore:
		return e.judgeUnseen() // nobody has seen what the call does: it may not show yet
	case isBefore && e.Inverse != nil && (hasSucceeded || e.Left != nil && wasChanged || e.IsRepeated):
		undone := e.report(activities.Restored)
		if !e.IsRepeated {
			undone.Observed += ", already before the undo"
		}
		return &undone
	case isBefore && e.Pending != "":
		return &activities.Undone{Outcome: activities.Unknown, Observed: e.describePending()}
	case isBefore:
		return &activities.Undone{Outcome: activities.Nothing,
			Observed: e.Declared.Look.Tool + " shows what it showed before the call"}
	case e.Inverse == nil:
		return &activities.Undone{Outcome: activities.Final,
			Observed: fmt.Sprintf("%s was called, and cannot be undone: %s shows a change", e.Tool, e.Declared.Look.Tool)}
	case e.isAsLeft(*now), force == is:
		return nil
	}
	return &activities.Undone{
		Outcome: activities.Drifted, Observed: e.Declared.Look.Tool + " shows something other than what the call left",
		Drift: &activities.Drift{Digest: is, Diff: e.describeDrift(*now)},
	}
}

// isAsLeft reports whether the look sees what the call has left, or makes.
func (e *Evidence) isAsLeft(now Sight) bool {
	if e.Left == nil {
		return e.IsHappened(now)
	}
	return now.Digest() == e.Left.Digest()
}

func (e *Evidence) describePending() string {
	return fmt.Sprintf("%s; %s shows no change so far", e.Pending, e.Declared.Look.Tool)
}

func (e *Evidence) describeDrift(now Sight) string {
	left := "the call left: (not known)\n"
	if e.Left != nil {
		left = "the call left:\n" + e.Left.Describe() + "\n"
	}
	return left + "now:\n" + now.Describe() + "\n"
}

// judgeUnseen judges by the answer alone.
func (e *Evidence) judgeUnseen() *activities.Undone {
	switch {
	case e.changedNothing():
		return &activities.Undone{Outcome: activities.Nothing,
			Observed: e.Tool + " has answered with an error, which changes nothing, as declared"}
	case e.Succeeded() && e.Inverse == nil:
		return &activities.Undone{Outcome: activities.Final, Observed: e.Tool + " was called, and cannot be undone"}
	case e.Succeeded() && !e.isLost() && (!e.IsRepeated || e.Inverse.Done != ""):
		return nil
	case e.Succeeded() && !e.isLost():
		return &activities.Undone{Outcome: activities.Unknown,
			Observed: fmt.Sprintf(
				"%s was called and has not answered; neither a look nor done is declared that would tell what became of it",
				e.Inverse.Tool)}
	case e.Answer != nil:
		return &activities.Undone{Outcome: activities.Unknown,
			Observed: fmt.Sprintf("%s has not succeeded (%s), and no look is declared that would tell what it has changed",
				e.Tool, e.Answer.Trouble)}
	}
	return &activities.Undone{Outcome: activities.Unknown,
		Observed: e.Tool +
			" was called and has not answered, and no look is declared that would tell whether it has happened"}
}

// Verify is the outcome once the inverse has been called; now is what the look sees.
func (e *Evidence) Verify(now *Sight) activities.Undone {
	undone := e.report(activities.Compensated)
	switch {
	case now == nil:
		undone.Observed = e.Inverse.Tool + " has answered without an error; no look is declared that would show more"
	case e.Before == nil:
		undone.Observed = e.Declared.Look.Tool + " shows: " + now.Describe()
	case e.IsBefore(now):
		return e.report(activities.Restored)
	default:
		undone.Outcome = activities.Residue
		undone.Observed = e.Declared.Look.Tool + " shows something other than before the call"
		undone.Losses = append(undone.Losses, "before: "+e.Before.Describe(), "now: "+now.Describe())
	}
	return undone
}

// report is the outcome of an undo that has taken the call back. It is exact only without losses.
func (e *Evidence) report(outcome activities.Outcome) activities.Undone {
	undone := activities.Undone{Outcome: outcome, Losses: e.losses()}
	if outcome == activities.Restored {
		undone.Observed = e.Declared.Look.Tool + " shows what it showed before the call"
		if !e.IsShown {
			undone.Observed += ", and was never seen to show what " + e.Tool + " does"
		}
		if !e.IsShown || len(undone.Losses) > 0 {
			undone.Outcome = activities.Compensated
		}
	}
	return undone
}

// Observe compares what the look sees with what the call left and with what was there before.
func (e *Evidence) Observe(now *Sight) activities.Observation {
	switch {
	case now == nil:
		return activities.Observation{State: activities.Unseen, Detail: "no look is declared for " + e.Tool}
	case e.Pending != "" && e.IsBefore(now):
		return activities.Observation{State: activities.Unseen, Detail: e.describePending()}
	case e.isAsLeft(*now):
		return activities.Observation{State: activities.AsLeft}
	case e.IsBefore(now), e.Before == nil && now.Absent:
		return activities.Observation{State: activities.AsBefore}
	}
	drift := &activities.Drift{Digest: now.Digest(), Diff: e.describeDrift(*now)}
	return activities.Observation{State: activities.Elsewise, Detail: drift.Diff, Drift: drift}
}
