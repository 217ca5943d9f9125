package compensations

import (
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
)

// Err returns the report as the error that a workflow ends with, for ReportOf: nil if the report
// has no Cause, a CanceledError if the workflow was canceled, and otherwise a non-retryable
// ApplicationError of the given type.
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

// ReportOf returns the report in an error made by Err, as a client or a parent workflow gets it,
// and whether err holds one.
func ReportOf(err error) (r Report, ok bool) {
	if app, is := errors.AsType[*temporal.ApplicationError](err); is && app.HasDetails() {
		ok = app.Details(&r) == nil
	} else if canceled, is := errors.AsType[*temporal.CanceledError](err); is && canceled.HasDetails() {
		ok = canceled.Details(&r) == nil
	}
	return r, ok && r.Status != ""
}

// Limits are how long an attempt of an activity may take, and how long its worker may be silent
// meanwhile. Zero is not known.
type Limits struct {
	Attempt, Heartbeat time.Duration
}

// Reason returns the part of an activity's error that a person needs: the innermost message, with
// its type.
func Reason(err error) string { return Limits{}.Reason(err) }

// Reason names the limit that was reached, too.
func (l Limits) Reason(err error) string {
	if app, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		if app.Type() == "" {
			return app.Message()
		}
		return fmt.Sprintf("%s: %s", app.Type(), app.Message())
	}
	if timeout, ok := errors.AsType[*temporal.TimeoutError](err); ok {
		text := l.timeoutText(timeout.TimeoutType())
		if last := timeout.Unwrap(); last != nil && l.Reason(last) != text {
			text += "; the last error was: " + l.Reason(last)
		}
		return text
	}
	if panicked, ok := errors.AsType[*temporal.PanicError](err); ok {
		return "the activity panicked: " + panicked.Error()
	}
	return err.Error()
}

func (l Limits) timeoutText(kind enumspb.TimeoutType) string {
	switch {
	case kind == enumspb.TIMEOUT_TYPE_START_TO_CLOSE && l.Attempt > 0:
		return fmt.Sprintf("timed out: an attempt took longer than its limit of %s", l.Attempt)
	case kind == enumspb.TIMEOUT_TYPE_HEARTBEAT && l.Heartbeat > 0:
		return fmt.Sprintf("timed out: its worker was not heard of for %s", l.Heartbeat)
	}
	return fmt.Sprintf("timed out (%s)", kind)
}
