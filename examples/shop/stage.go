package shop

import (
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/folder"
	"github.com/seed-62bf7108/unwind/activities/postgres"
	"github.com/seed-62bf7108/unwind/activities/postgres/postgrestest"
	"github.com/seed-62bf7108/unwind/activities/unit"
	"github.com/seed-62bf7108/unwind/internal/filelock"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/environment"
)

var (
	//go:embed story
	story embed.FS
	//go:embed environment.yaml
	document string
)

// The chapters of the story: the files that are put into the folder then.
const (
	beforeChapter  = "1-before"
	upgradeChapter = "2-upgrade"
	fixChapter     = "3-fix"
)

// The folders of a stage, the first two of which are parts.
const (
	codeFolder    = "code"
	uploadsFolder = "uploads"
	stateFolder   = "state"
)

// databaseName is that of the database, on its server and in the worker's config; dsnSecret is the
// name of the secret with its connection string.
const (
	databaseName = "shop"
	dsnSecret    = "SHOP_DSN"
)

// Stage is a shop that runs: a folder, a PostgreSQL server, and the process of the application.
type Stage struct {
	// Folder holds everything that is on this machine's disk, but for the database.
	Folder string
	// URL is where the shop answers.
	URL string

	app      installed
	database *postgrestest.Server
	closers  []func() error
}

// Missing says what this machine lacks; nil where a stage can be set.
func Missing() error {
	if err := postgrestest.Missing(); err != nil {
		return fmt.Errorf("%w; install the server, such as with apt-get install postgresql", err)
	}
	for _, program := range []string{"git", "pg_dump", "pg_restore"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("there is no %s on PATH; install it", program)
		}
	}
	return nil
}

// Set sets up a stage, and starts the shop. If it fails, it removes what it has made. The program
// must have called [Attend] first.
func Set(ctx context.Context, log io.Writer) (_ *Stage, err error) {
	s := &Stage{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	made, err := os.MkdirTemp("", "unwind-demo-")
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, func() error { return os.RemoveAll(made) })
	// A folder behind a link has two names, and the environment and the worker must use the same one.
	if s.Folder, err = filepath.EvalSymlinks(made); err != nil {
		return nil, err
	}
	s.app = installed{s.Folder}
	fmt.Fprintln(log, "starting a PostgreSQL server")
	if s.database, err = postgrestest.Quick(); err != nil {
		return nil, err
	}
	s.closers = append(s.closers, func() error { s.database.Stop(); return nil })
	for _, sql := range []string{"ALTER ROLE " + postgrestest.Role + " CREATEDB",
		"CREATE DATABASE " + databaseName + " OWNER " + postgrestest.Role} {
		if err := execute(ctx, s.database.Admin("postgres"), sql); err != nil {
			return nil, err
		}
	}
	return s, s.open(ctx)
}

