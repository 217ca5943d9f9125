package command

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
	"github.com/jackc/pgx/v5"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"

	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/file"
	"github.com/seed-62bf7108/unwind/activities/folder"
	"github.com/seed-62bf7108/unwind/activities/postgres"
	"github.com/seed-62bf7108/unwind/activities/postgres/postgrestest"
	"github.com/seed-62bf7108/unwind/activities/redis"
	"github.com/seed-62bf7108/unwind/activities/redis/redistest"
	"github.com/seed-62bf7108/unwind/activities/sqlite"
	"github.com/seed-62bf7108/unwind/activities/unit"
	"github.com/seed-62bf7108/unwind/starter/apps"
	"github.com/seed-62bf7108/unwind/starter/mcp"
	"github.com/seed-62bf7108/unwind/testrun"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/environment"
)

// site is an environment with a repository and a folder, and a unit that runs while there is a
// file, and is healthy while its page says so.
type site struct {
	*desk
	root, name string
}

func newSite(t *testing.T) *site {
	testrun.NeedProgram(t, "git", "install it")
	s := &site{newDesk(t), t.TempDir(), fmt.Sprintf("shop-%08x", crc32.ChecksumIEEE([]byte(t.Name())))}
	s.stopWorker()
	s.startWorker(s.worlds)
	s.sh(`mkdir -p code uploads; cd code; git init -q; git config user.email a@example.com; git config user.name a
		echo good >page; git add page; git commit -qm one; cd ..; echo first >uploads/one; touch running`)
	s.write("environment.yaml", `
name: `+s.name+`
owner: ann
unit: app
healthy: 100ms
parts:
  code: {git: `+s.root+`/code}
  uploads: {folder: `+s.root+`/uploads}
`)
	return s
}

func (s *site) worlds(c *host.Config) {
	running := filepath.Join(s.root, "running")
	*c = c.With(&file.Settings{Roots: []string{s.root}}).With(&host.EnvironmentSettings{Names: []string{s.name, "nothing"}})
	*c = c.With(&folder.Settings{Roots: []string{s.root}}).With(&unit.Settings{Units: map[string]unit.Unit{"app": {
		Start: []string{"touch", running}, Running: []string{"test", "-e", running},
		Stop:   []string{"sh", "-ec", "cd " + s.root + "; rm -f running; while test -e hold; do sleep 0.02; done"},
		Health: unit.Health{Command: []string{"sh", "-ec", "cd " + s.root + "; touch asked; while test -e wait; do sleep 0.02; done; grep -q good code/page; ! test -e veto -a -e uploads/one"}},
	}}})
}

func (s *site) sh(script string) string {
	s.Helper()
	c := exec.Command("sh", "-ec", script)
	c.Dir = s.root
	out, err := c.CombinedOutput()
	require.NoError(s, err, "%s", out)
	return string(out)
}

func (s *site) write(name, content string) {
	require.NoError(s, os.WriteFile(filepath.Join(s.root, name), []byte(content), 0o600))
}

func (s *site) apply() string { return s.ok("env", "apply", filepath.Join(s.root, "environment.yaml")) }

// checkpoint takes a checkpoint.
func (s *site) checkpoint(flags ...string) (c environment.Checkpoint) {
	s.Helper()
	require.NoError(s, json.Unmarshal([]byte(s.ok(append([]string{"env", "checkpoint", s.name, "-o", "json"}, flags...)...)), &c))
	return c
}

func (s *site) rollBack(to string) (r environment.RolledBack) {
	s.Helper()
	require.NoError(s, json.Unmarshal([]byte(s.ok("env", "rollback", s.name, to, "-o", "json")), &r))
	return r
}

func (s *site) view() (v environment.View) {
	s.Helper()
	require.NoError(s, json.Unmarshal([]byte(s.ok("env", "show", s.name, "-o", "json")), &v))
	return v
}

// is describes all that the environment has.
func (s *site) is() string {
	return s.sh(`git -C code log --format=%s; git -C code status --porcelain; grep . code/page uploads/*; ls running`)
}

