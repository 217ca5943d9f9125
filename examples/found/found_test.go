package found_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/seed-62bf7108/unwind/examples/found"
)

// folder makes a folder with a file, a link and a folder in it, all of them old.
func folder(t *testing.T) string {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), []byte("one"), 0o640))
	require.NoError(t, os.Symlink("a", filepath.Join(dir, "l")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "d"), 0o750))
	old := time.Unix(1700000000, 123456789)
	require.NoError(t, os.Chtimes(filepath.Join(dir, "a"), old, old))
	return dir
}

func files(t *testing.T, dir string) found.Snapshot {
	s, err := found.Files("", dir, ".unwind")
	require.NoError(t, err)
	return s
}

func changes(before, now found.Snapshot) (all []string) {
	for _, c := range before.Changes(now) {
		all = append(all, c.String())
	}
	return all
}

func TestFilesSeesEveryDifference(t *testing.T) {
	for name, c := range map[string]struct {
		change func(dir string) error
		want   string
	}{
		"content, of the same size and time": {func(dir string) error {
			old := time.Unix(1700000000, 123456789)
			if err := os.WriteFile(filepath.Join(dir, "a"), []byte("eno"), 0o640); err != nil {
				return err
			}
			return os.Chtimes(filepath.Join(dir, "a"), old, old)
		}, "~ a: sha256 "},
		"a nanosecond": {func(dir string) error {
			return os.Chtimes(filepath.Join(dir, "a"), time.Time{}, time.Unix(1700000000, 123456788))
		}, "~ a: time 2023-11-14T22:13:20.123456789Z -> 2023-11-14T22:13:20.123456788Z"},
		"mode": {func(dir string) error { return os.Chmod(filepath.Join(dir, "a"), 0o641) }, "~ a: mode 0640 -> 0641"},
		"sticky bit": {func(dir string) error { return os.Chmod(filepath.Join(dir, "d"), 0o750|os.ModeSticky) },
			"~ d: mode 0750 -> 1750"},
		"gone":        {func(dir string) error { return os.Remove(filepath.Join(dir, "a")) }, "- a"},
		"come":        {func(dir string) error { return os.Mkdir(filepath.Join(dir, "d", "e"), 0o700) }, "+ d/e"},
		"another end": {func(dir string) error { return relink(filepath.Join(dir, "l")) }, "~ l: leads to a -> b"},
		"attribute": {func(dir string) error {
			return unix.Setxattr(filepath.Join(dir, "a"), "user.who", []byte("me"), 0)
		}, `~ a: attribute user.who none -> "me"`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t)
			before := files(t, dir)
			require.Empty(t, changes(before, files(t, dir)))
			require.NoError(t, c.change(dir))
			all := changes(before, files(t, dir))
			require.Len(t, all, 1)
			require.Contains(t, all[0], c.want)
		})
	}
}

func relink(path string) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return os.Symlink("b", path)
}

func TestFilesLeavesOutWhatItIsToldTo(t *testing.T) {
	dir := folder(t)
	before := files(t, dir)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, ".unwind", "x"), 0o700))
	require.Empty(t, changes(before, files(t, dir)))
}

func TestTerraformReadsResourcesAndOutputs(t *testing.T) {
	dir := t.TempDir()
	empty, err := found.Terraform(dir)
	require.NoError(t, err)
	require.Empty(t, empty)
	state := func(serial, region, input string) found.Snapshot {
		require.NoError(t, os.WriteFile(filepath.Join(dir, found.StateFile), []byte(`{"version": 4, "serial": `+serial+`,
			"outputs": {"region": {"value": "`+region+`", "type": "string"}},
			"resources": [{"mode": "managed", "type": "t", "name": "n", "provider": "p", "instances": [
				{"index_key": "k", "attributes": {"id": "1", "input": `+input+`}}]}]}`), 0o600))
		s, err := found.Terraform(dir)
		require.NoError(t, err)
		return s
	}
	before := state("1", "eu", `{"a": 1, "b": 2}`)
	require.Empty(t, changes(before, state("7", "eu", `{"b":2,"a":1}`)), "another serial is no other state")
	require.Equal(t, []string{`~ output.region: value "eu" -> "us"`, `~ t.n["k"]: input {"a":1,"b":2} -> 3`},
		changes(before, state("1", "us", "3")))
	require.Equal(t, []string{"- output.region", `- t.n["k"]`}, changes(before, empty))
}

