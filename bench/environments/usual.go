package environments

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities/postgres/postgrestest"
)

// usual is a checkpoint by the usual commands, one after the other; where it is kept.
type usual struct {
	*parts
	image string
}

func (u *usual) copyOfVolume() string { return filepath.Join(u.dir, "usual-volume") }
func (u *usual) dump() string         { return filepath.Join(u.dir, "usual.dump") }

// checkpoint is git stash, docker commit, cp -a and pg_dump.
func (u *usual) checkpoint(ctx context.Context) error {
	if err := u.git(ctx, "stash", "push", "-qu"); err != nil {
		return err
	}
	made, err := u.engine.ContainerCommit(ctx, boxName, container.CommitOptions{Pause: true})
	if err != nil {
		return err
	}
	u.image = made.ID
	if err := run(ctx, "rm", "-rf", u.copyOfVolume()); err != nil {
		return err
	}
	if err := run(ctx, "cp", "-a", u.volume, u.copyOfVolume()); err != nil {
		return err
	}
	return run(ctx, "pg_dump", "-Fc", "-f", u.dump(), u.database.DSN(databaseName))
}

// keepWorking puts the tree back that git stash has taken away.
func (u *usual) keepWorking(ctx context.Context) error {
	return u.git(ctx, "stash", "apply", "-q", "--index")
}

// What the usual rollback replaces: a container with its volume and a database of its own, for it
// makes others of their names, and a checkpoint of ours is of those that there were.
const (
	usualBox      = boxName + "-usual"
	usualDatabase = databaseName + "_usual"
)

// prepare makes what a rollback replaces.
func (u *usual) prepare(ctx context.Context) error {
	if err := runSQL(ctx, u.database.Admin("postgres"), "CREATE DATABASE "+usualDatabase); err != nil {
		return err
	}
	return u.runBox(ctx, usualBox, u.image)
}

// rollBack is docker stop, rm and run, cp -a, pg_restore, git reset, clean and stash apply.
func (u *usual) rollBack(ctx context.Context) error {
	if err := u.engine.ContainerStop(ctx, usualBox, container.StopOptions{}); err != nil {
		return err
	}
	if err := u.engine.ContainerRemove(ctx, usualBox, container.RemoveOptions{}); err != nil {
		return err
	}
	data := strings.Replace(u.volume, boxName, usualBox, 1)
	if err := run(ctx, "sh", "-ec", "rm -rf "+data+"/* && cp -a "+u.copyOfVolume()+"/. "+data); err != nil {
		return err
	}
	if err := runSQL(ctx, u.database.Admin("postgres"), "DROP DATABASE "+usualDatabase+" WITH (FORCE)",
		"CREATE DATABASE "+usualDatabase+" OWNER "+postgrestest.Role); err != nil {
		return err
	}
	if err := run(ctx, "pg_restore", "-d", u.database.DSN(usualDatabase), u.dump()); err != nil {
		return err
	}
	for _, args := range [][]string{{"reset", "-q", "--hard"}, {"clean", "-qfd"}, {"stash", "apply", "-q", "--index"}} {
		if err := u.git(ctx, args...); err != nil {
			return err
		}
	}
	return u.runBox(ctx, usualBox, u.image)
}