func TestAnEnvironmentGoesBackAndForward(t *testing.T) {
	s := newSite(t)
	require.Contains(t, s.apply(), "environment "+s.name+" is there")
	before := s.is()
	first := s.checkpoint("--notes", "before the upgrade", "--trigger", "deploy")
	require.Equal(t, before, s.is())
	require.True(t, first.Quiesced)
	require.False(t, first.Pinned)
	require.Equal(t, environment.Deploy, first.Trigger)
	require.Equal(t, "before the upgrade", first.Notes)
	require.Len(t, first.Parts, 2)
	require.Equal(t, first.Parts[0].Bytes+first.Parts[1].Bytes, first.Bytes)
	require.Equal(t, strings.TrimSpace(s.sh("git -C code rev-parse HEAD")), first.Parts[0].Ref)
	s.sh("git -C code pack-refs --all")
	second := s.checkpoint()
	require.Equal(t, first.Parts[0].Ref, second.Parts[0].Ref)
	require.Empty(t, second.Notes)
	s.ok("env", "delete", s.name, second.ID)

	s.sh(`cd code; echo bad >page; git commit -qam two; echo more >untracked; rm ../uploads/one; echo second >../uploads/two`)
	broken := s.is()
	back := s.rollBack(first.ID)
	require.Equal(t, before, s.is())
	require.Equal(t, first, back.To, "what it went back to is not mixed with what was taken since")
	v := s.view()
	require.Equal(t, []string{back.Safety.ID, first.ID}, idsOf(v.Checkpoints))
	require.Equal(t, []environment.Checkpoint{back.Safety, first}, v.Checkpoints)
	require.Equal(t, environment.PreRollback, back.Safety.Trigger)
	var stages []string
	for _, stage := range back.Stages {
		stages = append(stages, string(stage.Stage)+" "+stage.Status)
	}
	require.Equal(t, []string{"verify ok", "stop-unit ok", "safety-checkpoint ok", "restore-files ok", "start-unit ok",
		"health-check ok"}, stages)

	forward := s.rollBack(back.Safety.ID)
	require.Equal(t, broken, s.is(), "the failed state can be entered again")
	require.Equal(t, "warning", forward.Stages[5].Status)
	require.False(t, *back.Safety.Healthy)
	require.True(t, *first.Healthy)

	// It is healthy before, and is not afterwards though the checkpoint was: that undoes the rollback.
	s.rollBack(first.ID)
	s.sh("rm uploads/one; touch veto uploads/two")
	now := s.is()
	v = s.view()
	r := s.do("env", "rollback", s.name, first.ID)
	require.Equal(t, statusFailed, r.status, "%s%s", r.out, r.err)
	require.Contains(t, r.err, "the unit app is not healthy")
	require.Equal(t, now, s.is())
	require.Equal(t, v.Checkpoints, s.view().Checkpoints, "nothing of it stays")

	text := s.ok("env", "show", s.name)
	for _, said := range []string{"owned by ann", "unit app", "code     git", first.ID, "before the upgrade", "pre-rollback", "not healthy"} {
		require.Contains(t, text, said)
	}
	require.Contains(t, s.ok("env", "show", s.name, first.ID), `"checkpoint_id": "`+first.ID+`"`)
	s.ok("env", "remove", s.name)
	s.record("environment")
}

// record stores the history of the environment's workflow for the replay tests, if it is asked to
// by UNWIND_RECORD=1.
func (s *site) record(name string) {
	if os.Getenv("UNWIND_RECORD") == "" {
		return
	}
	require.NoError(s, s.client.GetWorkflow(s.Context(), environment.WorkflowID(s.name), "").Get(s.Context(), nil))
	history := &historypb.History{}
	for events := s.client.GetWorkflowHistory(s.Context(), environment.WorkflowID(s.name), "", false,
		enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); events.HasNext(); {
		event, err := events.Next()
		require.NoError(s, err)
		history.Events = append(history.Events, event)
	}
	raw, err := temporalproto.CustomJSONMarshalOptions{Indent: " "}.Marshal(history)
	require.NoError(s, err)
	require.NoError(s, os.WriteFile(filepath.Join("..", "..", "workflows", "testdata", "histories", name+".json"),
		append(raw, '\n'), 0o644))
}

func TestAPartThatCannotBeKeptLeavesNoCheckpoint(t *testing.T) {
	s := newSite(t)
	s.apply()
	s.sh("mv code away")
	r := s.do("env", "checkpoint", s.name)
	require.Equal(t, statusFailed, r.status)
	require.Contains(t, r.err, s.root+"/code")
	s.sh("mv away code; ls running")
	require.Empty(t, s.view().Checkpoints)
	kept, err := filepath.Glob(filepath.Join(s.worker.Config.State, "folder", "store", "trees", "cp-*"))
	require.NoError(t, err)
	require.Empty(t, kept)
}

func TestADamagedCheckpointIsRefusedBeforeAnythingStops(t *testing.T) {
	s := newSite(t)
	s.apply()
	first := s.checkpoint()
	s.sh("echo other >uploads/one")
	now := s.is()
	chunks, err := filepath.Glob(filepath.Join(s.worker.Config.State, "folder", "store", "chunks", "*", "*"))
	require.NoError(t, err)
	for _, chunk := range chunks {
		require.NoError(t, os.Chmod(chunk, 0o600))
		require.NoError(t, os.WriteFile(chunk, []byte("damaged"), 0o600))
	}
	r := s.do("env", "rollback", s.name, first.ID)
	require.Equal(t, statusFailed, r.status)
	require.Contains(t, r.out, "stop             unit.stop          never ran")
	require.Equal(t, now, s.is())
}

func TestCheckpointsArePinnedDeletedAndPruned(t *testing.T) {
	s := newSite(t)
	s.apply()
	first := s.checkpoint("--pin")
	r := s.do("env", "delete", s.name, first.ID)
	require.Equal(t, statusUsage, r.status)
	require.Contains(t, r.err, "checkpoint "+first.ID+" is pinned: unpin it first")
	require.Equal(t, statusUsage, s.do("env", "remove", s.name).status)
	require.Contains(t, s.ok("env", "unpin", s.name, first.ID), "is unpinned")
	second := s.checkpoint()
	s.ok("env", "pin", s.name, second.ID)
	require.Equal(t, 1, s.view().Usage.Pinned)
	s.ok("env", "unpin", s.name, second.ID)
	s.ok("env", "delete", s.name, second.ID)
	require.Contains(t, s.do("env", "rollback", s.name, second.ID).err, "has no checkpoint "+second.ID)
	require.Contains(t, s.ok("env", "prune", s.name), "deleted: 0, kept: 1")

	// The retention of another document lets go of what it does not keep, at the next checkpoint.
	file, err := os.ReadFile(filepath.Join(s.root, "environment.yaml"))
	require.NoError(t, err)
	s.write("environment.yaml", string(file)+"retention: {bytes: 1}\n")
	s.apply()
	third := s.checkpoint()
	v := s.view()
	require.Equal(t, []string{third.ID}, idsOf(v.Checkpoints))
	require.Contains(t, s.ok("env", "remove", s.name), "deleted: 1, kept: 0")
	kept, err := filepath.Glob(filepath.Join(s.worker.Config.State, "folder", "store", "trees", "cp-*"))
	require.NoError(t, err)
	require.Len(t, kept, 2*3, "what was read ahead, until its record is released")
	require.Equal(t, statusUsage, s.do("env", "checkpoint", s.name).status)
}

