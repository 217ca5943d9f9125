package stripe

import (
	"fmt"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// lateLookDelay is longer than Stripe remembers any key that an undo has used.
const lateLookDelay = 25 * time.Hour

// askLateLook makes a late sweep look again at the outcome of an undo that saw nothing. The
// forward's key proves that nothing will come, unless the key may be forgotten (a stopped worker
// may then send the request once the undo's own use of the key is forgotten too) or Stripe failed
// with a status 500 (it may still finish what it began).
func askLateLook(u activities.Undone) activities.Undone {
	u.LookAgain = lateLookDelay
	u.Observed += fmt.Sprintf("; that is no proof yet, so a late sweep looks again in %s", lateLookDelay)
	return u
}
