package aside

import (
	"errors"
	"io/fs"
	"os"

	"github.com/seed-62bf7108/unwind/activities/journal"
)

// Journals are the folders of the journals of this host whose steps set containers aside. A step of
// one world may bring forward what one of another world has set aside.
type Journals []string

// Any reports whether something is so of a token in one of them.
func (j Journals) Any(token string, isSo func(*journal.Token) (bool, error)) (bool, error) {
	for _, dir := range j {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) { // there is no such world here
			continue
		}
		in, err := journal.Open(dir)
		if err != nil {
			return false, err
		}
		t, err := in.Token(token)
		if err != nil {
			return false, err
		}
		if is, err := isSo(t); is || err != nil {
			return is, err
		}
	}
	return false, nil
}

// MayDrop reports whether nobody needs any more what only holds a name that a step of a token knows:
// the token has given that name, or the record of the step that has is released. That step drops it
// otherwise.
func (j Journals) MayDrop(name, token string) (bool, error) {
	if giver := GiverOf(name); giver != token {
		return j.Any(giver, (*journal.Token).IsReleased)
	}
	return true, nil
}

// IsReleasing reports whether the record of a token is released, or is about to be.
func (j Journals) IsReleasing(token string) (bool, error) {
	return j.Any(token, func(t *journal.Token) (bool, error) {
		fate, err := t.Fate()
		return fate == journal.Releasing, err
	})
}