func idsOf(all []environment.Checkpoint) (ids []string) {
	for _, c := range all {
		ids = append(ids, c.ID)
	}
	return ids
}

// TestAnEnvironmentSurvivesTheLossOfItsWorkflow terminates it, and applies the file again.
func TestAnEnvironmentSurvivesTheLossOfItsWorkflow(t *testing.T) {
	s := newSite(t)
	s.apply()
	first := s.checkpoint("--pin", "--notes", "kept")
	s.sh("echo other >uploads/one")
	require.NoError(t, s.client.TerminateWorkflow(t.Context(), environment.WorkflowID(s.name), "", "lost"))
	s.apply()
	require.Equal(t, []environment.Checkpoint{first}, s.view().Checkpoints)
	s.rollBack(first.ID)
	require.Equal(t, "first\n", s.sh("cat uploads/one"))
	require.Contains(t, s.ok("env", "list"), s.name)
}

// TestADatabaseGoesBackWithTheRest has a unit that holds a session, and a migration that fails.
func TestADatabaseGoesBackWithTheRest(t *testing.T) {
	database := postgrestest.Need(t)
	database.Exec(t, database.Admin("postgres"), "ALTER ROLE "+postgrestest.Role+" CREATEDB")
	name := database.Database(t, "CREATE TABLE orders (id serial PRIMARY KEY, total int)", "INSERT INTO orders (total) VALUES (1), (2)")
	s := newSite(t)
	s.stopWorker()
	s.startWorker(s.worlds, func(c *host.Config) {
		c.Secrets = map[string]string{"SHOP_DSN": "file:" + filepath.Join(s.root, "dsn")}
		*c = c.With(&postgres.Settings{Databases: map[string]postgres.DatabaseSettings{"shop": {DSN: "SHOP_DSN"}}})
	})
	s.write("dsn", database.DSN(name))
	file, err := os.ReadFile(filepath.Join(s.root, "environment.yaml"))
	require.NoError(t, err)
	s.write("environment.yaml", string(file)+"  orders: {postgres: shop}\n")
	content := func() string {
		return readText(t, database.Admin(name), "SELECT string_agg(orders::text, ' ' ORDER BY id) FROM orders")
	}
	s.apply()
	before := content()
	first := s.checkpoint()
	require.Len(t, first.Parts, 3)
	database.Exec(t, database.Admin(name), "ALTER TABLE orders ADD note text DEFAULT 'x'", "DELETE FROM orders WHERE id = 1",
		"INSERT INTO orders (total) VALUES (3)")
	s.sh("echo other >uploads/one")
	broken := content()
	back := s.rollBack(first.ID)
	require.Equal(t, before, content())
	require.Equal(t, "first\n", s.sh("cat uploads/one"))
	require.Equal(t, environment.RestoreDatabases, back.Stages[4].Stage)
	diff := s.ok("env", "diff", s.name, first.ID, back.Safety.ID)
	require.Contains(t, diff, "public.orders")
	require.Contains(t, diff, "2 rows then, 2 now, with other values")
	require.Contains(t, diff, "folder "+s.root+"/uploads: 1 different path")
	require.NotContains(t, s.ok("env", "diff", s.name, first.ID), "orders")
	require.Contains(t, s.do("env", "diff", s.name, first.ID, "cp-none").err, "has no checkpoint cp-none")
	require.Equal(t, []string{"orders"}, back.Stages[4].Parts)
	s.rollBack(back.Safety.ID)
	require.Equal(t, broken, content())

	// A failing health check takes the database back as well, with what the unit has written meanwhile.
	s.sh("rm uploads/one; touch veto uploads/two")
	r := s.do("env", "rollback", s.name, first.ID)
	require.Equal(t, statusFailed, r.status)
	require.Contains(t, r.err, "is not healthy")
	require.Equal(t, broken, content())

	require.Contains(t, s.ok("rollback", first.Task, "--watch"), "and stays")
	require.Equal(t, broken, content())
	s.sh("rm veto")
	s.rollBack(first.ID)
	require.Equal(t, before, content())
	for _, c := range s.view().Checkpoints {
		s.ok("env", "delete", s.name, c.ID)
	}
	rolledBack := strings.TrimPrefix(first.Parts[1].Snapshot, "cp-") // which the rollback holds until retention looks
	require.Equal(t, "unwind_checkpoint_"+rolledBack, readText(t, database.Admin("postgres"),
		"SELECT string_agg(datname, ' ') FROM pg_database WHERE datname LIKE 'unwind_checkpoint_%'"))
}

