package postgres

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/recordkeeping"
)

// seal binds the parts of a record to its token and to each other. It stands in the result, which a
// step that has acted always has.
type seal struct {
	Token string `json:"token"`
	// Content covers the tables, how many rows changed, and the alterations.
	Content activities.Digest `json:"content"`
	// Changes is the digest of the rows in unwind.change.
	Changes string `json:"changes"`
}

// sealedResult is the result of a step in the journal.
type sealedResult struct {
	activities.Result

	Seal *seal `json:"seal,omitempty"`
}

// UnmarshalJSON reads both parts: a result reads itself alone.
func (r *sealedResult) UnmarshalJSON(raw []byte) error {
	var other struct{ Seal *seal }
	err := errors.Join(json.Unmarshal(raw, &r.Result), json.Unmarshal(raw, &other))
	r.Seal = other.Seal
	return err
}

// makeSeal seals the record of a token, in the transaction of its step.
func (c *connection) makeSeal(token string, n, rows int64, tables, alterations string) (*seal, error) {
	changes, err := c.digestChanges(n)
	return &seal{Token: token, Content: digestContent(n, rows, tables, alterations), Changes: changes}, err
}

func digestContent(n, rows int64, tables, alterations string) activities.Digest {
	return activities.DigestOf(fmt.Append(nil, n, rows), []byte(tables), []byte(keyText.ReplaceAllString(alterations, "")))
}

// keyText is the key of a trait in an alteration. It has an id, which an undo of a later step may
// change (see package alteration).
var keyText = regexp.MustCompile(`"key":"(?:[^"\\]|\\.)*"`)

// digestChanges covers the rows that a record has in unwind.change, in any order. Their versions
// are passed on by later undos, and no part of it.
func (c *connection) digestChanges(n int64) (digest string, err error) {
	return digest,
		c.Scan("SELECT coalesce(sum(hash_record_extended(ROW(relid, old, new), 0)), 0)::text FROM unwind.change WHERE "+
			"record = $1", []any{n}, &digest)
}

// A step that has acted has a mark in unwind.change until it is released: that tells that it has
// acted where its row in unwind.record is gone.
const isMark = "record = 0 AND relid = 0 AND new = ARRAY[$1::text]"

func (c *connection) setMark(token string) error {
	return c.Run("INSERT INTO unwind.change (record, relid, new) VALUES (0, 0, ARRAY[$1::text])", token)
}

func (c *connection) dropMark(token string) error {
	return c.Run("DELETE FROM unwind.change WHERE "+isMark, token)
}

// settleMark notes in the mark that the step is undone.
func (c *connection) settleMark(token string) error {
	return c.Run("UPDATE unwind.change SET old = '{undone}' WHERE "+isMark, token)
}

// markHeld notes in the mark whether somebody needs the record.
func (c *connection) markHeld(token string, held bool) error {
	return c.Run("UPDATE unwind.change SET old = CASE WHEN $2 THEN '{held}'::text[] END WHERE "+isMark+
		" AND old IS DISTINCT FROM '{undone}'", token, held)
}

// checkUnheld is DamagedRecord for a token that somebody needs according to its mark, and nobody
// according to its row.
func (c *connection) checkUnheld(token string) error {
	var held bool
	if err := c.Scan("SELECT EXISTS (SELECT FROM unwind.change WHERE "+isMark+" AND old = '{held}')", []any{token},
		&held); err != nil || !held {
		return err
	}
	return c.damagedRow(token, "it does not say who needs it")
}

// checkUnsettled is DamagedRecord for a token that is undone according to its mark, and not
// according to its row.
func (c *connection) checkUnsettled(token string) error {
	var settled bool
	if err := c.Scan("SELECT EXISTS (SELECT FROM unwind.change WHERE "+isMark+" AND old = '{undone}')", []any{token},
		&settled); err != nil || !settled {
		return err
	}
	return c.damagedRow(token, "the step was undone before")
}

// checkUnmarked is DamagedRecord for a token that has a mark, and whose row is new.
func (c *connection) checkUnmarked(token string) error {
	var marked bool
	if err := c.Scan("SELECT EXISTS (SELECT FROM unwind.change WHERE "+isMark+")", []any{token}, &marked); err != nil ||
		!marked {
		return err
	}
	return activities.Errorf(activities.DamagedRecord,
		"database %s: the row of token %s in unwind.record is gone, though the step has acted: nothing was touched; "+
			"bring the row back, or decide what becomes of the step", c.Name, token)
}

// findContradiction returns what the parts of a record say against each other; empty if nothing.
// They were written by one transaction: all of them are there, or none.
func (r *record) findContradiction(token string, result, tables, alterations *string) string {
	acted := tables != nil
	switch {
	case !slices.Contains([]string{recordkeeping.Applied, recordkeeping.Undoing, recordkeeping.Undone,
		recordkeeping.Released}, r.State):
		return "its state is unknown"
	case r.State == recordkeeping.Undone && r.Outcome.Outcome == "":
		return "it does not hold the outcome of its undo"
	case r.State == recordkeeping.Undone:
		return "" // its outcome says the rest
	case r.Outcome.Outcome != "":
		return "it holds the outcome of an undo, and says that none has ended"
	case r.State == recordkeeping.Released && (acted || result != nil):
		return "it says that it was released, and holds what the step changed"
	case (result != nil) != acted || r.State == recordkeeping.Applied && !acted:
		return "it has lost a part of what the step changed"
	case !acted:
		return ""
	case r.Seal == nil:
		return "its result has no seal"
	case r.Seal.Token != token:
		return "its result is that of token " + r.Seal.Token
	case alterations == nil || r.Seal.Content != digestContent(r.N, r.Rows, *tables, *alterations):
		return "what it says of the step's changes is not what the step has written"
	}
	return ""
}
