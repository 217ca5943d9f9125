package protocol

import (
	"fmt"

	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/payload"
)

// Types of the ApplicationErrors with which an update of a session is refused. Nothing was touched.
const (
	// NotASession: the task takes no steps while it runs.
	NotASession = "NotASession"
	// SessionOver: the session has been told to finish, unwinds, or has ended.
	SessionOver = "SessionOver"
	// SessionPaused: it takes nothing until somebody unpauses it.
	SessionPaused = "SessionPaused"
	// SessionBusy: it must come to rest first.
	SessionBusy = "SessionBusy"
	// BadRequest: the request is at fault; the message says where and how to mend it.
	BadRequest = "BadRequest"
	// TooManyAtOnce: more large requests came at the same time than can be taken: send it again.
	TooManyAtOnce = "TooManyAtOnce"
	// PersonDecides: this decision is a person's alone.
	PersonDecides = "PersonDecides"
)

// Refusef returns the error of a task, or a step, that is refused before anything is touched.
func Refusef(format string, args ...any) error {
	return temporal.NewNonRetryableApplicationError(fmt.Sprintf(format, args...), string(activities.Refused), nil)
}

// RefuseRequestf returns the error that a request is refused with.
func RefuseRequestf(errorType, format string, args ...any) error {
	return temporal.NewNonRetryableApplicationError(payload.Clip(fmt.Sprintf(format, args...), payload.MaxCause),
		errorType, nil)
}

// What could not be carried over, or not be sent at all, is refused before anything of it begins.
// What gets past that all the same, such as what people write, does not stop a task: see stuck.

// MaxRequest bounds a request to a session, as JSON: it goes in one message with the steps that
// were compiled from it.
const MaxRequest = 1_000_000

// UpdateTooLarge stands for an update that was too large to be passed on to its workflow: argument
// TooLarge. It is always refused.
const UpdateTooLarge = "too-large"

// TooLarge is the argument of UpdateTooLarge.
type TooLarge struct {
	Bytes int `json:"bytes"`
	// Alone says that it is too large whatever else there is; otherwise others came at the same time.
	Alone bool `json:"alone,omitempty"`
}

func (t TooLarge) Refusal() error {
	if t.Alone {
		return RefuseRequestf(BadRequest,
			"the request has %s, and can have at most %d as JSON: send fewer steps at once, or put long content into a file "+
				"and name that",
			activities.CountOf(t.Bytes, "byte"), MaxRequest)
	}
	return RefuseRequestf(TooManyAtOnce, "the request has %s, and came with others that are as large: send it again",
		activities.CountOf(t.Bytes, "byte"))
}

// CheckRequest refuses a request that is too large for a session. A client asks before it sends
// one: a server delivers it, and the workflow would then fail to refuse it.
func CheckRequest(content any) error {
	if size := payload.SizeOf(content); size > MaxRequest {
		return RefuseRequestf(BadRequest,
			"the request has %s as JSON, and can have %d: send fewer steps at once, or put long content into a file and "+
				"name that",
			activities.CountOf(size, "byte"), MaxRequest)
	}
	return nil
}
