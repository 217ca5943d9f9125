package compensations

import (
	"errors"
	"fmt"

	"go.temporal.io/sdk/temporal"
)

// Err returns the report as the error that a workflow ends with, for ReportOf: nil if the report has no Cause, a CanceledError
// if the workflow was canceled, and otherwise a non-retryable ApplicationError of the given type.
func (r Report) Err(errorType string) error {
	switch {
	case r.Cause == nil:
		return nil
	case r.Cause.Kind == Canceled:
		return temporal.NewCanceledError(r)
	}
	message := string(r.Status) + ": "
	if r.Cause.Step != "" {
		message += "step " + r.Cause.Step + ": "
	}
	return temporal.NewApplicationErrorWithOptions(message+r.Cause.Text, errorType, temporal.ApplicationErrorOptions{
		NonRetryable: true, Details: []any{r},
	})
}

// ReportOf returns the report in an error made by Err, as a client or a parent workflow gets it, and whether err holds one.
func ReportOf(err error) (r Report, ok bool) {
	if app, is := errors.AsType[*temporal.ApplicationError](err); is && app.HasDetails() {
		ok = app.Details(&r) == nil
	} else if canceled, is := errors.AsType[*temporal.CanceledError](err); is && canceled.HasDetails() {
		ok = canceled.Details(&r) == nil
	}
	return r, ok && r.Status != ""
}

// Reason returns the part of an activity's error that a person needs: the innermost message, with its type.
func Reason(err error) string {
	if app, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		if app.Type() == "" {
			return app.Message()
		}
		return fmt.Sprintf("%s: %s", app.Type(), app.Message())
	}
	if timeout, ok := errors.AsType[*temporal.TimeoutError](err); ok {
		if last := timeout.Unwrap(); last != nil {
			return fmt.Sprintf("timed out (%s); the last error was: %s", timeout.TimeoutType(), Reason(last))
		}
		return fmt.Sprintf("timed out (%s)", timeout.TimeoutType())
	}
	if panicked, ok := errors.AsType[*temporal.PanicError](err); ok {
		return "the activity panicked: " + panicked.Error()
	}
	return err.Error()
}