// TestAnSQLiteDatabaseGoesBackWithTheRest has a database that a program has open all the time.
func TestAnSQLiteDatabaseGoesBackWithTheRest(t *testing.T) {
	testrun.NeedProgram(t, "sqlite3", "install the package sqlite3")
	s := newSite(t)
	s.stopWorker()
	s.startWorker(s.worlds, func(c *host.Config) { *c = c.With(&sqlite.Settings{Roots: []string{s.root}}) })
	file, err := os.ReadFile(filepath.Join(s.root, "environment.yaml"))
	require.NoError(t, err)
	s.write("environment.yaml", string(file)+"  orders: {sqlite: "+s.root+"/orders.db}\n")
	s.sh(`sqlite3 orders.db "PRAGMA journal_mode = WAL; CREATE TABLE orders (id INTEGER PRIMARY KEY, total INT);
		INSERT INTO orders (total) VALUES (1), (2)"`)
	open := exec.Command("sqlite3", "-batch", filepath.Join(s.root, "orders.db"))
	in, err := open.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, open.Start())
	t.Cleanup(func() {
		require.NoError(t, in.Close())
		require.NoError(t, open.Wait())
	})
	content := func() string { return s.sh(`sqlite3 orders.db ".dump orders"`) }
	s.apply()
	before := content()
	first := s.checkpoint()
	require.Equal(t, "sqlite", first.Parts[1].Kind)
	require.Positive(t, first.Parts[1].Bytes)
	s.sh(`sqlite3 orders.db "ALTER TABLE orders ADD note TEXT DEFAULT 'x'; DELETE FROM orders WHERE id = 1"; echo other >uploads/one`)
	broken := content()
	back := s.rollBack(first.ID)
	require.Equal(t, before, content())
	require.Equal(t, "first\n", s.sh("cat uploads/one"))
	require.Equal(t, environment.RestoreDatabases, back.Stages[4].Stage)
	require.Equal(t, []string{"orders"}, back.Stages[4].Parts)
	diff := s.ok("env", "diff", s.name, first.ID, back.Safety.ID)
	require.Contains(t, diff, "sqlite "+s.root+"/orders.db: 2 different places")
	require.Contains(t, diff, "~ table orders (2 rows -> 1 row)")
	s.rollBack(back.Safety.ID)
	require.Equal(t, broken, content())

	// A failing health check takes the database back as well.
	s.sh("rm uploads/one; touch veto uploads/two")
	require.Equal(t, statusFailed, s.do("env", "rollback", s.name, first.ID).status)
	require.Equal(t, broken, content())
	require.Contains(t, s.ok("rollback", first.Task, "--watch"), "and stays")
	require.Equal(t, broken, content())
	s.sh("rm veto")

	kept := filepath.Join(s.worker.Config.State, "sqlite", "checkpoints", first.Parts[1].Snapshot)
	raw, err := os.ReadFile(kept)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(kept, append(slices.Clone(raw), 0), 0o600))
	r := s.do("env", "rollback", s.name, first.ID)
	require.Equal(t, statusFailed, r.status)
	require.Contains(t, r.out, "stop             unit.stop          never ran")
	require.Equal(t, broken, content())
	require.NoError(t, os.WriteFile(kept, raw, 0o600))
	s.rollBack(first.ID)
	require.Equal(t, before, content())
}

