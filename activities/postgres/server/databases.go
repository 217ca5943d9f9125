package server

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
)

// Database is a database, and what steps may do to it.
type Database struct {
	// DSN returns the connection string. It is called for each connection, so that a rotated password
	// takes effect.
	DSN func() (string, error)
	// Allow are the tables whose rows steps may change, as patterns with * such as public.*. Defaults
	// to all.
	Allow []string
	// Deny are tables that steps may neither read nor change. It outranks Allow. Defaults to none.
	Deny []string
	// Sensitive are columns whose values are not shown, as SCHEMA.TABLE.COLUMN with *. Defaults to
	// none.
	Sensitive []string
}

// Databases are those that steps may use, by the name that they use.
type Databases map[string]Database

// Find returns the database with this name, and refuses a name that none has.
func (all Databases) Find(name string) (Database, error) {
	d, known := all[name]
	if !known {
		return d, activities.Errorf(activities.Refused, "database: %q is not one of this worker's postgres.databases: %s",
			name, strings.Join(all.names(), ", "))
	}
	return d, nil
}

func (all Databases) names() []string { return slices.Sorted(maps.Keys(all)) }

// Each calls do for every database. One that does not answer is a problem, and the others are still
// asked.
func (all Databases) Each(ctx context.Context, application string, do func(*Connection) error) (problems []error) {
	for _, name := range all.names() {
		if err := all.With(ctx, name, application, do); err != nil {
			problems = append(problems, err)
		}
	}
	return problems
}

// With connects to a database for one look at it.
func (all Databases) With(ctx context.Context, name, application string, look func(*Connection) error) error {
	c, err := all.Connect(ctx, name, application)
	if err != nil {
		return err
	}
	defer c.Close()
	return look(c)
}

// Touch names a database, which a step changes, by its server and number: the config may call one
// by two names.
func (all Databases) Touch(ctx context.Context, name string) ([]activities.Touch, error) {
	return all.touchAs(ctx, name, activities.Touch{})
}

// TouchToRead is Touch for a step that only reads.
func (all Databases) TouchToRead(ctx context.Context, name string) ([]activities.Touch, error) {
	return all.touchAs(ctx, name, activities.Touch{Reads: true})
}

func (all Databases) touchAs(ctx context.Context, name string, as activities.Touch) (touched []activities.Touch,
	err error) {
	if len(all) < 2 { // its name alone tells it
		return nil, nil
	}
	err = all.With(ctx, name, PreflightName, func(c *Connection) error {
		as.Name = "postgres:" + c.ID
		touched = []activities.Touch{as}
		return nil
	})
	return touched, err
}
