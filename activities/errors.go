package activities

import (
	"errors"
	"fmt"
	"time"
)

// ErrorType is the type of an ApplicationError: stable, part of the contract, and readable even if
// payloads are encrypted.
type ErrorType string

// The error types.
//
//	type            | retried | meaning
//	Refused         | no      | bad input, or not allowed by the worker's config; nothing was touched
//	CheckFailed     | no      | a check of the step did not hold
//	StaleApproval   | no      | the change or its target is not what was approved; back to the gate
//	Unproved        | no      | only a signed decision counts, and nothing proves this one; nothing was touched; back
//	                |         | to the gate, or to the park
//	Asks            | no      | a person must approve the change first; nothing was touched; on to the gate
//	Denied          | no      | the worker's policy denies the change; nothing was touched
//	Fenced          | no      | the token was undone or released: a late forward
//	UnknownOutcome  | no      | the forward may or may not have acted, and must not run again
//	WrongPlace      | no      | this journal is not the one that holds the record
//	DamagedRecord   | no      | the journal's record does not match its digest
//	UnknownFormat   | no      | the entry or record is of another version
//	ResetRun        | no      | the run was reset; it only unwinds
//	WorkerStopping  | no      | the worker is being stopped; the engine schedules the call again, without
//	                |         | counting an attempt
//	BreakerOpen     | no      | the dependency's circuit breaker is open; the engine waits (NextRetry) and
//	                |         | schedules the call again
//	NotYet          | no      | it is too early to act; the engine waits (NextRetry), without a worker, and
//	                |         | schedules the call again
//	ActionFailed    | yes     | any other error
//	ActionDenied    | no      | the dependency refused for good (a declined card, a violated constraint)
//	Unsuccessful    | no      | what the step runs has run, and failed (a command's exit status, the error of a tool)
const (
	Refused        ErrorType = "Refused"
	CheckFailed    ErrorType = "CheckFailed"
	StaleApproval  ErrorType = "StaleApproval"
	Unproved       ErrorType = "Unproved"
	Asks           ErrorType = "Asks"
	Denied         ErrorType = "Denied"
	Fenced         ErrorType = "Fenced"
	UnknownOutcome ErrorType = "UnknownOutcome"
	WrongPlace     ErrorType = "WrongPlace"
	DamagedRecord  ErrorType = "DamagedRecord"
	UnknownFormat  ErrorType = "UnknownFormat"
	ResetRun       ErrorType = "ResetRun"
	WorkerStopping ErrorType = "WorkerStopping"
	BreakerOpen    ErrorType = "BreakerOpen"
	NotYet         ErrorType = "NotYet"
	ActionFailed   ErrorType = "ActionFailed"
	ActionDenied   ErrorType = "ActionDenied"
	Unsuccessful   ErrorType = "Unsuccessful"
)

// Final reports whether a retry cannot cure an error of this type.
func (t ErrorType) Final() bool { return t != ActionFailed }

// KeptFromActing reports whether a forward with an error of this type was stopped before it acted: by
// the worker's rules, by a person who is missing, or by a fence.
func (t ErrorType) KeptFromActing() bool {
	switch t {
	case Denied, Asks, StaleApproval, Unproved, Fenced:
		return true
	}
	return false
}

// Error is an error of an action with a type that callers branch on.
type Error struct {
	Type ErrorType
	// Message is for people: what, where, and the way out. The wrapper masks secrets in it.
	Message string
	// NextRetry asks for this delay before the next attempt; zero leaves it to the policy.
	NextRetry time.Duration
	// Current is the key of the resource whose current state is the reason of a refusal: see
	// RefuseCurrent.
	Current string
	// Output is what a person needs beside the message, such as the tail of a command's output. The
	// wrapper caps and masks it.
	Output string
}

func (e *Error) Error() string { return string(e.Type) + ": " + e.Message }

// Errorf makes an Error.
func Errorf(t ErrorType, format string, args ...any) *Error {
	return &Error{Type: t, Message: fmt.Sprintf(format, args...)}
}

// ReleasedError is the error of an undo that comes too late.
func ReleasedError(token string) error {
	return Errorf(Fenced, "token %s was released: its rollback window has closed", token)
}

// TypeOf returns the type of err; ActionFailed if it has none.
func TypeOf(err error) ErrorType {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Type
	}
	return ActionFailed
}
