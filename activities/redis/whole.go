package redis

import (
	"context"
	"errors"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/keyvalue"
	"github.com/seed-62bf7108/unwind/activities/recordkeeping"
)

// The actions on a whole database have their records in a folder of the worker, which the database
// cannot lose: a checkpoint is what one wants when it has lost all else. Whether a step has changed
// the database is in the database, in one field of the journal there.

// folderName stands for the name of a database before the mark of the journal that is a folder. No
// database has this name.
const folderName = "*"

// wholeState is what the journal in a database says of a step that replaces all keys.
type wholeState string

const (
	closed   wholeState = "closed" // undone before it acted: it never will
	released wholeState = "released"

	appliedPrefix = "applied "
	undonePrefix  = "undone "
)

// appliedBy is the state in which an attempt leaves its step.
func appliedBy(attempt string) wholeState { return wholeState(appliedPrefix + attempt) }

// takenBack is the state of a step once what an attempt has done is undone.
func takenBack(attempt string) wholeState { return wholeState(undonePrefix + attempt) }

// applied returns the attempt that has acted, and undone the one that has been undone.
func (s wholeState) applied() (attempt string, is bool) {
	return strings.CutPrefix(string(s), appliedPrefix)
}
func (s wholeState) undone() (attempt string, is bool) {
	return strings.CutPrefix(string(s), undonePrefix)
}

// errOtherState says that another call has decided what becomes of a step.
var errOtherState = errors.New("another call has come first")

// openToken opens the token of an entry, if its record is in this worker's folder.
func (w *world) openToken(e activities.Entry) (*journal.Token, error) {
	mark := e.Place.JournalOf(folderName)
	if mark == "" {
		return nil, activities.Errorf(activities.WrongPlace, "the entry names no journal of checkpoints")
	}
	if err := w.folder.Check(mark); err != nil {
		return nil, err
	}
	return w.folder.Token(e.Token)
}

// readState reads what the journal in the database says of a step.
func (c *connection) readState(token string) (wholeState, error) {
	values, err := c.client.HMGet(c.ctx, journalKey, "id", token+":whole").Result()
	if err != nil {
		return "", c.explain(err)
	}
	if is := text(values[0]); is != c.id {
		return "", c.explainJournal(is)
	}
	return wholeState(text(values[1])), nil
}

// close makes sure that a step does not act any more, and returns its state. One that has acted
// stays as it is, unless it is released.
func (c *connection) close(token string, to wholeState) (wholeState, error) {
	always := ""
	if to == released {
		always = "1"
	}
	a, err := c.run(closeScript, nil, c.id, token, string(to), always)
	return wholeState(a.text("state")), err
}

// adopt lets the present journal of the database go on with a step that has acted, and returns the
// state of the step: somebody has deleted all keys, and the journal with them.
func (c *connection) adopt(token string, state wholeState) (wholeState, error) {
	a, err := c.run(adoptScript, nil, recordkeeping.NewJournalID(), token, string(state))
	if err != nil {
		return "", err
	}
	c.id = a.text("id")
	return wholeState(a.text("state")), nil
}

// checkWhole refuses a database of which the config keeps some keys from steps.
func (w *world) checkWhole(name string) error {
	d, known := w.Databases[name]
	switch {
	case !known:
		return keyvalue.Unknown(configKey, name, w.Databases)
	case len(d.Allow) > 0 || len(d.Deny) > 0:
		return refused("database %s: the worker's config limits the keys that steps may use (%s.%s.allow, deny), and a "+
			"checkpoint has all keys; name the database once more in the config, without these limits", name, configKey, name)
	}
	return nil
}

// openWhole connects for a forward on a whole database.
func (w *world) openWhole(ctx context.Context, e activities.Entry, database string) (*connection, error) {
	if err := w.checkWhole(database); err != nil {
		return nil, err
	}
	return w.open(ctx, e)
}

// beginWhole takes the token of a step on a whole database, which must be open, and connects. The
// caller ends both.
func (w *world) beginWhole(ctx context.Context, e activities.Entry, s activities.Step,
	database string) (c *connection, t *journal.Token, end func(), err error) {
	if err := keyvalue.CheckPlaces(kind, s.Checks); err != nil {
		return nil, nil, nil, err
	}
	if t, err = w.openToken(e); err != nil {
		return nil, nil, nil, err
	}
	unlock, err := t.Lock(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	if err = t.CheckOpen(); err == nil {
		c, err = w.openWhole(ctx, e, database)
	}
	if err != nil {
		unlock()
		return nil, nil, nil, err
	}
	return c, t, func() { c.end(); unlock() }, nil
}

// preflightWhole finds a database that cannot be used as a whole, and names that are none of
// checkpoints.
func (w *world) preflightWhole(ctx context.Context, o activities.Outlook, p compareParams) error {
	problems := []error{activities.CheckPrograms(ctx, o.Checks), keyvalue.CheckPlaces(kind, o.Checks)}
	for param, name := range map[string]string{"checkpoint": p.Checkpoint, "with": p.With} {
		if name != "" && !o.Awaits(param) {
			_, err := tokenOf(name)
			problems = append(problems, err)
		}
	}
	if !o.Awaits("database") {
		problems = append(problems, w.preflightDatabase(ctx, p.Database))
	}
	return errors.Join(problems...)
}

func (w *world) preflightDatabase(ctx context.Context, name string) error {
	if err := w.checkWhole(name); err != nil {
		return err
	}
	c, err := w.connect(ctx, name)
	if err == nil {
		c.end()
	}
	return err
}
