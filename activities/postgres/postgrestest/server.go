// Package postgrestest starts a real PostgreSQL server for the tests of a package: one for each
// test binary, in a temporary folder.
package postgrestest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/testrun"
)

// programs is where Debian keeps the programs of each version.
const programs = "/usr/lib/postgresql/*/bin"

// Role is the plain role that tests work as, with the one right beyond its own tables that
// postgres.exec needs.
const Role = "worker"

// Server is a running server.
type Server struct {
	*testrun.Server

	attr  *syscall.SysProcAttr
	names atomic.Int64
}

// quick are settings with which a server keeps nothing through a crash.
var quick = []string{"-c", "fsync=off", "-c", "autovacuum=off", "-c", "shared_buffers=64MB", "-c",
	"full_page_writes=off", "-c", "jit=off"}

var (
	start      = sync.OnceValues(func() (*Server, error) { return Start(quick...) })
	errMissing = errors.New("PostgreSQL is not installed")
)

// Quick starts a server of its own that keeps nothing through a crash of the machine, but all
// through a crash of its own.
func Quick() (*Server, error) { return Start(quick...) }

// Missing says why no server can be started on this machine; nil where one can.
func Missing() error {
	_, err := program("postgres")
	return err
}

// Need returns the server of the test binary. It skips the test where PostgreSQL is not installed.
func Need(t testing.TB) *Server {
	t.Helper()
	s, err := start()
	if errors.Is(err, errMissing) {
		testrun.Skipf(t, "%v below %s: apt-get install postgresql", err, programs)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func program(name string) (string, error) {
	found, _ := filepath.Glob(filepath.Join(programs, name))
	if len(found) == 0 {
		return "", errMissing
	}
	return slices.Max(found), nil
}

// Start starts a server with more options of the program postgres.
func Start(options ...string) (*Server, error) {
	initdb, err := program("initdb")
	if err != nil {
		return nil, err
	}
	server, err := program("postgres")
	if err != nil {
		return nil, err
	}
	made, err := testrun.NewServer("pg")
	if err != nil {
		return nil, err
	}
	s := &Server{Server: made, attr: &syscall.SysProcAttr{}}
	if os.Geteuid() == 0 { // the server refuses to run as root
		nobody, err := user.Lookup("nobody")
		if err != nil {
			return nil, err
		}
		uid, _ := strconv.Atoi(nobody.Uid)
		gid, _ := strconv.Atoi(nobody.Gid)
		s.attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)} //nolint:gosec // ids are small
		if err := os.Chown(s.Dir, uid, gid); err != nil {
			return nil, err
		}
	}
	data := filepath.Join(s.Dir, "data")
	if out, err := s.command(initdb, "-D", data, "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8",
		"--locale=C.UTF-8").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	options = append([]string{"-D", data, "-k", s.Dir, "-c", "listen_addresses=", "-c", "max_connections=300"}, options...)
	s.Command = func() *exec.Cmd { return s.command(server, options...) }
	s.Answers = func() error { return s.ask("SELECT 1") }
	s.AtEnd = syscall.SIGQUIT // at once: nothing is kept
	if err := s.Restart(); err != nil {
		return nil, err
	}
	return s, s.ask("CREATE ROLE " + Role + " LOGIN; GRANT SET ON PARAMETER session_replication_role TO " + Role)
}

// command is one of PostgreSQL's programs, as a user who is not root.
func (s *Server) command(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Dir, c.SysProcAttr, c.Env = s.Dir, s.attr, []string{"LC_ALL=C.UTF-8", "PATH=" + os.Getenv("PATH")}
	return c
}

// ask runs statements as a superuser.
func (s *Server) ask(sql string) error {
	conn, err := pgx.Connect(context.Background(), s.Admin("postgres"))
	if err != nil {
		return err
	}
	_, err = conn.Exec(context.Background(), sql)
	return errors.Join(err, conn.Close(context.Background()))
}

// Halt ends the server in order: its files are whole then.
func (s *Server) Halt() { s.End(syscall.SIGINT) }

// Restart starts a server. After one that was killed it does so until the last connection of that
// has ended.
func (s *Server) Restart() error {
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for began := time.Now(); ; <-again.C {
		err := s.Server.Restart()
		if !errors.Is(err, testrun.ErrServerEnded) || time.Since(began) > time.Minute {
			return err
		}
	}
}

// Admin is the connection string of a superuser for a database.
func (s *Server) Admin(database string) string {
	return fmt.Sprintf("host=%s user=postgres dbname=%s", s.Dir, database)
}

// DSN is the connection string of Role for a database.
func (s *Server) DSN(database string) string {
	return fmt.Sprintf("host=%s user=%s dbname=%s", s.Dir, Role, database)
}

