package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/keyvalue"
	"github.com/seed-62bf7108/unwind/activities/recordkeeping"
)

// configKey is where a worker's config names the databases.
const configKey = "redis.databases"

// Config names the databases of a worker.
type Config struct {
	// Databases are the databases that steps may use, by the name that they use.
	Databases map[string]Database
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
type world struct{ Config }

// New makes the world "redis". It connects to nothing.
func New(c Config) (activities.World, error) {
	if err := c.Validate(); err != nil {
		return activities.World{}, err
	}
	silenceClient()
	w := &world{c}
	made := activities.World{Name: "redis", Journal: w.journalID, Actions: []activities.Action{&execAction{w}}}
	if c.LookOnly {
		made.Journal = func(context.Context) (string, error) { return "", nil }
	} else {
		made.Records = recordkeeping.Records{Journals: journals{w}}
	}
	return made, nil
}

// journalID names the journals of all databases that answer.
func (w *world) journalID(ctx context.Context) (string, error) {
	return keyvalue.JoinJournals(ctx, w.Databases, w.ensureJournal)
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
