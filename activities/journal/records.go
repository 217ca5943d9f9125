package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// Owned is embedded by the Record documents of all worlds: whose record it is, told by the journal alone.
type Owned struct {
	Entry activities.Entry `json:"entry"`
	Owner activities.Owner `json:"owner"`
	Made  time.Time        `json:"made"`
}

// Own is the Owned of a record that is made now, by the call that runs in ctx.
func Own(ctx context.Context, e activities.Entry) Owned {
	return Owned{Entry: e, Owner: activities.OwnerOf(ctx), Made: time.Now().UTC()}
}

const committedName = "committed"

type committedDoc struct {
	At    time.Time `json:"at"`
	Until time.Time `json:"until"`
}

// releasedName marks that Release has dropped all that it drops.
const releasedName = "released"

type releasedDoc struct {
	At time.Time `json:"at"`
}

// Released marks the end of a Release: nothing is left but the tombstone and the outcome.
func (t *Token) Released() error {
	_, err := t.Create(releasedName, &releasedDoc{At: time.Now().UTC()})
	return err
}

// Committed says until when a committed token is kept; found is false for one that is not committed.
func (t *Token) Committed() (until time.Time, found bool, err error) {
	var doc committedDoc
	found, err = t.Read(committedName, &doc)
	return doc.Until, found, err
}

// Records implements activities.Records for a world whose Record documents embed Owned. Bytes, where it is not nil, says
// what a token takes outside its own folder.
type Records struct {
	Journal *Journal
	Bytes   func(activities.Entry) int64
}

var _ activities.Records = Records{}

// Records lists the tokens that have a record, and the released ones, of which only the token is known.
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
	var owned Owned
	if found, err = t.Read(Record, &owned); err != nil {
		return activities.Record{}, false, err
	} else if !found {
		var released releasedDoc
		found, err = t.Read(releasedName, &released)
		return activities.Record{
			Entry: activities.Entry{Token: name}, State: activities.RecordReleased, Ended: released.At,
		}, found, err
	}
	record := activities.Record{Entry: owned.Entry, Owner: owned.Owner, State: activities.RecordOpen, Since: owned.Made}
	var committed committedDoc
	if found, err = t.Read(committedName, &committed); err != nil {
		return record, false, err
	} else if found {
		record.State, record.Ended, record.Until = activities.RecordCommitted, committed.At, committed.Until
	}
	var fate fateDoc
	if found, err = t.Read(fateName, &fate); err != nil {
		return record, false, err
	} else if found {
		record.State, record.Ended = activities.RecordUndone, fate.At
		if fate.Fate == Releasing {
			record.State = activities.RecordReleased
		}
	}
	var released releasedDoc
	if found, err = t.Read(releasedName, &released); err != nil {
		return record, false, err
	} else if found {
		record.State, record.Ended = activities.RecordReleased, released.At
	}
	record.Bytes, err = size(t.dir)
	if err == nil && r.Bytes != nil {
		record.Bytes += r.Bytes(owned.Entry)
	}
	return record, true, err
}

func size(dir string) (bytes int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
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

// Commit marks an open token.
func (r Records) Commit(_ context.Context, token string, until time.Time) error {
	t, err := r.Journal.Token(token)
	if err != nil {
		return err
	}
	if fate, err := t.Fate(); err != nil || fate != Undecided {
		return err
	}
	_, err = t.Create(committedName, &committedDoc{At: time.Now().UTC(), Until: until.UTC()})
	return err
}

// Forget leaves the fate of a released token only.
func (r Records) Forget(_ context.Context, token string) error {
	t, err := r.Journal.Token(token)
	if err != nil {
		return err
	}
	if fate, err := t.Fate(); err != nil {
		return err
	} else if fate == Undecided {
		return fmt.Errorf("journal: token %s is open and is not forgotten", token)
	}
	es, err := os.ReadDir(t.dir)
	if err != nil {
		return err
	}
	for _, e := range es {
		if e.Name() == fateName {
			continue
		}
		if err := os.RemoveAll(filepath.Join(t.dir, e.Name())); err != nil {
			return err
		}
	}
	return syncDir(t.dir)
}
