package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// Owned is embedded in the Record documents of all worlds: the owner of the record, so that the
// journal alone tells it.
type Owned struct {
	Entry activities.Entry `json:"entry"`
	Owner activities.Owner `json:"owner"`
	Made  time.Time        `json:"made"`
}

// Own is the Owned of a record made by the call that runs in ctx.
func Own(ctx context.Context, e activities.Entry) Owned {
	return Owned{Entry: e, Owner: activities.OwnerOf(ctx), Made: time.Now().UTC()}
}

// Names of the documents that tell the state of a record. They are not ordered in time: a fate
// outranks what was marked before it.
const (
	committedName = "committed" // Records.Commit
	ownedName     = "owned"     // what is left of a dropped record
	releasedName  = "released"  // Release is complete
)

type committedDoc struct {
	At    time.Time `json:"at"`
	Until time.Time `json:"until"`
}

type releasedDoc struct {
	At time.Time `json:"at"`
}

// MarkReleased marks the end of a Release: only the tombstone and the audit trail are left.
func (t *Token) MarkReleased() error {
	_, err := t.Create(releasedName, &releasedDoc{At: time.Now().UTC()})
	return err
}

// IsReleased says that a Release of the token has come to its end.
func (t *Token) IsReleased() (bool, error) { return t.Has(releasedName) }

// Committed returns until when a committed token is kept; found is false if it is not committed.
func (t *Token) Committed() (until time.Time, found bool, err error) {
	var doc committedDoc
	found, err = t.Read(committedName, &doc)
	return doc.Until, found, err
}

// Undone returns when an undo ended; ended is false if none has.
func (t *Token) Undone() (at time.Time, ended bool, err error) {
	var outcome activities.Undone
	if ended, err = t.Read(Outcome, &outcome); err != nil || !ended {
		return at, ended, err
	}
	info, err := os.Stat(filepath.Join(t.dir, Outcome))
	if err != nil {
		return at, false, ignoreMissing(err) // forgotten meanwhile
	}
	return info.ModTime().UTC(), true, nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// keepOwned keeps the owner of a record that is about to be dropped, for the audit trail.
func (t *Token) keepOwned() error {
	var owned Owned
	found, err := t.Read(Record, &owned)
	if activities.TypeOf(err) == activities.DamagedRecord {
		return nil // it says nothing any more
	}
	if err != nil || !found {
		return err
	}
	_, err = t.Create(ownedName, &owned)
	return err
}

// Records implements activities.Records for a world whose Record documents embed Owned. Bytes, if
// not nil, returns what a token takes outside its own folder.
type Records struct {
	Journal *Journal
	Bytes   func(activities.Entry) int64
}

var _ activities.Records = Records{}

// Records lists the tokens that have a record, and those of which only the audit trail is left. If
// there never was a record, only the token is known.
func (r Records) Records(ctx context.Context) (records []activities.Record, problems []error, err error) {
	names, err := r.Journal.Tokens()
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		record, found, err := r.record(name)
		switch {
		case err != nil:
			problems = append(problems, fmt.Errorf("token %s: %w", name, err))
		case found:
			records = append(records, record)
		}
	}
	return records, problems, nil
}

func (r Records) record(name string) (_ activities.Record, found bool, err error) {
	t, err := r.Journal.Token(name)
	if err != nil {
		return activities.Record{}, false, err
	}
	if bare, err := r.Journal.forgotten.includes(t); err != nil || bare {
		return activities.Record{}, false, err
	}
	var owned Owned
	known, err := t.Read(Record, &owned)
	if activities.TypeOf(err) == activities.DamagedRecord || err == nil && !known {
		if claimed, cerr := t.Read(ownedName, &owned); claimed || cerr != nil {
			known, err = claimed, cerr
		}
	}
	if err != nil {
		return activities.Record{}, false, err
	}
	record := activities.Record{Entry: owned.Entry, Owner: owned.Owner, State: activities.RecordOpen, Since: owned.Made}
	record.Entry.Token = name
	if err := t.fillState(&record, known); err != nil {
		return record, false, err
	}
	if record.State == activities.RecordOpen && !known {
		return record, false, nil // only a fate, or nothing
	}
	if record.Bytes, err = dirSize(t.dir); err == nil && r.Bytes != nil {
		record.Bytes += r.Bytes(record.Entry)
	}
	return record, true, err
}