// open installs the application, in its first release, and starts it.
func (s *Stage) open(ctx context.Context) error {
	for _, name := range []string{codeFolder, stateFolder} {
		if err := os.Mkdir(s.app.path(name), 0o700); err != nil {
			return err
		}
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.Symlink(program, s.app.path(programName)); err != nil {
		return err
	}
	address, err := freeAddress()
	if err != nil {
		return err
	}
	s.URL = "http://" + address + "/"
	for name, content := range map[string]string{addressFile: address, dsnFile: s.database.DSN(databaseName)} {
		if err := os.WriteFile(s.app.path(name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	here, err := filelock.Try(s.app.path(demoFile))
	if err != nil {
		return err
	}
	s.closers = append(s.closers, func() error { here.Release(); return nil })
	if _, err := s.git(ctx, "init", "--quiet", "--initial-branch=main"); err != nil {
		return err
	}
	if err := s.release(ctx, beforeChapter, "Sell plans"); err != nil {
		return err
	}
	s.closers = append(s.closers, func() error { return s.command(context.Background(), "stop") })
	return s.command(ctx, "start")
}

// freeAddress is one that stays free while the shop is stopped: the system gives ports of this
// range only to who asks for one by its number.
func freeAddress() (address string, err error) {
	const first, count, tries = 20000, 10000, 20
	for range tries {
		n, err := rand.Int(rand.Reader, big.NewInt(count))
		if err != nil {
			return "", err
		}
		address = fmt.Sprintf("127.0.0.1:%d", first+n.Int64())
		listener, err := net.Listen("tcp", address)
		if err == nil {
			return address, listener.Close()
		}
	}
	return "", fmt.Errorf("no free port from %d on: the last that was tried is that of %s", first, address)
}

// command runs a command of the application, as a unit's commands do.
func (s *Stage) command(ctx context.Context, name string) error {
	if out, err := exec.CommandContext(ctx, s.app.path(programName), name).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", programName, name, err, out)
	}
	return nil
}

// release puts the files of a chapter into the folder, commits those of the code, and runs the
// migrations among them, as who makes a release does.
func (s *Stage) release(ctx context.Context, chapter, message string) error {
	migrations, err := s.app.put(chapter)
	if err != nil {
		return err
	}
	for _, args := range [][]string{{"add", "--all"}, {"commit", "--quiet", "--message", message}} {
		if _, err := s.git(ctx, args...); err != nil {
			return err
		}
	}
	for _, sql := range migrations {
		if err := execute(ctx, s.database.DSN(databaseName), sql); err != nil {
			return err
		}
	}
	return nil
}

// put writes the files of a chapter, and returns the migrations among them.
func (a installed) put(chapter string) (migrations []string, err error) {
	files, err := fs.Sub(story, path.Join("story", chapter))
	if err != nil {
		return nil, err
	}
	folder, err := os.OpenRoot(a.folder)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	err = fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return folder.MkdirAll(name, 0o755)
		}
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		if path.Base(path.Dir(name)) == "migrations" {
			migrations = append(migrations, string(content))
		}
		return folder.WriteFile(name, content, 0o644)
	})
	return migrations, err
}

// git runs git in the repository, without the settings of the user.
func (s *Stage) git(ctx context.Context, args ...string) (string, error) {
	c := exec.CommandContext(ctx, "git", append([]string{"-c", "user.name=agent", "-c", "user.email=agent@example.com"},
		args...)...)
	c.Dir = s.app.path(codeFolder)
	c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1")
	out, err := c.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// execute runs SQL on a connection of its own.
func execute(ctx context.Context, dsn, sql string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

// name is unique to this stage.
func (s *Stage) name() string { return strings.TrimPrefix(filepath.Base(s.Folder), "unwind-demo-") }

// Environment is the shop as an environment.
func (s *Stage) Environment() (environment.Document, error) {
	return environment.Parse("environment.yaml",
		[]byte(strings.NewReplacer("NAME", "shop-"+s.name(), "FOLDER", s.Folder).Replace(document)))
}

// Config returns the config of a worker that may do only what the environment needs, on its own
// queue.
func (s *Stage) Config() host.Config {
	program := s.app.path(programName)
	return host.Config{
		Host: "demo", Queue: "unwind-demo-" + s.name(), State: s.app.path(stateFolder), StopTimeout: 5 * time.Second,
		Secrets: map[string]string{dsnSecret: "file:" + s.app.path(dsnFile)},
		Worlds: []activities.Settings{
			&folder.Settings{Roots: []string{s.Folder}},
			&postgres.Settings{Databases: map[string]postgres.DatabaseSettings{databaseName: {DSN: dsnSecret}}},
			&unit.Settings{Units: map[string]unit.Unit{"shop": {
				Start: []string{program, "start"}, Stop: []string{program, "stop"}, Running: []string{program, "running"},
				Health: unit.Health{URL: s.URL + "health"},
			}}},
		},
	}
}

// Close removes everything, the last thing first.
func (s *Stage) Close() error {
	var problems []error
	for _, remove := range slices.Backward(s.closers) {
		problems = append(problems, remove())
	}
	s.closers = nil
	return errors.Join(problems...)
}