func TestStripeCountsWhatIsLive(t *testing.T) {
	body := `{"live": [], "counters": {"charges": 0}}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/_emulator", r.URL.Path)
		_, _ = w.Write([]byte(body))
	}))
	defer server.Close()
	look := func() found.Observed {
		s, err := found.Look(t.Context(), found.Place{Stripe: server.URL})
		require.NoError(t, err)
		return s
	}
	before := look()
	body = `{"live": ["customer cus_1 active", "customer cus_2 active"], "counters": {"charges": 1}}`
	f := before.Compare(look(), nil, nil)
	require.Len(t, f, 1)
	require.False(t, f[0].OK)
	require.Equal(t, []string{"~ counter charges: number 0 -> 1", "+ live customer active"}, f[0].Wrong)
	require.Equal(t, "live objects: 2, charges: 1, refunds: not counted, mails: not counted", f[0].Looked)

	f = before.Compare(look(), map[string][]found.Want{found.StripeWorld: {
		{Change: "+ live customer active", Facts: found.Facts{"number": "3"}}, {Change: "~ counter charges"},
		{Change: "+ live coupon active"},
	}}, nil)
	require.Equal(t, []string{"live customer active: number is 2, and not 3", "not done: + live coupon active"},
		f[0].Wrong)
}

func TestALossOfAContainerIsForgivenOnlyWhereTheReportNamesIt(t *testing.T) {
	is := func(id, part, content string) found.Observed {
		return found.Observed{found.ContainerWorld: {
			"the container": {"id": id, "name": "/app"}, "/srv/a": {"part of a second": part, "sha256": content},
		}}
	}
	before := is("1", "123456789", "x")
	named := []string{"the container is made anew: it has another id, its image is named by id",
		"of files: times below a second, sockets"}
	finding := func(now found.Observed, losses []string) found.Finding { return before.Compare(now, nil, losses)[0] }

	require.True(t, finding(is("2", "000000000", "x"), named).OK)
	require.Equal(t, []string{"times below a second", "it has another id"}, finding(is("2", "000000000", "x"), named).Lost)
	require.Equal(t, []string{"~ /srv/a: part of a second 123456789 -> 000000000"},
		finding(is("2", "000000000", "x"), named[:1]).Wrong)
	require.False(t, finding(is("1", "5", "x"), named).OK, "a time below a second is lost, and not made up")
	require.Equal(t, []string{"~ /srv/a: sha256 x -> y"}, finding(is("1", "000000000", "y"), named).Wrong)
	require.False(t, finding(is("2", "123456789", "x"), nil).OK)
}

func TestADatabaseShowsEveryRowAndItsSchemaButNotTheMarksOfSteps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	change := func(script string) {
		conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite|sqlite.OpenCreate)
		require.NoError(t, err)
		require.NoError(t, sqlitex.ExecuteScript(conn, script, nil))
		require.NoError(t, conn.Close())
	}
	look := func() found.Snapshot {
		s, err := found.Database(path)
		require.NoError(t, err)
		return s
	}
	change(`CREATE TABLE "a ""b" (x, y); INSERT INTO "a ""b" VALUES (1, 'one'), ('1', NULL); CREATE VIEW v AS SELECT 1`)
	before := look()
	change(`CREATE TABLE _unwind_steps (token TEXT PRIMARY KEY); INSERT INTO _unwind_steps VALUES ('t')`)
	require.Empty(t, before.Changes(look()))
	change(`UPDATE "a ""b" SET x = 1; DROP VIEW v; INSERT INTO "a ""b" VALUES (2, 2)`)
	require.Equal(t, []string{`~ row a "b 2: x SQLITE_TEXT "1" -> SQLITE_INTEGER "1"`, `+ row a "b 3`, "- view v"},
		changes(before, look()))
}
