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

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/postgres/checkpoint"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
	"github.com/seed-62bf7108/unwind/activities/recordkeeping"
)

// Config names the databases of a worker.
type Config struct {
	// Databases are the databases that steps may use, by the name that they use.
	Databases server.Databases
	// State is the folder of the worker in which the checkpoints of whole databases are kept. Without
	// it there is no postgres.checkpoint.
	State string
	// LookOnly opens the world for its Specs and for Preflight only, and makes nothing.
	LookOnly bool
}

// Database is a database, and what steps may do to it.
type Database = server.Database

var (
	oneTable  = regexp.MustCompile(`^[^.]+\.[^.]+$`)
	oneColumn = regexp.MustCompile(`^[^.]+\.[^.]+\.[^.]+$`)
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
		if err := activities.CheckName(name); err != nil {
			bad(": %w", err)
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
	made := activities.World{Name: "postgres", Journal: w.journalID,
		Actions: []activities.Action{&execAction{w}, &queryAction{w}},
		Records: recordkeeping.Records{Journals: journals{w}}}
	if c.State == "" && !c.LookOnly {
		return made, nil
	}
	whole := &checkpoint.Checkpoints{Databases: c.Databases, Rows: rowJournals{w}}
	made.Actions = append(made.Actions, whole.Actions()...)
	if c.LookOnly {
		return made, nil
	}
	var err error
	w.journal, err = journal.Open(filepath.Join(c.State, "journal"))
	whole.Journal = w.journal
	made.Records = recordkeeping.Both{InDatabases: made.Records, InFolder: whole.Records(), Folder: w.journal}
	return made, err
}

// journalID names the journals: those of all databases that answer, as NAME=ID. A step needs only
// that of its own database, so databases can be added later.
func (w *world) journalID(ctx context.Context) (string, error) {
	var ids []string
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(w.Databases)) {
		c, err := w.Databases.Connect(ctx, name, server.JournalName)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		ids = append(ids, name+"="+c.ID)
		c.Close()
	}
	if len(ids) == 0 {
		return "", errors.Join(problems...)
	}
	if w.journal != nil {
		mark, err := w.journal.Mark()
		if err != nil {
			return "", err
		}
		ids = append(ids, checkpoint.JournalName+"="+mark)
	}
	return strings.Join(ids, ","), nil
}
