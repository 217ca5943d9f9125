package helper

import (
	"errors"
	"fmt"
)

// Kind says what a failure means to whoever asked.
type Kind string

// The kinds of failures. All others are [Failed].
const (
	Unfit   Kind = "unfit"   // no stack may stand on this container, or on this host: take another backend
	Foreign Kind = "foreign" // another worker's stack stands on the container: leave it to that one
	Busy    Kind = "busy"    // another helper is at work on the container: ask again
	Fenced  Kind = "fenced"  // the checkpoint's step may enter the container no more
	Unknown Kind = "unknown" // there is no such checkpoint
	InUse   Kind = "in-use"  // others' checkpoints, or processes, are in the way
	Damaged Kind = "damaged" // the book, or a layer, is not as it was written
	Full    Kind = "full"    // the disk that the layers are on has too little room: ask again when it has more
	Failed  Kind = "failed"
)

// Failure is an error that goes over the wire.
type Failure struct {
	Kind    Kind   `json:"kind"`
	Message string `json:"message"`
}

func (f *Failure) Error() string { return f.Message }

func failure(kind Kind, format string, args ...any) error {
	return &Failure{kind, fmt.Sprintf(format, args...)}
}

// KindOf is the kind of an error; empty where it did not come from a helper.
func KindOf(err error) Kind {
	f, ok := errors.AsType[*Failure](err)
	if !ok {
		return ""
	}
	return f.Kind
}
