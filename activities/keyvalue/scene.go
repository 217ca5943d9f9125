package keyvalue

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
)

// Scene shows checks the outputs of a step, and its database once it has been changed.
type Scene struct {
	// Kind is what the database is one of, such as Redis; Name is that of the database.
	Kind, Name string
	// Sensitive are the keys whose content is not shown, as patterns.
	Sensitive []string
	Result    activities.Result
	// Read answers a query, and says which keys it has read.
	Read func(ctx context.Context, text string) (value any, keys []string, err error)
}

// CheckPlaces refuses checks that would have to see the change before it is made.
func CheckPlaces(kind string, checks []activities.Check) error {
	for i, c := range checks {
		if c.When == activities.Staged {
			return activities.Errorf(activities.Refused,
				"check[%d]: when: staged; a step on %s changes its keys all at once: use live", i, kind)
		}
	}
	return nil
}

// Target is the database.
func (s Scene) Target() string { return s.Name }

// ReadFile returns the outputs of the step.
func (s Scene) ReadFile(_ context.Context, name string) ([]byte, error) {
	if name != s.Name {
		return nil, activities.Errorf(activities.Refused,
			"file %s: a check of a step on %s sees only the outputs of the step, as the file %s; write a query check for "+
				"all else",
			name, s.Kind, s.Name)
	}
	return json.Marshal(s.Result.Outputs)
}

// Run refuses.
func (s Scene) Run(context.Context, []string) ([]byte, error) {
	return nil, fmt.Errorf("no command can run in %s; use a query check, or a step of another world", s.Kind)
}

// Query reads the database.
func (s Scene) Query(ctx context.Context, text string) (any, error) {
	value, keys, err := s.Read(ctx, text)
	if err == nil && slices.ContainsFunc(keys, func(key string) bool { return MatchesAny(s.Sensitive, key) }) {
		value = activities.Sensitive{Value: value}
	}
	return value, err
}
