package helper

import (
	"errors"
	"fmt"
)

// Kind classifies a failure for the caller.
type Kind string

// The kinds of failures. All others are [Failed].
const (
	Unfit   Kind = "unfit"   // no stack can be used on this container or host: use another backend
	Stale   Kind = "stale"   // the process that was remembered is no longer the container's first: ask the engine again
	Foreign Kind = "foreign" // another worker's stack is on the container: leave it to that worker
	Busy    Kind = "busy"    // another helper is working on the container: ask again
	Fenced  Kind = "fenced"  // the checkpoint's step may no longer enter the container
	Unknown Kind = "unknown" // there is no such checkpoint
	InUse   Kind = "in-use"  // checkpoints or processes of others are in the way
	Damaged Kind = "damaged" // the book or a layer is not as it was written
	Full    Kind = "full"    // too little disk space for layers: ask again when there is more
	Failed  Kind = "failed"
)

// Failure is an error in an answer.
type Failure struct {
	Kind    Kind   `json:"kind"`
	Message string `json:"message"`
}

func (f *Failure) Error() string { return f.Message }

func newFailure(kind Kind, format string, args ...any) error {
	return &Failure{kind, fmt.Sprintf(format, args...)}
}

// KindOf is the kind of an error; empty if it is not from a helper.
func KindOf(err error) Kind {
	f, ok := errors.AsType[*Failure](err)
	if !ok {
		return ""
	}
	return f.Kind
}
