package recovery

import (
	"errors"
	"fmt"
)

// Why is the reason for a refusal. The values are stable, for callers that branch on them.
type Why string

// The reasons.
const (
	Unknown    Why = "unknown"    // there is no such workflow
	Foreign    Why = "foreign"    // it is not a task of Unwind
	Alive      Why = "alive"      // it is running
	Paused     Why = "paused"     // it is alive, and paused
	Ended      Why = "ended"      // it closed by itself, with its report
	Dead       Why = "dead"       // it ended without unwinding: it has to be recovered first
	Superseded Why = "superseded" // the chain went on after that run: it was reset
	Taken      Why = "taken"      // another workflow is doing it, or has done it
	TooLate    Why = "too-late"   // its rollback window has closed
	Order      Why = "order"      // what came after it has to be reversed first
	NoSuchPart Why = "no-such-part"
	Gone       Why = "gone" // the namespace no longer keeps its history
	// Unreadable is a history that this data converter cannot read, or this version does not
	// understand.
	Unreadable   Why = "unreadable"
	TooLarge     Why = "too-large"     // it exceeds a payload, or maxDepth
	Corrected    Why = "corrected"     // a person has given a step other parameters, which its document does not have
	OtherVersion Why = "other-version" // another version wrote it, and only that one can read it
)

// Refusal says why nothing was started.
type Refusal struct {
	Why Why
	// ID is the workflow that stands in the way: to be inspected, ended or recovered first.
	ID      string
	Message string
}

func (r *Refusal) Error() string { return r.Message }

func refusef(why Why, id, format string, args ...any) error {
	return &Refusal{why, id, fmt.Sprintf(format, args...)}
}

// WhyOf returns the reason in err; empty if err is not a Refusal.
func WhyOf(err error) Why {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r.Why
	}
	return ""
}
