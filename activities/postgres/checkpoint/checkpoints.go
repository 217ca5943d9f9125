package checkpoint

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/postgres/drift"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// JournalName stands for the name of a database before the mark of the journal of checkpoints. No
// database has this name.
const JournalName = "*"

// Checkpoints are what the actions of this package share.
type Checkpoints struct {
	Databases server.Databases
	// Journal is the folder of checkpoints; nil in a world that only looks.
	Journal *journal.Journal
	Rows    RowJournals

	// served are the major versions of servers for which the programs were found to do.
	served sync.Map
}

// RowJournals are the journals in the databases themselves, of what steps do to rows.
type RowJournals interface {
	// Open connects to the database of an entry. It returns WrongPlace where another database has the
	// name now.
	Open(ctx context.Context, e activities.Entry, database, purpose string) (*server.Connection, error)
	// Continues reports whether a database has taken the place of the one with this id.
	Continues(c *server.Connection, id string) (bool, error)
	// TakeOver makes a restored database go on with the journal of the one that it replaces.
	TakeOver(replaced, restored *server.Connection) error
}

// Actions are those of whole databases.
func (s *Checkpoints) Actions() []activities.Action {
	return []activities.Action{&take{s}, &restore{s}, &verify{s}, &compare{verify{s}}}
}

// token opens the token of an entry, if its record is in this journal.
func (s *Checkpoints) token(e activities.Entry) (*journal.Token, error) {
	mark := e.Place.JournalOf(JournalName)
	if mark == "" {
		return nil, activities.Errorf(activities.WrongPlace, "the entry names no journal of checkpoints")
	}
	if err := s.Journal.Check(mark); err != nil {
		return nil, err
	}
	return s.Journal.Token(e.Token)
}

// openWhole connects to the database of an entry.
func (s *Checkpoints) openWhole(ctx context.Context, e activities.Entry, purpose string) (*server.Connection, error) {
	var p struct {
		Database string `json:"database"`
	}
	if err := json.Unmarshal(e.Params, &p); err != nil {
		return nil, activities.Errorf(activities.Refused, "parameters: %v", err)
	}
	return s.Rows.Open(ctx, e, p.Database, purpose)
}

// connectMaintenance connects to the database from which others are made, renamed and dropped.
func (s *Checkpoints) connectMaintenance(ctx context.Context, database, application string) (*server.Connection,
	error) {
	m, err := s.Databases.ConnectTo(ctx, database, application, maintenance)
	if err != nil {
		return nil, err
	}
	if err := m.Run("SET statement_timeout = 0"); err != nil { // to make a database may take long
		m.Close()
		return nil, err
	}
	return m, nil
}

// undo calls do where nobody has ended the undo of a token before, with a connection to the
// database, and keeps the outcome.
func (s *Checkpoints) undo(ctx context.Context, e activities.Entry, pass func(string),
	do func(*server.Connection, *journal.Token) (activities.Undone, error)) (activities.Undone, error) {
	token, err := s.token(e)
	if err != nil {
		return activities.Undone{}, err
	}
	c, err := s.openWhole(ctx, e, server.UndoName)
	if err != nil {
		return activities.Undone{}, err
	}
	defer c.Close()
	pass("undo-begun")
	outcome, isOver, err := token.BeginUndo()
	if isOver || err != nil {
		return outcome, err
	}
	pass("fenced")
	outcome, err = do(c, token)
	if err != nil {
		var other activities.Undone
		if found, _ := token.Read(journal.Outcome, &other); found { // another attempt has ended what this one used
			return other, nil
		}
		if drifted, ok := errors.AsType[drift.Error](err); ok {
			return drifted.Undone(), nil
		}
		return activities.Undone{}, err
	}
	pass("restored")
	if _, err := token.Create(journal.Outcome, &outcome); err != nil {
		return activities.Undone{}, err
	}
	pass("outcome")
	return outcome, nil
}

// namePrefix begins the names of checkpoints, which end with the token of the step that has taken
// them.
const namePrefix = "cp-"

// isName reports whether a text is like the name of a checkpoint.
func isName(name string) bool {
	token, is := strings.CutPrefix(name, namePrefix)
	_, err := hex.DecodeString(token)
	return is && token != "" && err == nil
}

func refuseName(name string) error {
	return activities.Errorf(activities.Refused,
		"checkpoint: %q is no name of a checkpoint; take the output checkpoint of a step of postgres.checkpoint", name)
}

// find returns a checkpoint that a database can be restored from.
func (s *Checkpoints) find(c *server.Connection, name, application string) (image, error) {
	if !isName(name) {
		return nil, refuseName(name)
	}
	token, err := s.Journal.Token(strings.TrimPrefix(name, namePrefix))
	if err != nil {
		return nil, refuseName(name)
	}
	fate, err := token.Fate()
	if err != nil {
		return nil, err
	}
	_, isKept, err := token.Keeper()
	if err != nil {
		return nil, err
	}
	taken, found, err := readTaken(token)
	if err != nil {
		return nil, err
	}
	if !found || fate != journal.Undecided && !isKept {
		return nil, activities.Errorf(activities.Refused,
			"checkpoint: there is no %s on this worker: it was never taken here, was undone, or its record was released", name)
	}
	if err := s.checkSame(c, name, taken); err != nil {
		return nil, err
	}
	return taken.image(c, token, application)
}

// checkSame refuses a checkpoint of another database, or of another version of its server.
func (s *Checkpoints) checkSame(c *server.Connection, name string, taken checkpoint) error {
	same := taken.ID == c.ID
	if !same {
		var err error
		if same, err = s.Rows.Continues(c, taken.ID); err != nil {
			return err
		}
	}
	if !same {
		return activities.Errorf(activities.Refused,
			"checkpoint: %s is of the database %s (%s), and %s is %s: a checkpoint goes back into its own database only",
			name, taken.Of, taken.ID, c.Name, c.ID)
	}
	version, err := majorVersion(c)
	if err == nil && version != taken.Version {
		err = activities.Errorf(activities.Refused,
			"checkpoint: %s was taken from PostgreSQL %d, and the server is PostgreSQL %d now; take another one", name,
			taken.Version, version)
	}
	return err
}

// checkPossible refuses where a database could not be put back, and returns its size.
func (s *Checkpoints) checkPossible(c *server.Connection) (size int64, err error) {
	if err := errors.Join(s.checkTools(c), checkRights(c)); err != nil {
		return 0, err
	}
	return size, c.Scan("SELECT pg_database_size(current_database())", nil, &size)
}

// checkDisk refuses where a file of this size has no room on the worker.
func (s *Checkpoints) checkDisk(c *server.Connection, size int64) error {
	if s.Journal == nil { // it only looks
		return nil
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(s.Journal.Dir(), &disk); err != nil {
		return err
	}
	if free := int64(disk.Bavail) * disk.Bsize; free < size { //nolint:gosec // a disk has fewer bytes
		return activities.Errorf(activities.Refused,
			"database %s: it takes %s, and the disk of %s has %d free; make room, or move the worker's state to a larger disk",
			c.Name, activities.CountOf(size, "byte"), s.Journal.Dir(), free)
	}
	return nil
}

// countSessions is how many sessions others have in the database. The server hides what kind those
// of some roles are.
func countSessions(c *server.Connection) (n int, err error) {
	return n, c.Scan(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
		AND coalesce(backend_type, 'client backend') = 'client backend'`, nil, &n)
}

// describeSessions says how many sessions a step ends.
func describeSessions(n int) string {
	return fmt.Sprintf("it ends all sessions of the database, %s as of now; others may begin at once",
		activities.CountOf(n, "session"))
}
