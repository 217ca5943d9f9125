package stripe

import (
	"fmt"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// lookAfter is later than any key is remembered that an undo has used.
const lookAfter = 25 * time.Hour

// lookAgain makes the outcome of an undo that saw nothing one that a late sweep looks at again. Such an undo is sure where
// the forward's key proves that nothing will come. Where the key may be forgotten, a request that comes out of a stopped
// worker acts once the undo's own use of the key is forgotten as well; and where Stripe has failed with a 500, it may
// finish what it had begun.
func lookAgain(u activities.Undone) activities.Undone {
	u.LookAgain = lookAfter
	u.Observed += fmt.Sprintf("; that is no proof yet, so it is looked for again in %s", lookAfter)
	return u
}
