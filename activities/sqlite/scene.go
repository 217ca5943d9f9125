package sqlite

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/childenv"
	"github.com/seed-62bf7108/unwind/internal/shortlived"
)

// placeChecks says of each check when it runs: a query in the transaction of the step, by its
// process; all others once it has committed.
func placeChecks(checks []activities.Check) ([]activities.Check, error) {
	checks = slices.Clone(checks)
	for i := range checks {
		c := &checks[i]
		switch {
		case c.Query != nil && c.When == activities.Live:
			return nil, activities.Errorf(activities.Refused,
				"check[%d]: when: live, or within; a query is checked in the transaction of the step, leave it out or use a "+
					"step of sqlite.query", i)
		case c.Query != nil:
			c.When = activities.Staged
		case c.When == activities.Staged:
			return nil, activities.Errorf(activities.Refused,
				"check[%d]: when: staged; of a database only a query can be checked before the commit, use live", i)
		}
	}
	return checks, nil
}

// runQueries runs the query checks on what the connection sees.
func (c *call) runQueries(ctx context.Context, d *database) error {
	err := activities.RunChecks(ctx, c.Step.Checks, activities.Staged, activities.Live,
		stagedScene{scene{c.world, d.path}, d})
	if failed, ok := errors.AsType[*activities.Error](err); ok && c.Private && failed.Type == activities.CheckFailed {
		return activities.Errorf(activities.CheckFailed,
			"a query check does not hold; its value is not shown, because the parameters of the step hold a secret")
	}
	return err
}

// stagedScene is the database in the transaction of the step.
type stagedScene struct {
	scene

	database *database
}

// Query reads. Nothing else is allowed to the statement.
func (s stagedScene) Query(_ context.Context, sql string) (any, error) {
	rows, first, err := s.database.read(queryParams{SQL: sql})
	if err != nil {
		return nil, explain(s.database.path, err)
	}
	return activities.OnlyValue(rows, first)
}

// scene is what a step's checks see: the database's file.
type scene struct {
	*world

	database string
}

func (s scene) Target() string { return s.database }

func (s scene) ReadFile(_ context.Context, path string) ([]byte, error) {
	at, err := s.locate(path)
	if errors.Is(err, errNoFile) {
		return nil, os.ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	return os.ReadFile(at)
}

// Run runs a program on the worker's host, in the minimal environment.
func (s scene) Run(ctx context.Context, argv []string) ([]byte, error) {
	args := make([]string, len(argv))
	for i, arg := range argv {
		args[i] = strings.ReplaceAll(arg, "{path}", s.database)
	}
	return shortlived.Output(ctx, "/", childenv.Minimal(), args...)
}