// fillState sets how far the token has come. known says that it has or had a record.
func (t *Token) fillState(record *activities.Record, known bool) error {
	var released releasedDoc
	if found, err := t.Read(releasedName, &released); err != nil {
		return err
	} else if found {
		fate, err := t.Fate()
		record.State, record.Ended, record.Undone = activities.RecordReleased, released.At, fate == Undoing
		return err
	}
	_, hold, err := t.lastHold()
	if err != nil {
		return err
	}
	record.Holders = hold.Holders
	var fate fateDoc
	if _, err := t.Read(fateName, &fate); err != nil {
		return err
	}
	if fate.Fate == Undoing {
		ended, over, err := t.Undone()
		switch {
		case err != nil:
			return err
		case !known && over: // it had nothing to undo, and keeps nothing
			record.State, record.Ended, record.Undone = activities.RecordReleased, ended, true
		case known:
			keep := cmp.Or(record.Entry.Keep, activities.DefaultKeep)
			record.State, record.Until = activities.RecordUndone, fate.At.Add(keep)
			if over {
				record.Ended, record.Until = ended, ended.Add(keep)
			}
		}
		return nil
	}
	var committed committedDoc
	found, err := t.Read(committedName, &committed)
	switch {
	case err != nil:
		return err
	case fate.Fate == Releasing && known: // its Release was interrupted: release it again
		record.State, record.Ended, record.Until = activities.RecordCommitted, fate.At, fate.At
	case hold.Releasing && known: // likewise, before its fate was decided
		record.State, record.Ended, record.Until = activities.RecordCommitted, hold.At, hold.At
	case found && known:
		record.State, record.Ended, record.Until = activities.RecordCommitted, committed.At, committed.Until
	}
	return nil
}

func dirSize(dir string) (bytes int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && !strings.HasSuffix(d.Name(), spareSuffix) {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				bytes += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) { // dropped meanwhile
			return nil
		}
		return err
	})
	return bytes, err
}

// Commit marks an open token. An undo or a release decided at the same time wins.
func (r Records) Commit(_ context.Context, token string, until time.Time) error {
	t, err := r.Journal.Token(token)
	if err != nil {
		return err
	}
	if fate, err := t.Fate(); err != nil || fate != Undecided {
		return err
	}
	var owned Owned
	if found, err := t.Read(Record, &owned); err != nil || !found {
		return err
	}
	_, err = t.Create(committedName, &committedDoc{At: time.Now().UTC(), Until: until.UTC()})
	return err
}

// Hold implements activities.Records.
func (r Records) Hold(_ context.Context, token string, holder activities.Owner) (held bool, err error) {
	t, err := r.Journal.Token(token)
	if err != nil {
		return false, err
	}
	if begun, err := t.Has(""); err != nil || !begun {
		return err == nil, err
	}
	return t.Hold(holder)
}

// EndHold implements activities.Records.
func (r Records) EndHold(_ context.Context, token string, holder activities.Owner) error {
	t, err := r.Journal.Token(token)
	if err != nil {
		return err
	}
	if begun, err := t.Has(""); err != nil || !begun {
		return err
	}
	return t.EndHold(holder)
}

// Claim implements activities.Records.
func (r Records) Claim(ctx context.Context, e activities.Entry) error {
	t, err := r.Journal.Token(e.Token)
	if err != nil {
		return err
	}
	if begun, err := t.Has(""); err != nil || !begun { // it belongs to another journal of the world
		return err
	}
	var owned Owned
	if found, err := t.Read(Record, &owned); err == nil && found || err != nil &&
		activities.TypeOf(err) != activities.DamagedRecord {
		return err
	}
	owned = Own(ctx, e)
	_, err = t.Create(ownedName, &owned)
	return err
}

// Abandon implements activities.Records.
func (r Records) Abandon(_ context.Context, token string) error {
	t, err := r.Journal.Token(token)
	if err != nil {
		return err
	}
	if fate, err := t.Fate(); err != nil || fate != Undoing {
		return err
	}
	_, err = t.Create(Outcome, &activities.Abandoned)
	return err
}

// Forget leaves only the fate of a released token. It refuses a token that is still needed.
func (r Records) Forget(_ context.Context, token string) error {
	t, err := r.Journal.Token(token)
	if err != nil {
		return err
	}
	record, found, err := r.record(token)
	if err != nil {
		return err
	}
	if found && record.State != activities.RecordReleased {
		return activities.Errorf(activities.Refused, "token %s is %s and not released: an undo or a redo still needs it",
			token, record.State)
	}
	if fate, err := t.Fate(); err != nil || fate == Undecided {
		return err // there was never a record, or a forward is about to make one
	}
	es, err := os.ReadDir(t.dir)
	if err != nil {
		return ignoreMissing(err)
	}
	for _, e := range es {
		if e.Name() == fateName || e.Name() == releasedName {
			continue
		}
		if err := os.RemoveAll(filepath.Join(t.dir, e.Name())); err != nil {
			return err
		}
	}
	return t.Drop(releasedName) // last: until then it is listed, and can be forgotten again
}
