package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// Config names the databases of a worker.
type Config struct {
	// Databases are the databases that steps may use, by the name that they use.
	Databases map[string]Database
	// State is the folder of the worker in which the checkpoints of whole databases are kept. Without it there is no postgres.checkpoint.
	State string
	// LookOnly opens the world for its Specs and for Preflight only, and makes nothing.
	LookOnly bool
}

// Database is a database, and what steps may do to it.
type Database struct {
	// DSN returns the connection string. It is called for each connection, so that a rotated password takes effect.
	DSN func() (string, error)
	// Allow are the tables whose rows steps may change, as patterns with * such as public.*. Defaults to all.
	Allow []string
	// Deny are tables that steps may neither read nor change. It outranks Allow. Defaults to none.
	Deny []string
	// Sensitive are columns whose values are not shown, as SCHEMA.TABLE.COLUMN with *. Defaults to none.
	Sensitive []string
}

var (
	namePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,62}$`)
	oneTable    = regexp.MustCompile(`^[^.]+\.[^.]+$`)
	oneColumn   = regexp.MustCompile(`^[^.]+\.[^.]+\.[^.]+$`)
)

// Validate reports every invalid field.
func (c Config) Validate() error {
	var problems []error
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("postgres.databases"+format, args...))
	}
	if len(c.Databases) == 0 {
		bad(": name at least one database")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Databases)) {
		d := c.Databases[name]
		if !namePattern.MatchString(name) {
			bad(": %q must be a name of letters, digits, dashes and underscores, at most 63", name)
		}
		if d.DSN == nil {
			bad(".%s.dsn: name the secret that holds the connection string", name)
		}
		for _, p := range append(slices.Clone(d.Allow), d.Deny...) {
			if !oneTable.MatchString(p) {
				bad(".%s: %q must be SCHEMA.TABLE, where * stands for any text", name, p)
			}
		}
		for _, p := range d.Sensitive {
			if !oneColumn.MatchString(p) {
				bad(".%s.sensitive: %q must be SCHEMA.TABLE.COLUMN, where * stands for any text", name, p)
			}
		}
	}
	return errors.Join(problems...)
}

// world is what the actions share.
type world struct {
	Config

	journal *journal.Journal // of checkpoints; the other records are in the databases
}

// New makes the world "postgres". It connects to nothing.
func New(c Config) (activities.World, error) {
	if err := c.Validate(); err != nil {
		return activities.World{}, err
	}
	w := &world{Config: c}
	actions := []activities.Action{&execAction{w}, &queryAction{w}}
	if c.State == "" && !c.LookOnly {
		return activities.World{Name: "postgres", Journal: w.journalID, Records: records{w}, Actions: actions}, nil
	}
	actions = append(actions, &checkpointAction{w})
	if c.LookOnly {
		return activities.World{Name: "postgres", Journal: w.journalID, Records: records{w}, Actions: actions}, nil
	}
	var err error
	w.journal, err = journal.Open(filepath.Join(c.State, "journal"))
	return activities.World{
		Name: "postgres", Journal: w.journalID, Actions: actions,
		Records: bothRecords{records{w}, journal.Records{Journal: w.journal}, w.journal},
	}, err
}

// checkpoints is what stands for the name of a database before the mark of the journal of checkpoints. No database has this name.
const checkpoints = "*"

// journalID names the journals: those of all databases that answer, as NAME=ID. A step needs only that of its own database, so
// databases can be added later.
func (w *world) journalID(ctx context.Context) (string, error) {
	var ids []string
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(w.Databases)) {
		c, err := w.connect(ctx, name, "unwind")
		if err != nil {
			problems = append(problems, err)
			continue
		}
		ids = append(ids, name+"="+c.id)
		c.close()
	}
	if len(ids) == 0 {
		return "", errors.Join(problems...)
	}
	if w.journal != nil {
		mark, err := w.journal.Mark()
		if err != nil {
			return "", err
		}
		ids = append(ids, checkpoints+"="+mark)
	}
	return strings.Join(ids, ","), nil
}

// open connects for an entry. It returns WrongPlace where the entry's record is in another database than the one that has the name now.
func (w *world) open(ctx context.Context, e activities.Entry, database, purpose string) (*connection, error) {
	recorded := recordedJournal(e, database)
	if recorded == "" {
		if _, known := w.Databases[database]; !known {
			return nil, w.unknownDatabase(database)
		}
		return nil, activities.Errorf(activities.WrongPlace, "the entry names no journal of database %s: it did not answer when the task was compiled, or the task belongs to another worker", database)
	}
	c, err := w.connect(ctx, database, purpose+" "+e.Token)
	if err != nil {
		return nil, err
	}
	if c.id == recorded {
		return c, nil
	}
	continues, err := c.continues(recorded)
	if err != nil || !continues {
		c.close()
		if err != nil {
			return nil, err
		}
		return nil, activities.Errorf(activities.WrongPlace, "the record is in database %s; what this worker's config calls %s is database %s", recorded, database, c.id)
	}
	return c, nil
}

// recordedJournal is the journal that an entry names for a database, or for checkpoints; empty if it names none.
func recordedJournal(e activities.Entry, of string) (id string) {
	for each := range strings.SplitSeq(e.Place.Journal, ",") {
		if name, recorded, _ := strings.Cut(each, "="); name == of {
			id = recorded
		}
	}
	return id
}

func (w *world) unknownDatabase(name string) error {
	return activities.Errorf(activities.Refused, "database: %q is not one of this worker's postgres.databases: %s",
		name, strings.Join(slices.Sorted(maps.Keys(w.Databases)), ", "))
}

// matchesAny reports whether one of the patterns matches a dotted name.
func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		quoted := strings.ReplaceAll(regexp.QuoteMeta(p), `\*`, ".*")
		ok, _ := regexp.MatchString("^"+quoted+"$", name)
		return ok
	})
}

func quote(parts ...string) string { return pgx.Identifier(parts).Sanitize() }
