package host_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	dockercontainer "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"golang.org/x/sys/unix"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/file"
	world "github.com/seed-62bf7108/unwind/activities/sqlite"
	"github.com/seed-62bf7108/unwind/activities/terraform"
	"github.com/seed-62bf7108/unwind/activities/terraform/terraformtest"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/testrun"
	"github.com/seed-62bf7108/unwind/worker/host"
)

// ground is a folder in which pairs of steps work.
type ground struct{ root string }

func (p ground) in(name string) string { return filepath.Join(p.root, name) }

// folder makes a folder with a file, and returns its path.
func (p ground) folder(t *testing.T, name, file, content string) string {
	require.NoError(t, os.MkdirAll(p.in(name), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(p.in(name), file), []byte(content), 0o600))
	return p.in(name)
}

func use(action string, with map[string]any, more ...any) map[string]any {
	return map[string]any{"uses": action, "with": with, "needs": []string{}, "check": append([]any{}, more...)}
}

func writeTo(path string, check ...any) map[string]any {
	return use("file.write", map[string]any{"path": path, "content": "{}"}, check...)
}

func execIn(container, command string) map[string]any {
	return use("container.exec", map[string]any{"container": container, "command": command})
}

func applyIn(dir, value string) map[string]any {
	step := use("terraform.apply", map[string]any{"dir": dir, "vars": map[string]any{"value": value}})
	step["gate"] = "none"
	return step
}

func insertInto(database string) map[string]any {
	return use("sqlite.exec", map[string]any{"database": database, "sql": "INSERT INTO plan VALUES ('team')"})
}

// database makes a folder with a database, whose table plan has a row for each name, and returns
// the path of its file.
func (p ground) database(t *testing.T, name string, rows ...string) string {
	path := filepath.Join(p.folder(t, name, "other", ""), "app.db")
	conn, err := sqlite.OpenConn(path)
	require.NoError(t, err)
	require.NoError(t, sqlitex.ExecuteTransient(conn, "CREATE TABLE plan (name TEXT)", nil))
	for _, row := range rows {
		require.NoError(t,
			sqlitex.ExecuteTransient(conn, "INSERT INTO plan VALUES (?)", &sqlitex.ExecOptions{Args: []any{row}}))
	}
	require.NoError(t, conn.Close())
	return path
}