// TestARedisDatabaseGoesBackWithTheFiles also where it was flushed, and where what a failed rollback
// leaves was changed since.
func TestARedisDatabaseGoesBackWithTheFiles(t *testing.T) {
	server := redistest.Need(t)
	number := server.Database()
	c := server.Client(number)
	t.Cleanup(func() { _ = c.Close() })
	s := newSite(t)
	s.write("redis", server.URL(number))
	running := filepath.Join(s.root, "running")
	s.stopWorker()
	s.startWorker(s.worlds, func(c *host.Config) {
		c.Secrets = map[string]string{"CACHE_URL": "file:" + filepath.Join(s.root, "redis")}
		*c = c.With(&redis.Settings{Databases: map[string]redis.DatabaseSettings{"cache": {URL: "CACHE_URL"}}}).With(
			&unit.Settings{Units: map[string]unit.Unit{"app": {
				Start:   []string{"sh", "-c", "touch " + running + "; redis-cli -s " + server.Socket() + " -n " + strconv.Itoa(number) + " INCR starts"},
				Running: []string{"test", "-e", running}, Stop: []string{"rm", running},
				Health: unit.Health{Command: []string{"sh", "-c", "! test -e " + filepath.Join(s.root, "veto") + " -a -e " + filepath.Join(s.root, "uploads", "one")}},
			}}})
	})
	file, err := os.ReadFile(filepath.Join(s.root, "environment.yaml"))
	require.NoError(t, err)
	s.write("environment.yaml", strings.Replace(string(file), "uploads:", "carts: {redis: other}\n  uploads:", 1))
	refused := s.do("env", "apply", filepath.Join(s.root, "environment.yaml"))
	require.Equal(t, statusUsage, refused.status)
	require.Contains(t, refused.err, `"other" is not one of this worker's redis.databases: cache`)
	s.write("environment.yaml", strings.Replace(string(file), "uploads:", "carts: {redis: cache}\n  uploads:", 1))
	redistest.Run(t, c, "HSET cart:1 apples 2", "RPUSH queue a b", "XADD log 1-1 a b", "SET session x EX 100000")
	content := func() string {
		t.Helper()
		dump, err := redistest.Dump(t.Context(), c)
		require.NoError(t, err)
		return regexp.MustCompile(`"starts".*\n`).ReplaceAllString(dump, "") // by the unit
	}
	s.apply()
	before := content()
	first := s.checkpoint()
	require.Equal(t, "redis", first.Parts[0].Kind)
	require.Positive(t, first.Parts[0].Bytes)
	redistest.Run(t, c, "DEL cart:1", "SET queue text", "PERSIST session", "SADD made 1")
	s.sh("echo other >uploads/one")
	broken := content()
	back := s.rollBack(first.ID)
	require.Equal(t, before, content())
	require.Equal(t, "first\n", s.sh("cat uploads/one"))
	require.Equal(t, environment.RestoreDatabases, back.Stages[4].Stage)
	require.Equal(t, []string{"carts"}, back.Stages[4].Parts)
	diff := s.ok("env", "diff", s.name, first.ID, back.Safety.ID)
	require.Contains(t, diff, "redis cache: ")
	require.Contains(t, diff, `+ "made" (set)`)
	s.rollBack(back.Safety.ID)
	require.Equal(t, broken, content())

	// A failing health check takes the database back as well, with what the unit has written meanwhile.
	s.sh("rm uploads/one; touch veto uploads/two")
	starts := c.Get(t.Context(), "starts").Val()
	r := s.do("env", "rollback", s.name, first.ID)
	require.Equal(t, statusFailed, r.status)
	require.Contains(t, r.err, "is not healthy")
	require.Equal(t, broken, content())
	require.Equal(t, starts, minusOne(t, c.Get(t.Context(), "starts").Val()), "it was started once since it was put back")
	s.sh("rm veto")

	kept := filepath.Join(s.worker.Config.State, "redis", "checkpoints", first.Parts[0].Snapshot)
	raw, err := os.ReadFile(kept)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(kept, append(slices.Clone(raw), 0), 0o600))
	r = s.do("env", "rollback", s.name, first.ID)
	require.Equal(t, statusFailed, r.status)
	require.Contains(t, r.out, "stop             unit.stop          never ran")
	require.Equal(t, broken, content())
	require.NoError(t, os.WriteFile(kept, raw, 0o600))
	require.NoError(t, c.FlushDB(t.Context()).Err())
	s.rollBack(first.ID)
	require.Equal(t, before, content())
	for _, c := range s.view().Checkpoints {
		s.ok("env", "delete", s.name, c.ID)
	}
	require.NoFileExists(t, kept)
}

func minusOne(t *testing.T, number string) string {
	t.Helper()
	n, err := strconv.Atoi(number)
	require.NoError(t, err)
	return strconv.Itoa(n - 1)
}

// TestContainersAndVolumesGoBack has a container that is the unit, and an upgrade in it
// that fails.
func TestContainersAndVolumesGoBack(t *testing.T) {
	containertest.NeedFiles(t)
	docker := containertest.Docker(t)
	volume := "unwind-test-" + containertest.Random()
	t.Cleanup(func() { // after the container is gone
		require.NoError(t, containertest.Docker(containertest.Outliving(t)).VolumeRemove(context.Background(), volume, true))
	})
	box := containertest.Start(t, func(c *container.Config, h *container.HostConfig, _ *network.NetworkingConfig) {
		c.StopTimeout = new(int)
		h.Mounts = []mount.Mount{{Type: mount.TypeVolume, Source: volume, Target: "/data"}}
	})
	s := newSite(t)
	s.stopWorker()
	s.startWorker(s.worlds, func(c *host.Config) {
		*c = c.With(&folder.Settings{Roots: []string{s.root}, Engine: containertest.Socket}).With(
			&unit.Settings{Units: map[string]unit.Unit{"app": {Container: box.Name,
				Health: unit.Health{Command: []string{"sh", "-ec", "cd " + s.root + "; ! test -e veto -a -e uploads/one"}}}}})
	})
	parts := "  web: {container: " + box.Name + "}\n  data: {volume: " + volume + "}\n"
	s.write("environment.yaml", "name: "+s.name+"\nparts:\n"+parts)
	r := s.do("env", "apply", filepath.Join(s.root, "environment.yaml"))
	require.Equal(t, statusUsage, r.status)
	require.Contains(t, r.err, "parts.web.container: "+box.Name+" is put back while it is stopped; name the unit that stops it")
	t.Cleanup(func() {
		containertest.ClearJournal(t, filepath.Join(s.worker.Config.State, "folder", "journal"))
	})
	s.write("environment.yaml", "name: "+s.name+"\nunit: app\nhealthy: 100ms\nparts:\n  uploads: {folder: "+s.root+"/uploads}\n"+parts)
	s.apply()
	box.Run(t, "echo one >/srv/version; echo one >/data/schema; mkdir /data/rows; echo 1 >/data/rows/a")
	before := containertest.Files(t, box)
	first := s.checkpoint()
	require.True(t, first.Quiesced)
	require.True(t, *first.Healthy)
	require.Equal(t, before, containertest.Files(t, box))
	box.Run(t, "echo two >/srv/version; rm /bin/gzip; echo two >/data/schema; rm -r /data/rows")
	s.sh("echo other >uploads/one")
	broken := containertest.Files(t, box)
	diff := s.ok("env", "diff", s.name, first.ID)
	for _, line := range []string{"container " + box.Name + ": 4 different paths", "~ /srv/version", "- /bin/gzip", "volume " + volume + ": 4 different paths",
		"- /rows/a", "folder " + s.root + "/uploads: 1 different path", "~ /one"} {
		require.Contains(t, diff, line)
	}
	back := s.rollBack(first.ID)
	require.Equal(t, before, containertest.Files(t, box))
	require.Equal(t, []string{"data", "uploads", "web"}, back.Stages[3].Parts)
	require.Equal(t, "container", first.Parts[2].Kind)
	s.rollBack(back.Safety.ID)
	require.Equal(t, broken, containertest.Files(t, box))

	// A container that was renamed is not guessed at.
	require.NoError(t, docker.ContainerRename(t.Context(), box.ID, box.Name+"-old"))
	require.NoError(t, docker.ContainerStop(t.Context(), box.ID, container.StopOptions{}))
	deployed := deployAs(t, docker, box, volume)
	r = s.do("env", "rollback", s.name, first.ID)
	require.Equal(t, statusFailed, r.status)
	require.Contains(t, r.err, "is called "+box.Name+"-old now")
	require.Contains(t, r.out, "stop             unit.stop          never ran")
	require.Equal(t, "other\n", s.sh("cat uploads/one"))

	// One that was removed is made again, and what was deployed comes back with its own id.
	require.NoError(t, docker.ContainerRemove(t.Context(), box.ID, container.RemoveOptions{Force: true}))
	upgraded := containertest.Files(t, box)
	s.sh("rm uploads/one; touch veto")
	r = s.do("env", "rollback", s.name, first.ID)
	require.Equal(t, statusFailed, r.status, "it does not work once it is back")
	require.Equal(t, deployed, box.Inspect(t).ID)
	require.True(t, box.Inspect(t).State.Running)
	require.Equal(t, upgraded, containertest.Files(t, box))
	s.sh("rm veto")
	back = s.rollBack(first.ID)
	require.Contains(t, back.Stages[3].Notes, "with another id")
	require.Equal(t, before, containertest.Files(t, box))
	require.NotContains(t, []string{box.ID, deployed}, box.Inspect(t).ID)
	require.True(t, box.Inspect(t).State.Running)
	require.Contains(t, s.ok("env", "diff", s.name, first.ID), "container "+box.Name+": 0 different paths")
	s.rollBack(back.Safety.ID)
	require.Equal(t, upgraded, containertest.Files(t, box))
	require.Equal(t, deployed, box.Inspect(t).ID)

	// A container that is gone is made again, and a rollback that leads there makes it go.
	require.NoError(t, docker.ContainerRemove(t.Context(), box.Name, container.RemoveOptions{Force: true}))
	back = s.rollBack(first.ID)
	require.Equal(t, before, containertest.Files(t, box))
	s.rollBack(back.Safety.ID)
	_, err := docker.ContainerInspect(t.Context(), box.Name)
	require.Error(t, err)
	s.rollBack(first.ID)
	require.Equal(t, before, containertest.Files(t, box))
}

