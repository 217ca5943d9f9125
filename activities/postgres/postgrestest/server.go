// Package postgrestest starts a real PostgreSQL server for the tests of a package: one for each test binary, in a temporary folder.
package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
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

// Role is the plain role that tests work as, with the one right beyond its own tables that postgres.exec needs.
const Role = "worker"

// Server is a running server.
type Server struct {
	dir     string
	process *exec.Cmd
	names   atomic.Int64
}

// quick are settings with which a server keeps nothing through a crash.
var quick = []string{"-c", "fsync=off", "-c", "autovacuum=off", "-c", "shared_buffers=64MB", "-c", "full_page_writes=off"}

var (
	start      = sync.OnceValues(func() (*Server, error) { return Start(quick...) })
	errMissing = errors.New("PostgreSQL is not installed")
)

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

// Stop ends all servers that were started. Call it at the end of TestMain.
func Stop() {
	running.Range(func(s, _ any) bool {
		s.(*Server).stop() //nolint:forcetypeassert // nothing else is stored
		return true
	})
}

var running sync.Map

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
	dir, err := os.MkdirTemp("", "pg-")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir}
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if os.Geteuid() == 0 { // the server refuses to run as root
		nobody, err := user.Lookup("nobody")
		if err != nil {
			return nil, err
		}
		uid, _ := strconv.Atoi(nobody.Uid)
		gid, _ := strconv.Atoi(nobody.Gid)
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)} //nolint:gosec // ids are small
		if err := os.Chown(dir, uid, gid); err != nil {
			return nil, err
		}
	}
	run := func(name string, args ...string) *exec.Cmd {
		c := exec.Command(name, args...)
		c.Dir, c.SysProcAttr, c.Env = dir, attr, []string{"LC_ALL=C.UTF-8", "PATH=" + os.Getenv("PATH")}
		return c
	}
	data := filepath.Join(dir, "data")
	if out, err := run(initdb, "-D", data, "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "--locale=C.UTF-8").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	s.process = run(server, append([]string{"-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "max_connections=300"}, options...)...)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	s.process.Stdout, s.process.Stderr = log, log
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	running.Store(s, true)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for began := time.Now(); ; {
		conn, err := pgx.Connect(context.Background(), s.Admin("postgres"))
		if err == nil {
			_, err = conn.Exec(context.Background(), "CREATE ROLE "+Role+" LOGIN; GRANT SET ON PARAMETER session_replication_role TO "+Role)
			return s, errors.Join(err, conn.Close(context.Background()))
		}
		if time.Since(began) > time.Minute {
			said, _ := os.ReadFile(log.Name())
			return nil, fmt.Errorf("the server does not answer: %w: %s", err, said)
		}
		<-again.C
	}
}

func (s *Server) stop() {
	_ = s.process.Process.Signal(syscall.SIGQUIT) // at once: nothing is kept
	_ = s.process.Wait()
	_ = os.RemoveAll(s.dir)
	running.Delete(s)
}

// Folder is where the socket of the server is: the host in connection strings.
func (s *Server) Folder() string { return s.dir }

// Admin is the connection string of a superuser for a database.
func (s *Server) Admin(database string) string {
	return fmt.Sprintf("host=%s user=postgres dbname=%s", s.dir, database)
}

// DSN is the connection string of Role for a database.
func (s *Server) DSN(database string) string {
	return fmt.Sprintf("host=%s user=%s dbname=%s", s.dir, Role, database)
}

// Database creates a database of Role, runs statements in it as that role, and drops it when the test ends.
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

// Dump is the data of a database without the schemas of Unwind, as pg_dump writes it, with the rows of each table in order of their
// text: where a row lies on the disk is not part of its value. Positions of sequences are left out.
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
	dump, err := program("pg_dump")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(dump, append(options, "-d", dsn, "--exclude-schema=unwind*")...).Output()
	if err != nil {
		t.Fatalf("pg_dump: %v", err)
	}
	return string(out)
}

// dumpSchema leaves out what pg_dump writes of the triggers of Unwind.
func dumpSchema(t testing.TB, dsn string) string {
	t.Helper()
	lines := strings.Split(runDump(t, dsn, "--schema-only"), "\n")
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool {
		return line == "" || strings.HasPrefix(line, "--") || strings.HasPrefix(line, `\restrict`) || strings.HasPrefix(line, `\unrestrict`) || strings.Contains(line, "!unwind")
	}), "\n")
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
