package shop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/examples/found"
)

// The names of what is not a file.
const (
	gitThing    = "git"
	columnsFact = "columns"
)

// look observes all parts, with code that shares nothing with what keeps them: the files, what git
// says of the repository, and the rows of each table.
func (s *Stage) look(ctx context.Context) (found.Snapshot, error) {
	all := found.Snapshot{}
	for _, part := range []string{codeFolder, uploadsFolder} {
		files, err := found.Files(part+"/", s.app.path(part), ".git")
		if err != nil {
			return nil, err
		}
		maps.Copy(all, files)
	}
	repository := found.Facts{}
	for name, args := range map[string][]string{"commit": {"rev-parse", "HEAD"}, "status": {"status", "--porcelain"},
		"branches": {"branch", "--list", "--verbose"}, "log": {"log", "--format=%s"}} {
		said, err := s.git(ctx, args...)
		if err != nil {
			return nil, err
		}
		repository[name] = said
	}
	all[gitThing] = repository
	return all, s.lookAtRows(ctx, all)
}

func (s *Stage) lookAtRows(ctx context.Context, all found.Snapshot) (err error) {
	conn, err := pgx.Connect(ctx, s.database.Admin(databaseName))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	tables, err := collect(ctx, conn, `SELECT quote_ident(table_name) FROM information_schema.tables
		WHERE table_schema = 'public'`)
	if err != nil {
		return err
	}
	for _, table := range tables {
		columns, err := collect(ctx, conn, `SELECT concat_ws(' ', column_name, data_type, is_nullable) FROM
			information_schema.columns WHERE table_schema = 'public' AND quote_ident(table_name) = $1 ORDER BY ordinal_position`,
			table)
		if err != nil {
			return err
		}
		all["table "+table] = found.Facts{columnsFact: strings.Join(columns, ", ")}
		rows, err := collect(ctx, conn, fmt.Sprintf("SELECT t::text FROM public.%s t", table))
		if err != nil {
			return err
		}
		for _, row := range rows {
			all["row "+table+row] = found.Facts{}
		}
	}
	return nil
}

func collect(ctx context.Context, conn *pgx.Conn, sql string, args ...any) ([]string, error) {
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// describe says what was looked at.
func describe(all found.Snapshot) string {
	rows, files := 0, 0
	for thing, facts := range all {
		switch {
		case strings.HasPrefix(thing, "row "):
			rows++
		case facts["kind"] == "file":
			files++
		}
	}
	return fmt.Sprintf("%s with bytes, mode, owner and time, %s with all columns, commit %.7s, branches, log and status",
		activities.CountOf(files, "file"), activities.CountOf(rows, "row"), all[gitThing]["commit"])
}

// checkSame is an error that lists how now differs.
func checkSame(what string, before, now found.Snapshot) error {
	changes := before.Changes(now)
	if len(changes) == 0 {
		return nil
	}
	lines := []string{"the shop is not as " + what + ":"}
	for _, c := range changes {
		lines = append(lines, c.String())
	}
	return errors.New(strings.Join(lines, "\n  "))
}