// TestAPausedUnitGoesOn has a container that is paused for a checkpoint: its program counts on in
// memory, what it had written is kept, and a checkpoint that fails leaves it running.
func TestAPausedUnitGoesOn(t *testing.T) {
	containertest.NeedFiles(t)
	volume := "unwind-test-" + containertest.Random()
	t.Cleanup(func() { // after the container is gone
		require.NoError(t, containertest.Docker(containertest.Outliving(t)).VolumeRemove(context.Background(), volume, true))
	})
	box := containertest.Start(t, func(c *container.Config, h *container.HostConfig, _ *network.NetworkingConfig) {
		c.StopTimeout = new(int)
		c.Cmd = []string{"sh", "-c", "n=0; while :; do n=$((n+1)); echo $n >/data/count; sleep 0.01; done"}
		h.Mounts = []mount.Mount{{Type: mount.TypeVolume, Source: volume, Target: "/data"}}
	})
	s := newSite(t)
	s.stopWorker()
	s.startWorker(s.worlds, func(c *host.Config) {
		*c = c.With(&folder.Settings{Roots: []string{s.root}, Engine: containertest.Socket}).With(
			&unit.Settings{Units: map[string]unit.Unit{"app": {Container: box.Name}}}).With(
			&sqlite.Settings{Roots: []string{s.root}})
	})
	t.Cleanup(func() {
		containertest.ClearJournal(t, filepath.Join(s.worker.Config.State, "folder", "journal"))
	})
	s.write("environment.yaml", "name: "+s.name+"\nunit: app\nquiesce: pause\nparts:\n"+
		"  uploads: {folder: "+s.root+"/uploads}\n  data: {volume: "+volume+"}\n  orders: {sqlite: "+s.root+"/orders.db}\n")
	s.sh("touch orders.db")
	s.apply()
	require.Contains(t, s.ok("env", "show", s.name), "unit app is paused while the parts are captured, and stopped while they are put back")
	started := box.Inspect(t).State.StartedAt
	first := s.checkpoint()
	require.True(t, first.Quiesced)
	require.Equal(t, started, box.Inspect(t).State.StartedAt)
	require.Equal(t, container.StateRunning, box.Inspect(t).State.Status)

	in, err := box.VolumeInspect(t.Context(), volume)
	require.NoError(t, err)
	count := func() int {
		n, _ := strconv.Atoi(strings.TrimSpace(s.sh("cat " + in.Mountpoint + "/count")))
		return n
	}
	was := count()
	kept := s.ok("env", "diff", s.name, first.ID)
	require.Contains(t, kept, "volume "+volume+": 1 different path")
	require.Contains(t, kept, "~ /count")
	require.Eventually(t, func() bool { return count() > was }, 10*time.Second, 10*time.Millisecond, "it counts on")

	s.sh("echo no database >orders.db")
	r := s.do("env", "checkpoint", s.name)
	require.Equal(t, statusFailed, r.status)
	require.Contains(t, r.out, "unit.pause")
	require.Equal(t, container.StateRunning, box.Inspect(t).State.Status)
	require.Equal(t, started, box.Inspect(t).State.StartedAt)
	s.sh(": >orders.db; echo other >uploads/one")
	s.rollBack(first.ID)
	require.Equal(t, "first\n", s.sh("cat uploads/one"))
	require.Equal(t, container.StateRunning, box.Inspect(t).State.Status)
	require.NotEqual(t, started, box.Inspect(t).State.StartedAt, "a rollback stops it")
}

