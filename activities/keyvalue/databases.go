package keyvalue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
)

// CheckNames reports what is wrong with the names of databases in a config, of which there must be
// one.
func CheckNames[D any](config string, databases map[string]D) error {
	if len(databases) == 0 {
		return fmt.Errorf("%s: name at least one database", config)
	}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(databases)) {
		if err := activities.CheckName(name); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", config, err))
		}
	}
	return errors.Join(problems...)
}

// Unknown refuses a database that the config does not name.
func Unknown[D any](config, name string, databases map[string]D) error {
	return activities.Errorf(activities.Refused, "database: %q is not one of this worker's %s: %s",
		name, config, strings.Join(slices.Sorted(maps.Keys(databases)), ", "))
}

// JoinJournals names the journals of all databases that answer, as NAME=ID. A step needs only that
// of its own database, so databases can be added later.
func JoinJournals[D any](ctx context.Context, databases map[string]D,
	ensure func(context.Context, string) (string, error)) (string, error) {
	var ids []string
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(databases)) {
		id, err := ensure(ctx, name)
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

// LocateJournal returns the database that an entry names, and the id of its journal in the entry's
// place.
func LocateJournal[D any](config string, e activities.Entry, databases map[string]D) (name, id string, err error) {
	var p struct {
		Database string `json:"database"`
	}
	if err := json.Unmarshal(e.Params, &p); err != nil {
		return "", "", activities.Errorf(activities.Refused, "parameters: %v", err)
	}
	if id := e.Place.JournalOf(p.Database); id != "" {
		return p.Database, id, nil
	}
	if _, known := databases[p.Database]; !known {
		return "", "", Unknown(config, p.Database, databases)
	}
	return "", "", activities.Errorf(activities.WrongPlace,
		"the entry names no journal of database %s: it did not answer when the task was compiled, or the task belongs to "+
			"another worker", p.Database)
}

// ForEach calls do for every database. One that does not answer is a problem, and the others are
// still asked.
func ForEach[D any](databases map[string]D, do func(name string) error) (problems []error) {
	for _, name := range slices.Sorted(maps.Keys(databases)) {
		if err := do(name); err != nil {
			problems = append(problems, err)
		}
	}
	return problems
}
