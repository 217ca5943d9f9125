package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
)

// Config names the databases of a worker.
type Config struct {
	// Databases are the databases that steps may use, by the name that they use.
	Databases map[string]Database
	// LookOnly opens the world for its Specs and for Preflight only, and makes nothing.
	LookOnly bool
}

// Database is a logical database of a server, and what steps may do to it.
type Database struct {
	// URL returns its address, redis://USER:PASSWORD@HOST:PORT/NUMBER. It is called for each connection, so that a rotated password
	// takes effect.
	URL func() (string, error)
	// Allow are the keys that steps may change, as patterns with * such as session:*. Defaults to all.
	Allow []string
	// Deny are keys that steps may neither read nor change. It outranks Allow. Defaults to none.
	Deny []string
	// Sensitive are keys whose content is not shown. Defaults to none.
	Sensitive []string
}

var namePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,62}$`)

// Validate reports every invalid field.
func (c Config) Validate() error {
	var problems []error
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("redis.databases"+format, args...))
	}
	if len(c.Databases) == 0 {
		bad(": name at least one database")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Databases)) {
		d := c.Databases[name]
		if !namePattern.MatchString(name) {
			bad(": %q must be a name of letters, digits, dashes and underscores, at most 63", name)
		}
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
		made.Records = records{w}
	}
	return made, nil
}

// journalID names the journals: those of all databases that answer, as NAME=ID. A step needs only that of its own database, so
// databases can be added later.
func (w *world) journalID(ctx context.Context) (string, error) {
	var ids []string
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(w.Databases)) {
		id, err := w.ensureJournal(ctx, name)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		ids = append(ids, name+"="+id)
	}
	if len(ids) == 0 {
		return "", errors.Join(problems...)
	}
	return strings.Join(ids, ","), nil
}

// open connects for an entry.
func (w *world) open(ctx context.Context, e activities.Entry) (*connection, error) {
	p, err := activities.DecodeParams[undoParams](e.Params)
	if err != nil {
		return nil, err
	}
	recorded := ""
	for each := range strings.SplitSeq(e.Place.Journal, ",") {
		if name, id, _ := strings.Cut(each, "="); name == p.Database {
			recorded = id
		}
	}
	if recorded == "" {
		if _, known := w.Databases[p.Database]; !known {
			return nil, w.unknownDatabase(p.Database)
		}
		return nil, activities.Errorf(activities.WrongPlace, "the entry names no journal of database %s: it did not answer when the task was compiled, or the task belongs to another worker", p.Database)
	}
	c, err := w.connect(ctx, p.Database)
	if err != nil {
		return nil, err
	}
	c.id = recorded
	return c, nil
}

func (w *world) unknownDatabase(name string) error {
	return activities.Errorf(activities.Refused, "database: %q is not one of this worker's redis.databases: %s",
		name, strings.Join(slices.Sorted(maps.Keys(w.Databases)), ", "))
}

// matchesAny reports whether one of the patterns matches a key.
func matchesAny(patterns []string, key string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		quoted := strings.ReplaceAll(regexp.QuoteMeta(p), `\*`, ".*")
		ok, _ := regexp.MatchString("(?s)^"+quoted+"$", key)
		return ok
	})
}
