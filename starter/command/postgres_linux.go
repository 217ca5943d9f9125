package command

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/activities/postgres"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/worker/host"
)

func (p *program) postgresCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "postgres",
		GroupID: groupServe,
		Short:   "Make PostgreSQL databases ready for steps",
		Long: `Postgres makes a database of a worker's config ready for steps, or takes everything of Unwind away from it.

` + exitStatuses,
		Example: `  starter postgres prepare shop --config worker.yaml --print`,
	}
	c.AddCommand(p.postgresPrepareCommand())
	return c
}

func (p *program) postgresPrepareCommand() *cobra.Command {
	var config string
	var toPrint, remove bool
	c := &cobra.Command{
		Use:   "prepare DATABASE [SCHEMA.TABLE...]",
		Short: "Make the tables of a database ready, or take everything of Unwind away",
		Long: `Prepare makes the schema "unwind", in which undo records are kept, and on each table triggers
"!unwind ...", which capture rows in steps only. DATABASE is the name of one of postgres.databases
in the worker's config. Without tables, it prepares all that steps may change.

A step prepares what it needs by itself. Prepare does it before, at a time that you choose: for each
table it waits at most two seconds at a time for a lock, a few times, so that nobody waits longer
behind it.

--print only prints the SQL. --remove takes everything away, unless undo records are still needed.

` + exitStatuses,
		Example: `  starter postgres prepare shop --config worker.yaml --print
  starter postgres prepare shop public.account public.trial --config worker.yaml
  starter postgres prepare shop --config worker.yaml --remove`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if remove && (toPrint || len(args) > 1) {
				return usage.Errorf("--remove takes everything away: leave out --print and the tables")
			}
			return p.withPreparation(cmd.Context(), config, args[0], func(ready *postgres.Preparation) error {
				switch {
				case remove:
					return ready.Remove()
				case toPrint:
					sql, err := ready.SQL(args[1:])
					if err == nil && sql != "" {
						p.printf("%s\n", sql)
					}
					return err
				}
				prepared, err := ready.Apply(args[1:])
				for _, table := range prepared {
					p.printf("%s is ready\n", table)
				}
				if err == nil && len(prepared) == 0 {
					p.printf("everything was ready\n")
				}
				return err
			})
		},
	}
	c.Flags().StringVar(&config, "config", "", "the config `file` of the worker that uses the database")
	_ = c.MarkFlagFilename("config", "yaml", "yml")
	_ = c.MarkFlagRequired("config")
	c.Flags().BoolVar(&toPrint, "print", false, "print the SQL, and run nothing")
	c.Flags().BoolVar(&remove, "remove", false, "take the triggers and the schema away")
	return c
}

// withPreparation connects to a database of a worker's config.
func (p *program) withPreparation(ctx context.Context, file, database string,
	do func(*postgres.Preparation) error) error {
	c, err := host.ReadConfig(file)
	if err != nil {
		return usage.Wrap(err)
	}
	if c, err = c.WithEnvironment(os.LookupEnv).WithDefaults(); err != nil {
		return usage.Wrap(err)
	}
	var databases postgres.Config
	if s := host.SettingsOf[*postgres.Settings](c); s != nil {
		databases = s.Config(c.Opening())
	}
	if _, known := databases.Databases[database]; !known {
		return usage.Errorf("%q is not one of postgres.databases in %s; there are: %s", database, file,
			strings.Join(slices.Sorted(maps.Keys(databases.Databases)), ", "))
	}
	ready, err := databases.OpenPreparation(ctx, database)
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	defer ready.Close()
	return do(ready)
}