// Database creates a database of Role, runs statements in it as that role, and drops it when the
// test ends.
func (s *Server) Database(t testing.TB, statements ...string) string {
	t.Helper()
	name := fmt.Sprintf("d%d", s.names.Add(1))
	s.Exec(t, s.Admin("postgres"), "CREATE DATABASE "+name+" OWNER "+Role)
	t.Cleanup(func() { s.Exec(t, s.Admin("postgres"), "DROP DATABASE "+name+" WITH (FORCE)") })
	s.Exec(t, s.DSN(name), statements...)
	return name
}

// Exec runs statements on a connection of their own.
func (s *Server) Exec(t testing.TB, dsn string, statements ...string) {
	t.Helper()
	Exec(t, dsn, statements...)
}

// Exec runs statements on a connection of their own.
func Exec(t testing.TB, dsn string, statements ...string) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, each := range statements {
		if _, err := conn.Exec(ctx, each); err != nil {
			t.Fatalf("%s: %v", each, err)
		}
	}
}

// Help is the server's grammar, as psql tells it.
func (s *Server) Help(t testing.TB) string {
	t.Helper()
	name, err := program("psql")
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.command(name, "-X", "-d", s.Admin("postgres"), "-c", `\h *`).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// ofWord matches a text in a program, and the name in it.
var ofWord = regexp.MustCompile(`^(?:toast\.)?([a-z][a-z_]+)$`)

// Words are the names in the program psql, which completes them.
func Words(t testing.TB) (all []string) {
	t.Helper()
	name, err := program("psql")
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.SplitSeq(string(content), "\x00") {
		if found := ofWord.FindStringSubmatch(text); found != nil {
			all = append(all, found[1])
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Dump is the data of a database without the schemas of Unwind, as pg_dump writes it, with the rows
// of each table in order of their text: where a row lies on the disk is not part of its value.
// Positions of sequences are left out.
func Dump(t testing.TB, dsn string) string {
	t.Helper()
	return strings.Join(dumpTables(t, dsn), "\n")
}

// DumpAll is the same with the definitions of everything.
func DumpAll(t testing.TB, dsn string) string {
	t.Helper()
	return strings.Join(dumpTables(t, dsn), "\n") + "\n" + dumpSchema(t, dsn)
}

func runDump(t testing.TB, dsn string, options ...string) string {
	t.Helper()
	out, err := dump(dsn, append(options, "--exclude-schema=unwind", "--exclude-schema=unwind_*_*")...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func dump(dsn string, options ...string) (string, error) {
	name, err := program("pg_dump")
	if err != nil {
		return "", err
	}
	c := exec.Command(name, append(options, "-d", dsn)...)
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("pg_dump: %w: %s", err, said.Bytes())
	}
	return string(out), nil
}

// DumpSchema is all that one schema of a database holds, with the rows of each table in order of
// their text, and without the triggers of Unwind.
func DumpSchema(dsn, schema string) (string, error) {
	out, err := dump(dsn, "--schema="+schema, "--lock-wait-timeout=20s")
	if err != nil {
		return "", err
	}
	lines := readable(out)
	for from := 0; from < len(lines); from++ {
		if !strings.HasPrefix(lines[from], "COPY ") {
			continue
		}
		rows := slices.Index(lines[from:], `\.`)
		slices.Sort(lines[from+1 : from+rows])
		from += rows
	}
	return strings.Join(lines, "\n"), nil
}

// dumpSchema leaves out what pg_dump writes of the triggers of Unwind.
func dumpSchema(t testing.TB, dsn string) string {
	t.Helper()
	return strings.Join(readable(runDump(t, dsn, "--schema-only")), "\n")
}

// readable are the lines of a dump that say what is in the database, and not how or when it was
// dumped.
func readable(out string) []string {
	return slices.DeleteFunc(strings.Split(out, "\n"), func(line string) bool {
		return line == "" || strings.HasPrefix(line, "--") || strings.HasPrefix(line, `\restrict`) ||
			strings.HasPrefix(line, `\unrestrict`) || strings.Contains(line, "!unwind")
	})
}

func dumpTables(t testing.TB, dsn string) []string {
	t.Helper()
	out := runDump(t, dsn, "--data-only")
	var tables []string
	var rows []string
	for line := range strings.SplitSeq(out, "\n") {
		switch {
		case strings.HasPrefix(line, "COPY "):
			rows = []string{line}
		case line == `\.` && rows != nil:
			slices.Sort(rows[1:])
			tables = append(tables, strings.Join(rows, "\n"))
			rows = nil
		case rows != nil:
			rows = append(rows, line)
		}
	}
	slices.Sort(tables)
	return tables
}