// deployAs makes and starts another container under the name of a box.
func deployAs(t *testing.T, docker *client.Client, box *containertest.Box, volume string) (id string) {
	t.Helper()
	made, err := docker.ContainerCreate(t.Context(),
		&container.Config{Image: containertest.Greens(t)[0], Env: []string{"RELEASE=2"}, StopTimeout: new(int)},
		&container.HostConfig{NetworkMode: "none", Mounts: []mount.Mount{{Type: mount.TypeVolume, Source: volume, Target: "/data"}}},
		nil, nil, box.Name)
	require.NoError(t, err)
	require.NoError(t, docker.ContainerStart(t.Context(), made.ID, container.StartOptions{}))
	return made.ID
}

func readText(t *testing.T, dsn, sql string) (text string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer c.Close(t.Context())
	require.NoError(t, c.QueryRow(t.Context(), sql).Scan(&text))
	return text
}

// TestAnAgentTakesCheckpoints calls the tools that an agent is given for an environment.
func TestAnAgentTakesCheckpoints(t *testing.T) {
	s := newSite(t)
	s.apply()
	told := make(chan string, 100)
	a := s.newAgent(&sdk.ClientOptions{ProgressNotificationHandler: func(_ context.Context,
		r *sdk.ProgressNotificationClientRequest) {
		told <- r.Params.Message
	}}, "--environment", s.name)
	tools, err := a.ListTools(t.Context(), nil)
	require.NoError(t, err)
	hints := map[string][2]bool{}
	for _, tool := range tools.Tools {
		hints[tool.Name] = [2]bool{tool.Annotations.ReadOnlyHint, *tool.Annotations.DestructiveHint}
	}
	for name, want := range map[string][2]bool{"create_checkpoint": {}, "list_checkpoints": {true, false}, "rollback_app": {false, true},
		"pin_checkpoint": {}, "delete_checkpoint": {false, true}} {
		require.Contains(t, hints, name)
		require.Equal(t, want, hints[name], name)
	}
	ask := func(tool string, in arguments, out any) string {
		call := &sdk.CallToolParams{Name: tool, Arguments: in}
		call.SetProgressToken(tool)
		r, err := a.CallTool(t.Context(), call)
		require.NoError(t, err)
		text := r.Content[0].(*sdk.TextContent).Text
		if out == nil {
			require.True(t, r.IsError, text)
			return text
		}
		require.False(t, r.IsError, text)
		require.NoError(t, json.Unmarshal([]byte(text), out))
		return text
	}
	before := s.is()
	var first, again apps.Checkpoint
	create := arguments{"app_id": s.name, "notes": "before risky refactor", "pinned": true, "request": "one"}
	text := ask("create_checkpoint", create, &first)
	require.Contains(t, text, `"vm_snapshot_id":null,"db_snapshot_id":null,"deploy_id":null`)
	require.Equal(t, strings.TrimSpace(s.sh("git -C code rev-parse HEAD")), *first.Ref)
	require.Equal(t, environment.Agent, first.Trigger)
	require.Contains(t, first.Next, `checkpoint_id="`+first.ID+`"`)
	ask("create_checkpoint", create, &again)
	require.Equal(t, first, again, "a repeated call is the same call")

	s.sh("echo bad >code/page; echo more >>uploads/one")
	broken := s.is()
	var back, same apps.RolledBack
	rollback := arguments{"app_id": s.name, "checkpoint_id": first.ID, "request": "one"}
	ask("rollback_app", rollback, &back)
	require.Equal(t, before, s.is())
	require.Len(t, back.Stages, 6)
	for _, stage := range back.Stages {
		require.Equal(t, string(stage.Stage)+": "+stage.Notes, <-told)
	}
	s.sh("touch uploads/later")
	ask("rollback_app", rollback, &same)
	require.Equal(t, back, same)
	s.sh("rm uploads/later")
	ask("rollback_app", arguments{"app_id": s.name, "checkpoint_id": back.Safety.ID}, &back)
	require.Equal(t, broken, s.is())

	var all apps.Checkpoints
	ask("list_checkpoints", arguments{"app_id": s.name}, &all)
	require.Len(t, all.Checkpoints, 3)
	require.Equal(t, 1, all.Usage.Pinned)
	require.Contains(t, ask("delete_checkpoint", arguments{"app_id": s.name, "checkpoint_id": first.ID}, nil), "unpin it first")
	var deleted mcp.DeletedCheckpoint
	ask("delete_checkpoint", arguments{"app_id": s.name, "checkpoint_id": back.Safety.ID}, &deleted)
	require.True(t, deleted.Deleted)
	var pinned apps.Checkpoint
	ask("pin_checkpoint", arguments{"app_id": s.name, "checkpoint_id": all.Checkpoints[1].ID}, &pinned)
	require.True(t, pinned.Pinned)
	require.Contains(t, ask("list_checkpoints", arguments{"app_id": "other"}, nil), `there is no environment "other" for you; you may use `+s.name)
	require.Contains(t, ask("rollback_app", arguments{"app_id": s.name, "checkpoint_id": "cp-none"}, nil), "has no checkpoint cp-none")

	plain, err := s.newAgent(nil).ListTools(t.Context(), nil)
	require.NoError(t, err)
	require.False(t, slices.ContainsFunc(plain.Tools, func(tool *sdk.Tool) bool { return tool.Name == "rollback_app" }),
		"only an agent that is given an environment has these tools")
	require.Contains(t, s.do("mcp", "--environment", "No!").err, `--environment "No!" must begin with a small letter`)
}

