package stripe

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// The record of a step is metadata on the object that it creates or changes, under these names.
const (
	markPrefix = "unwind_"
	tokenMark  = "unwind_token" // on a created object: the token that it belongs to
)

// mark is the name of a note on an object, such as "unwind_payment_intent_confirm_fence".
func (k *kind) mark(what string) string { return markPrefix + k.noun + "_" + k.verb + what }

// The notes.
const (
	beganMark    = ""          // TOKEN@TIME: a confirm, capture or cancel is about to be sent
	fenceMark    = "_fence"    // TOKEN: it was undone
	outcomeMark  = "_outcome"  // TOKEN:CODE: it was undone, and how
	releasedMark = "_released" // TOKEN: its rollback window has closed
)

func noteOn(o object, name string) string { return o.text("metadata." + name) }

// beganAt is when a token's confirm, capture or cancel was about to be sent; zero if it never was.
func (k *kind) beganAt(o object, token string) time.Time {
	owner, at, _ := strings.Cut(noteOn(o, k.mark(beganMark)), "@")
	seconds, err := strconv.ParseInt(at, 10, 64)
	if owner != token || err != nil {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

// checkOpen returns Fenced if the object has a note of the token's undo or release.
func (k *kind) checkOpen(o object, token string) error {
	if k.notedCode(o, token) != "" || noteOn(o, k.mark(fenceMark)) == token {
		return activities.Errorf(activities.Fenced, "token %s was undone: this forward came too late", token)
	}
	return k.checkKept(o, token)
}

// checkKept returns Fenced if the token was released.
func (k *kind) checkKept(o object, token string) error {
	if noteOn(o, k.mark(releasedMark)) == token {
		return activities.ReleasedError(token)
	}
	return nil
}

// writeNote writes a note on the object at a path.
func (c *session) writeNote(path, name, value, key string) (object, error) {
	return c.postOnce(path, formParams("metadata["+name+"]", value), key)
}

// How the undo of a create ended, as noted on the object.
const (
	codeNothing = "nothing" // the forward had not arrived
	codeDone    = "done"
	codeForced  = "forced" // over someone else's changes
)

// notedCode is the code that an undo of the token noted on an object; empty if there is none.
func (k *kind) notedCode(o object, token string) string {
	owner, code, _ := strings.Cut(noteOn(o, k.mark(outcomeMark)), ":")
	if owner != token {
		return ""
	}
	return code
}

// noteOutcome notes how the undo ended, and returns the code that stands: the first writer's, since
// all use one key. The code is empty if the object is gone and nothing was ever noted.
func (c *session) noteOutcome(k *kind, path, token, code string) (string, error) {
	codes := []string{code}
	for _, other := range []string{codeDone, codeNothing, codeForced} {
		if other != code {
			codes = append(codes, other)
		}
	}
	for _, code := range codes {
		_, err := c.writeNote(path, k.mark(outcomeMark), token+":"+code, deriveKey(token, "undo", pathDigest(path)))
		switch {
		case err == nil:
			return code, nil
		case isGone(err):
			return "", nil
		case !isSpent(err):
			return "", err
		}
	}
	return "", fmt.Errorf("the note of an undo of token %s was written by a newer version", token)
}

// deriveKey derives an idempotency key from a token: the forward's if part is empty, else that of
// one request of its undo.
func deriveKey(token string, part ...string) string {
	return strings.Join(append([]string{"unwind-" + token}, part...), ".")
}

// pathDigest names the object at a path within a key: a token may have several objects, and a key
// belongs to one endpoint.
func pathDigest(path string) string { return activities.DigestOf([]byte(path)).Short() }
