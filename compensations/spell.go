package compensations

import (
	"errors"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
)

// An undo that fails is tried again by the server, which tells the workflow nothing. So it is tried
// in spells: at the end of each the workflow hears why it has failed, and shows that.

// With pauses from a second to a minute between them, firstTries take three minutes, and maxTries
// an hour.
const (
	firstTries = 9
	maxTries   = 60
)

// patience is how long an undo fails before that is shown.
const patience = 2 * time.Minute

// spell bounds one scheduling of an undo.
type spell struct {
	tries          int
	hostWait, left time.Duration
}

// tries counts the attempts of an undo.
type tries struct {
	next int // in the next spell
	left int // in all; maxAttempts if their number has no bound
}

func newTries(attempts int) *tries {
	if attempts == 0 {
		attempts = maxAttempts
	}
	return &tries{next: min(firstTries, attempts), left: min(attempts, maxAttempts)}
}

// goOn reports whether an undo that has failed in a whole spell is tried on.
func (t *tries) goOn(err error) bool {
	var app *temporal.ApplicationError
	var timeout *temporal.TimeoutError
	if errors.As(err, &app) && app.NonRetryable() ||
		errors.As(err, &timeout) && timeout.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE {
		return false
	}
	if t.left < maxAttempts {
		t.left -= t.next
	}
	t.next = min(2*t.next, maxTries, t.left)
	return t.left > 0
}
