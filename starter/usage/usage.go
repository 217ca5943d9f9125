// Package usage marks errors in what a person typed: nothing was started, sent or touched.
package usage

import "fmt"

// Error is an error in the input.
type Error struct{ err error }

func (e Error) Error() string { return e.err.Error() }
func (e Error) Unwrap() error { return e.err }

// Wrap marks an error as one in the input.
func Wrap(err error) error { return Error{err} }

// Errorf makes an error in the input.
func Errorf(format string, args ...any) error { return Error{fmt.Errorf(format, args...)} }
