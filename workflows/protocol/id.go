package protocol

import (
	"fmt"
	"regexp"

	"github.com/seed-62bf7108/unwind/workflows/payload"
)

// CheckID refuses an id for a task or a session that would have to be quoted in a command, or does
// not fit into a link.
func CheckID(id string) error {
	if len(id) > maxID || !idForm.MatchString(id) {
		return fmt.Errorf(
			"id %q: it stands in commands and links: write a letter or a digit, then letters, digits, '.', '_' and '-', at "+
				"most %d in all",
			payload.Clip(id, 40), maxID)
	}
	return nil
}

// maxID is the longest workflow id that every Temporal server takes.
const maxID = 255

var idForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