// TestARollbackOfTheTaskLeavesTheCheckpoint has somebody roll back the task that took it.
func TestARollbackOfTheTaskLeavesTheCheckpoint(t *testing.T) {
	s := newSite(t)
	s.apply()
	first := s.checkpoint()
	require.Contains(t, s.ok("rollback", first.Task, "--watch"), "is that of environment-"+s.name+" by now, and stays")
	s.sh("echo other >uploads/one")
	s.rollBack(first.ID)
	require.Equal(t, "first\n", s.sh("cat uploads/one"))
}

// TestAnUnitThatDidNotRunStaysStopped takes a checkpoint of what is stopped.
func TestAUnitThatDidNotRunStaysStopped(t *testing.T) {
	s := newSite(t)
	s.apply()
	s.sh("rm running")
	first := s.checkpoint()
	s.sh("! test -e running")
	r := s.rollBack(first.ID)
	require.Equal(t, "ok", r.Stages[len(r.Stages)-1].Status)
	s.sh("test -e running")
}

func TestBadEnvironmentsAreRefused(t *testing.T) {
	s := newSite(t)
	apply := func(content string) typed {
		s.write("bad.yaml", content)
		return s.do("env", "apply", filepath.Join(s.root, "bad.yaml"))
	}
	for content, said := range map[string]string{
		"":                                 "it is empty; `starter env init` writes one",
		"name: a\nparts: {}":               "parts: name at least one part",
		"name: A\nparts: {}":               `name: "A" must begin with a small letter`,
		"name: a\nprats: {}":               "field prats not found; known fields: name, owner, on, unit",
		"name: a\nparts: {x: {folder: x}}": `parts.x.folder: "x" must be an absolute path`,
		"name: a\nparts: {x: {folder: /x, git: /y}}":                         "parts.x: it has 2 kinds; give one of folder, git, volume, container, postgres, redis, sqlite, disk",
		"name: a\nparts: {x: {sqlite: app.db}}":                              `parts.x.sqlite: "app.db" must be an absolute path`,
		"name: a\nparts: {x: {folder: /x, ignored: true}}":                   "parts.x.ignored: it says what becomes of files that git ignores",
		"name: a\nparts: {x: {folder: /x}, y: {git: /x}}":                    "parts.y: /x is already the part x",
		"name: a\nparts: {x: {disk: /x, cpus: 2}}":                           "line 2: field cpus not found; known fields: name, owner, on, unit",
		"name: a\nhealthy: soon\nparts: {x: {folder: /x}}":                   `healthy: "soon" must be a time above zero`,
		"name: a\nparts: {x: {folder: /x}}\nretention: {last: -1}":           "retention.last: -1 must not be below 0",
		"name: a\nparts: {x: {folder: /nowhere/x}}":                          "environment a cannot be checkpointed: parts.x: path: ",
		"name: a\nunit: other\nparts: {x: {folder: " + s.root + "/uploads}}": `this worker has no unit "other"`,
		"name: a\nparts: {x: {postgres: shop}}":                              "postgres",
		"name: a\nparts: {x: {folder: /x}}\n---\nname: b":                    "a second document begins",
	} {
		r := apply(content)
		require.Equal(t, statusUsage, r.status, "%s: %s%s", content, r.out, r.err)
		require.Contains(t, r.err, said, content)
		require.Contains(t, r.err, "bad.yaml", content)
	}
	require.Contains(t, s.do("env", "checkpoint", "nothing").err, `there is no environment "nothing"`)
	require.Contains(t, s.do("env", "checkpoint", "No!").err, `"No!" must begin with a small letter`)
	require.Contains(t, s.do("env", "checkpoint", s.name, "--trigger", "x").err, `--trigger "x": give one of deploy, manual, agent`)
}

// TestOneOperationAtATime asks for a rollback while the unit takes its time to stop.
func TestOneOperationAtATime(t *testing.T) {
	s := newSite(t)
	s.apply()
	first := s.checkpoint()
	s.sh("touch hold")
	taking := s.begin("env", "checkpoint", s.name)
	require.Eventually(t, func() bool { return s.view().Doing != nil }, waitFor, tick)
	r := s.do("env", "rollback", s.name, first.ID)
	require.Equal(t, statusUsage, r.status)
	require.Contains(t, r.err, "is busy since")
	require.Contains(t, s.ok("env", "show", s.name), "busy since")
	s.sh("rm hold")
	require.Equal(t, statusOK, s.ended(taking).status)
	s.rollBack(first.ID)
}