// bound makes another name of a folder, by a bind mount.
func (p ground) bound(t *testing.T, folder, name string) string {
	testrun.NeedRoot(t, "bind mounts")
	at := p.folder(t, name, "below", "")
	if err := unix.Mount(folder, at, "", unix.MS_BIND, ""); err != nil {
		testrun.Skipf(t, "this machine lets nobody mount: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(at, unix.MNT_DETACH)) })
	return at
}

const configuration = `variable "value" { default = "none" }
resource "terraform_data" "a" { input = var.value }
`

// TestPairsThatAreOneThing runs, for each pair, two steps that say that they need nothing, and a
// third that fails. The second needs the first, and all is undone, with no step of the task taken
// for somebody else's change.
func TestPairsThatAreOneThing(t *testing.T) {
	t.Parallel()
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	p := ground{root}
	configured := func(t *testing.T, name, backend string) string {
		terraformtest.Require(t)
		return p.folder(t, name, "main.tf", configuration+backend)
	}
	box := func(t *testing.T, binds ...string) *containertest.Box {
		return containertest.Start(t,
			func(_ *dockercontainer.Config, h *dockercontainer.HostConfig, _ *network.NetworkingConfig) {
				h.Binds = binds
			})
	}
	t.Cleanup(func() {
		require.NoError(containertest.Outliving(t), containertest.RemoveImages())
	})
	containertest.Docker(t)
	s := serve(t, host.Config{
		Worlds: []activities.Settings{
			&file.Settings{Roots: []string{root}}, &terraform.Settings{Roots: []string{root}}, &container.Settings{},
			&world.Settings{Roots: []string{root}},
		}, CheckCommands: []string{"grep"},
	}, host.Options{})
	// what a replacement leaves waits for the release of its record
	t.Cleanup(func() { containertest.ClearIn(t, s.state) })

	for name, pair := range map[string]func(t *testing.T) (one, two map[string]any){
		// file refuses to follow one
		"a terraform folder through a bind mount": func(t *testing.T) (one, two map[string]any) {
			dir := configured(t, "bind-a", "")
			return applyIn(dir, "1"), applyIn(p.bound(t, dir, "bind-b"), "2")
		},
		"rows of a database and its file": func(t *testing.T) (one, two map[string]any) {
			db := p.database(t, "rows", "free")
			return insertInto(db), writeTo(db)
		},
		"a database and its file through a symlink": func(t *testing.T) (one, two map[string]any) {
			db := p.database(t, "db-link", "free")
			require.NoError(t, os.Symlink(db, p.in("db")))
			return insertInto(p.in("db")), writeTo(db)
		},
		"a database and its file through a hard link": func(t *testing.T) (one, two map[string]any) {
			db := p.database(t, "db-hard", "free")
			require.NoError(t, os.Link(db, p.in("hard.db")))
			return insertInto(db), writeTo(p.in("hard.db"))
		},
		"a database through a bind mount and its file": func(t *testing.T) (one, two map[string]any) {
			db := p.database(t, "db-bind", "free")
			return insertInto(filepath.Join(p.bound(t, filepath.Dir(db), "db-bound"), "app.db")), writeTo(db)
		},
		"a database through /proc/self/root and its file": func(t *testing.T) (one, two map[string]any) {
			db := p.database(t, "db-proc", "free")
			return insertInto("/proc/self/root" + db), writeTo(db)
		},
		"a database that a query reads": func(t *testing.T) (one, two map[string]any) {
			db := p.database(t, "db-query", "free")
			return use("sqlite.query", map[string]any{"database": db, "sql": "SELECT name FROM plan"}), writeTo(db)
		},
		"a database on a bind volume": func(t *testing.T) (one, two map[string]any) {
			db := p.database(t, "db-volume", "free")
			return insertInto(db), execIn(box(t, filepath.Dir(db)+":/data").Name, "cat /data/app.db >/srv/copy")
		},
		"a file through a bind mount": func(t *testing.T) (one, two map[string]any) {
			dir := p.folder(t, "file-a", "file", "before")
			source := p.bound(t, dir, "file-b") + "/file" // file.write changes nothing through one
			return writeTo(dir + "/file"), use("file.write", map[string]any{"path": p.in("copy"), "source": source})
		},
		"a file that a command check reads": func(t *testing.T) (one, two map[string]any) {
			dir := p.folder(t, "command", "file", "before")
			return writeTo(dir+"/other",
				map[string]any{"command": []string{"grep", "before", "/proc/self/root" + dir + "/file"}}), writeTo(dir + "/file")
		},
		"a file in an option of a command check": func(t *testing.T) (one, two map[string]any) {
			dir := p.folder(t, "option", "file", "{")
			return writeTo(dir + "/file"), writeTo(dir+"/other",
				map[string]any{"command": []string{"grep", "--file=" + dir + "/file", "{path}"}})
		},
		"a file that a check reads": func(t *testing.T) (one, two map[string]any) {
			dir := p.folder(t, "check", "file", "before")
			return writeTo(dir + "/file"), writeTo(dir+"/other", map[string]any{"json": map[string]any{"file": dir + "/file"}})
		},
		"a file that a check looks for": func(t *testing.T) (one, two map[string]any) {
			dir := p.folder(t, "exists", "file", "before")
			return writeTo(dir+"/other", map[string]any{"exists": map[string]any{"path": dir + "/file"}}), writeTo(dir + "/file")
		},
		"a container by name and id": func(t *testing.T) (one, two map[string]any) {
			b := box(t)
			return execIn(b.Name, "echo 1 >/srv/f"), execIn(b.ID, "echo 2 >/srv/f")
		},
		"a container by short id and with a slash": func(t *testing.T) (one, two map[string]any) {
			b := box(t)
			return execIn(b.ID[:12], "echo 1 >/srv/f"), execIn("/"+b.Name, "echo 2 >/srv/f")
		},
		"exec by id and replace by name": func(t *testing.T) (one, two map[string]any) {
			b := box(t)
			return execIn(b.ID, "echo 1 >/srv/f"), use("container.replace",
				map[string]any{"container": b.Name, "image": containertest.Greens(t)[0]})
		},
		"a file on a bind volume": func(t *testing.T) (one, two map[string]any) {
			dir := p.folder(t, "volume", "file", "before")
			b := box(t, dir+":/data")
			return writeTo(dir + "/file"), execIn(b.Name, "cat /data/file >/srv/copy") // a bind is not rolled back
		},
		"one volume in two containers": func(t *testing.T) (one, two map[string]any) {
			volume := "unwind-test-" + containertest.Random()
			t.Cleanup(func() { // the boxes are gone by then
				require.NoError(t,
					containertest.Docker(containertest.Outliving(t)).VolumeRemove(containertest.Outliving(t).Context(), volume, true))
			})
			return execIn(box(t, volume+":/data").Name, "echo 1 >/data/file"), execIn(box(t, volume+":/there").Name,
				"echo 2 >/there/file")
		},
		"a terraform folder through a symlink": func(t *testing.T) (one, two map[string]any) {
			dir := configured(t, "linked", "")
			require.NoError(t, os.Symlink("linked", p.in("link")))
			return applyIn(dir, "1"), applyIn(p.in("link"), "2")
		},
		"a terraform folder through /proc/self/root": func(t *testing.T) (one, two map[string]any) {
			dir := configured(t, "proc", "")
			return applyIn(dir, "1"), applyIn("/proc/self/root"+dir, "2")
		},
		"a terraform folder and a file in it": func(t *testing.T) (one, two map[string]any) {
			dir := configured(t, "with-file", `output "file" { value = fileexists("${path.module}/data") }`)
			return writeTo(dir + "/data"), applyIn(dir, "1")
		},
		"two terraform folders with one state file": func(t *testing.T) (one, two map[string]any) {
			backend := fmt.Sprintf("terraform {\n  backend \"local\" {\n    path = %q\n  }\n}", p.in("shared.tfstate"))
			return applyIn(configured(t, "local-a", backend), "1"), applyIn(configured(t, "local-b", backend), "2")
		},
		"two terraform folders with one backend": func(t *testing.T) (one, two map[string]any) {
			backend := fmt.Sprintf("terraform {\n  backend \"http\" {\n    address = %q\n  }\n}", serveState(t))
			return applyIn(configured(t, "http-a", backend), "1"), applyIn(configured(t, "http-b", backend), "2")
		},
	} {
		t.Run(name, func(t *testing.T) {
			testrun.Sampled(t)
			one, two := pair(t)
			one["id"], two["id"] = "one", "two"
			bad := filepath.Join(p.folder(t, "bad "+filepath.Base(t.Name()), "x", ""), "bad.json")
			run := s.start(map[string]any{"name": "pair", "steps": []any{one, two, map[string]any{
				"id": "fails", "uses": "file.write", "with": map[string]any{"path": bad, "content": "{"},
				"check": []any{map[string]any{"json": map[string]any{}}},
			}}})
			s.unwinds(t, run)
			require.Equal(t, []string{"one"}, s.needs(run)["two"])
		})
	}

	// which the undo of the command does not take back
	t.Run("a database that a container writes on a bind volume", func(t *testing.T) {
		db, other := p.database(t, "written", "free"), p.database(t, "source", "free", "paid")
		want, err := os.ReadFile(other)
		require.NoError(t, err)
		require.NoError(t, os.Rename(other, p.in("written/other.db")))
		one, two := insertInto(db), execIn(box(t, p.in("written")+":/data").Name, "cat /data/other.db >/data/app.db")
		one["id"], two["id"] = "one", "two"
		run := s.start(map[string]any{"name": "written", "steps": []any{one, two, map[string]any{
			"id": "fails", "uses": "file.write", "with": map[string]any{"path": p.in("written/other"), "content": "{"},
			"check": []any{map[string]any{"json": map[string]any{}}},
		}}})
		parked := s.parked(run.GetID(), "one")
		require.Equal(t, activities.Drifted, parked.Outcome, "%+v", parked)
		require.Equal(t, []string{"one"}, s.needs(run)["two"])
		s.resolve(run.GetID(), parked, compensations.Accept)
		_, err = s.end(run)
		require.ErrorContains(t, err, "step fails")
		content, err := os.ReadFile(db)
		require.NoError(t, err)
		require.Equal(t, want, content, "the undo overwrites nothing that it did not leave")
	})
}

// unwinds waits for the end of a task whose step fails has failed: all of it is undone, and nobody
// was asked.
func (s *stage) unwinds(t *testing.T, run client.WorkflowRun) {
	t.Helper()
	_, err := s.end(run)
	require.ErrorContains(t, err, "step fails")
	failed, ok := errors.AsType[*temporal.ApplicationError](err)
	require.True(t, ok)
	var report compensations.Report
	require.NoError(t, failed.Details(&report))
	require.Equal(t, compensations.Unwound, report.Status, "%+v", report)
}

// serveState serves one terraform state, and returns its address.
func serveState(t *testing.T) string {
	var mu sync.Mutex
	var state []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch r.Method {
		case http.MethodPost:
			state, _ = io.ReadAll(r.Body)
		case http.MethodDelete:
			state = nil
		}
		if r.Method == http.MethodGet && state == nil {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write(state)
	}))
	t.Cleanup(server.Close)
	return server.URL
}
