package postgres

import (
	"cmp"
	"context"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/alteration"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
	"github.com/seed-62bf7108/unwind/activities/postgres/statement"
)

const defaultLimit = 100

// queryAction is postgres.query.
type queryAction struct{ *world }

func (a *queryAction) Spec() activities.Spec { return querySpec }

// Plan reads nothing: the rows may be others when the step runs.
func (a *queryAction) Plan(ctx context.Context, e activities.Entry, s activities.Step) (activities.Change, error) {
	p, one, err := readQuery(s)
	if err != nil {
		return activities.Change{}, err
	}
	c, err := a.open(ctx, e, p.Database, server.PlanName)
	if err != nil {
		return activities.Change{}, err
	}
	defer c.Close()
	return activities.Change{
		Summary: "read from " + p.Database, Diff: one.SQL, Strategy: activities.NoUndo, Undo: querySpec.Undo,
		Risk: activities.Low, Unchanged: true,
		Keys: []string{"postgres:" + p.Database}, Digest: digestOf(p.Database,
			statement.Script{Forward: []statement.Statement{one}}, &alteration.Change{}),
	}, nil
}

// Apply reads. The server refuses to write in a read-only transaction, also from a function.
func (a *queryAction) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (activities.Result, error) {
	p, one, err := readQuery(s)
	if err != nil {
		return activities.Result{}, err
	}
	if want != "" &&
		want != digestOf(p.Database, statement.Script{Forward: []statement.Statement{one}}, &alteration.Change{}) {
		return activities.Result{}, activities.Errorf(activities.StaleApproval, "the query is not the one that was approved")
	}
	c, err := a.open(ctx, e, p.Database, server.ForwardName)
	if err != nil {
		return activities.Result{}, err
	}
	defer c.Close()
	if err := c.Run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"); err != nil { //nolint:dupword // SQL
		return activities.Result{}, err
	}
	defer c.Rollback()
	limit := cmp.Or(p.Limit, defaultLimit)
	_, rows, first, err := statement.Execute(c.Connection, one, limit+1)
	if err != nil {
		return activities.Result{}, err
	}
	if err := c.CheckReads(); err != nil {
		return activities.Result{}, err
	}
	if len(rows) > limit {
		return activities.Result{},
			refused("sql: it returns more than %s; narrow it, or raise limit", activities.CountOf(limit, "row"))
	}
	result := activities.Result{Summary: activities.CountOf(len(rows), "row"),
		Outputs: map[string]any{"rows": rows, "count": len(rows), "value": first}}
	if len(rows) == 0 {
		result.Outputs["rows"] = []any{}
	}
	for _, when := range []activities.When{activities.Staged, activities.Live} {
		if err := activities.RunChecks(ctx, s.Checks, when, activities.Live,
			statement.Scene{Connection: c.Connection, Result: result}); err != nil {
			return result, err
		}
	}
	return result, nil
}

// Undo has nothing to do.
func (a *queryAction) Undo(ctx context.Context, e activities.Entry, _ activities.Decision) (activities.Undone, error) {
	return activities.Undone{Outcome: activities.Nothing, Observed: "the step only read"}, a.checkPlace(ctx, e)
}

// Observe sees nothing that a step which only reads could have changed.
func (a *queryAction) Observe(ctx context.Context, e activities.Entry) (activities.Observation, error) {
	return activities.Observation{State: activities.AsBefore, Detail: "the step only reads"}, a.checkPlace(ctx, e)
}

// Release has nothing to drop.
func (a *queryAction) Release(ctx context.Context, e activities.Entry) error {
	return a.checkPlace(ctx, e)
}

func (a *queryAction) checkPlace(ctx context.Context, e activities.Entry) error {
	c, err := a.openEntry(ctx, e, server.LookName)
	if err == nil {
		c.Close()
	}
	return err
}

func readQuery(s activities.Step) (queryParams, statement.Statement, error) {
	p, err := decode[queryParams](s.With)
	if err != nil {
		return p, statement.Statement{}, err
	}
	texts, words := statement.Split(p.SQL)
	if len(texts) != 1 {
		return p, statement.Statement{}, refused("sql: give one statement; it has %d", len(texts))
	}
	if p.Limit < 0 {
		return p, statement.Statement{}, refused("limit: %d must not be negative", p.Limit)
	}
	if first := strings.Join(words[0][:min(1, len(words[0]))], ""); first != "show" && first != "explain" {
		err = statement.Check("sql", words[0])
	}
	return p, statement.Statement{SQL: texts[0], Params: p.Params, Where: "sql"}, err
}
