package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/keyvalue"
	"github.com/seed-62bf7108/unwind/activities/recordkeeping"
)

// configKey is where a worker's config names the databases.
const configKey = "redis.databases"

// Config names the databases of a worker.
type Config struct {
	// Databases are the databases that steps may use, by the name that they use.
	Databases map[string]Database
	// State is the folder of the worker in which checkpoints of whole databases are kept. Without it
	// there is no redis.checkpoint.
	State string
	// LookOnly opens the world for its Specs and for Preflight only, and makes nothing.
	LookOnly bool
}

// Database is a logical database of a server, and what steps may do to it.
type Database struct {
	// URL returns its address, redis://USER:PASSWORD@HOST:PORT/NUMBER. It is called for each
	// connection, so that a rotated password takes effect.
	URL func() (string, error)
	// Allow are the keys that steps may change, as patterns with * such as session:*. Defaults to all.
	Allow []string
	// Deny are keys that steps may neither read nor change. It outranks Allow. Defaults to none.
	Deny []string
	// Sensitive are keys whose content is not shown. Defaults to none.
	Sensitive []string
}

// Validate reports every invalid field.
func (c Config) Validate() error {
	problems := []error{keyvalue.CheckNames(configKey, c.Databases)}
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf(configKey+format, args...))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Databases)) {
		d := c.Databases[name]
		if d.URL == nil {
			bad(".%s.url: name the secret that holds the address", name)
		}
		if slices.Contains(slices.Concat(d.Allow, d.Deny, d.Sensitive), "") {
			bad(".%s: a pattern of keys is empty; write one such as session:*, where * stands for any text", name)
		}
	}
	return errors.Join(problems...)
}

// world is what the actions share.
type world struct {
	Config

	folder *journal.Journal // of what is done to whole databases; the other records are in the databases
}

// New makes the world "redis". It connects to nothing.
func New(c Config) (activities.World, error) {
	if err := c.Validate(); err != nil {
		return activities.World{}, err
	}
	silenceClient()
	w := &world{Config: c}
	made := activities.World{Name: "redis", Journal: w.journalID, Actions: []activities.Action{&execAction{w}}}
	if c.State != "" || c.LookOnly {
		made.Actions = append(made.Actions, &keepAction{w}, &restoreAction{w}, &verifyAction{w}, &compareAction{w})
	}
	if c.LookOnly {
		made.Journal = func(context.Context) (string, error) { return "", nil }
		return made, nil
	}
	made.Records = recordkeeping.Records{Journals: journals{w}}
	if c.State == "" {
		return made, nil
	}
	if err := os.MkdirAll(filepath.Join(c.State, checkpoints), 0o700); err != nil {
		return made, err
	}
	var err error
	if w.folder, err = journal.Open(filepath.Join(c.State, "journal")); err != nil {
		return made, err
	}
	made.Records = recordkeeping.Both{InDatabases: made.Records, Folder: w.folder,
		InFolder: journal.Records{Journal: w.folder, Bytes: w.keptBytes}}
	return made, nil
}

// journalID names the journals of all databases that answer, and that in the worker's folder.
func (w *world) journalID(ctx context.Context) (string, error) {
	ids, err := keyvalue.JoinJournals(ctx, w.Databases, w.ensureJournal)
	if err != nil || w.folder == nil {
		return ids, err
	}
	mark, err := w.folder.Mark()
	return ids + "," + folderName + "=" + mark, err
}

// open connects for an entry.
func (w *world) open(ctx context.Context, e activities.Entry) (*connection, error) {
	name, id, err := keyvalue.LocateJournal(configKey, e, w.Databases)
	if err != nil {
		return nil, err
	}
	c, err := w.connect(ctx, name)
	if err != nil {
		return nil, err
	}
	c.id = id
	return c, nil
}
