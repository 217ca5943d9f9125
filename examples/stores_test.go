package examples_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/etcd"
	"github.com/seed-62bf7108/unwind/activities/etcd/etcdtest"
	"github.com/seed-62bf7108/unwind/activities/file"
	"github.com/seed-62bf7108/unwind/activities/mcpserver"
	"github.com/seed-62bf7108/unwind/activities/mcpserver/mcptest"
	"github.com/seed-62bf7108/unwind/activities/postgres"
	"github.com/seed-62bf7108/unwind/activities/postgres/postgrestest"
	"github.com/seed-62bf7108/unwind/activities/redis"
	"github.com/seed-62bf7108/unwind/activities/redis/redistest"
	"github.com/seed-62bf7108/unwind/activities/sqlite"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/testrun"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// stores are places of all kinds that keep what tasks write. A task writes one value into each of
// them, under its number.
type stores struct {
	*player
	config host.Config
	kinds  []store
}

// store is one of them. Its step is called by its name.
type store struct {
	name string
	step string                       // of task %[1]d
	put  func(task int, value string) // as somebody else does
	look func() string                // judged without the world's code
	// move moves what the task has written away, or back. A store that has none knows a thing by its
	// value alone.
	move func(task int, away bool)
}

// storeTasks is how many tasks write into the stores.
const storeTasks = 5

// declared says how a note is undone, in words that earlier workers know.
const declared = `
tools:
  get_note: {reads: true}
  put_note:
    look: {tool: get_note, with: {id: "${{ arguments.id }}"}}
    undo:
      - tool: put_note
        with: {id: "${{ arguments.id }}", body: "${{ before.data.body }}"}
`

func newStores(t *testing.T) *stores {
	t.Helper()
	testrun.NeedProgram(t, "sqlite3", "install the package sqlite3")
	bills, caches, keyServer := postgrestest.Need(t), redistest.Need(t), etcdtest.Need(t)
	data, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	s := &stores{player: dial(t, t.Name())}
	secret := func(value string) string {
		file := filepath.Join(t.TempDir(), "secret")
		require.NoError(t, os.WriteFile(file, []byte(value), 0o600))
		return "file:" + file
	}

	path := func(task int) string { return filepath.Join(data, fmt.Sprintf("of-%d", task), "file") }
	for task := range storeTasks { // each its own: the time of a folder is a loss where others write into it
		require.NoError(t, os.Mkdir(filepath.Dir(path(task+1)), 0o700))
	}
	s.add(store{
		name: "file", step: "uses: file.write, with: {path: " + data + "/of-%[1]d/file, content: of the task}",
		put: func(task int, value string) { require.NoError(t, os.WriteFile(path(task), []byte(value), 0o600)) },
		move: func(task int, away bool) {
			from, to := path(task), path(task)+".away"
			if !away {
				from, to = to, from
			}
			require.NoError(t, os.Rename(from, to))
		},
		look: func() (all string) {
			for task := range storeTasks {
				content, err := os.ReadFile(path(task + 1))
				require.NoError(t, err)
				all += string(content) + "\n"
			}
			return all
		},
	})
	shop := sqliteIn(t, filepath.Join(data, "shop.db"))
	shop("CREATE TABLE item (id INTEGER PRIMARY KEY, value TEXT)")
	s.add(store{
		name: "sqlite",
		step: "uses: sqlite.exec, with: {database: " + data +
			"/shop.db, sql: UPDATE item SET value = 'of the task' WHERE id = %[1]d}",
		put: func(task int, value string) {
			shop(fmt.Sprintf("INSERT OR REPLACE INTO item VALUES (%d, '%s')", task, value))
		},
		look: func() string { return shop(".dump --preserve-rowids") },
	})
	var tables string
	for task := range storeTasks {
		tables += fmt.Sprintf("CREATE TABLE item_%d (id int PRIMARY KEY, value text); ", task+1)
	}
	billing := bills.Database(t, tables)
	onBilling := func(sql string, args ...any) {
		postgrestest.Exec(t, bills.Admin(billing), fmt.Sprintf(sql, args...))
	}
	s.add(store{
		name: "postgres",
		step: "uses: postgres.exec, with: {database: billing, sql: UPDATE item_%[1]d SET value = 'of the task' WHERE id = 1}",
		put: func(task int, value string) {
			onBilling("INSERT INTO item_%d VALUES (1, '%s') ON CONFLICT (id) DO UPDATE SET value = EXCLUDED.value", task, value)
		},
		move: func(task int, away bool) {
			from, to := "item", "away"
			if !away {
				from, to = to, from
			}
			onBilling("ALTER TABLE %s_%d RENAME TO %s_%d", from, task, to, task)
		},
		look: func() string {
			dump, err := postgrestest.DumpSchema(bills.Admin(billing), "public")
			require.NoError(t, err)
			return dump
		},
	})
	number := caches.Database()
	cache := caches.Client(number)
	t.Cleanup(func() { require.NoError(t, cache.Close()) })
	s.add(store{
		name: "redis", step: "uses: redis.exec, with: {database: cache, commands: [[SET, item:%[1]d, of the task]]}",
		put: func(task int, value string) {
			require.NoError(t, cache.Set(t.Context(), fmt.Sprintf("item:%d", task), value, 0).Err())
		},
		look: func() string {
			dump, err := redistest.Dump(t.Context(), cache)
			require.NoError(t, err)
			return dump
		},
	})
	namespace, keys := keyServer.Namespace(), keyServer.Client(t)
	s.add(store{
		name: "etcd", step: "uses: etcd.txn, with: {database: settings, put: [{key: item/%[1]d, value: of the task}]}",
		put: func(task int, value string) {
			_, err := keys.Put(t.Context(), fmt.Sprintf("%sitem/%d", namespace, task), value)
			require.NoError(t, err)
		},
		look: func() string {
			dump, err := etcdtest.Dump(t.Context(), keys, namespace)
			require.NoError(t, err)
			return dump
		},
	})
	notes := t.TempDir()
	command, env, err := mcptest.Start(notes)
	require.NoError(t, err)
	declarations := filepath.Join(t.TempDir(), "notes.yaml")
	require.NoError(t, os.WriteFile(declarations, []byte(declared), 0o600))
	s.add(store{
		name: "notes",
		step: "uses: mcp.call, with: {server: notes, tool: put_note, arguments: {id: n%[1]d, body: of the task}}",
		put: func(task int, value string) {
			id := fmt.Sprintf("n%d", task)
			require.NoError(t, mcptest.Put(notes, mcptest.Note{ID: id, Title: "note " + id, Body: value}))
		},
		look: func() string {
			all, err := mcptest.Manifest(notes)
			require.NoError(t, err)
			return all
		},
	})
	for task := range storeTasks {
		s.put(task+1, "before")
	}
	s.config = host.Config{
		Host: "shop", Queue: s.queue, State: t.TempDir(), StopTimeout: time.Second,
		Secrets: map[string]string{"BILLING": secret(bills.DSN(billing)), "CACHE": secret(caches.URL(number))},
		Worlds: []activities.Settings{
			&file.Settings{Roots: []string{data}},
			&sqlite.Settings{Roots: []string{data}},
			&postgres.Settings{Databases: map[string]postgres.DatabaseSettings{"billing": {DSN: "BILLING"}}},
			&redis.Settings{Databases: map[string]redis.DatabaseSettings{"cache": {URL: "CACHE"}}},
			&etcd.Settings{
				Databases: map[string]etcd.DatabaseSettings{"settings": {Endpoints: []string{keyServer.Endpoint()},
					Namespace: namespace}}},
			&mcpserver.Settings{Servers: map[string]mcpserver.ServerSettings{
				"notes": {Command: "export " + env[0] + "; " + command, Declarations: declarations},
			}},
		},
	}
	return s
}

func (s *stores) add(one store) { s.kinds = append(s.kinds, one) }

func (s *stores) names() (all []string) {
	for _, each := range s.kinds {
		all = append(all, each.name)
	}
	return all
}

// put writes the value of a task into all stores, as somebody else does.
func (s *stores) put(task int, value string) {
	for _, each := range s.kinds {
		each.put(task, value)
	}
}

// takeAway takes what a task has written from stores, as somebody else does.
func (s *stores) takeAway(task int, from ...string) { s.move(task, true, "of somebody else", from) }

// bringBack undoes takeAway.
func (s *stores) bringBack(task int, to ...string) { s.move(task, false, "of the task", to) }

func (s *stores) move(task int, away bool, value string, stores []string) {
	for _, each := range s.kinds {
		switch {
		case !slices.Contains(stores, each.name):
		case each.move != nil:
			each.move(task, away)
		default:
			each.put(task, value)
		}
	}
}

func (s *stores) look() (all []string) {
	for _, each := range s.kinds {
		all = append(all, each.look())
	}
	return all
}

func (s *stores) task(n int) string { return fmt.Sprintf("%s-%d", s.id(), n) }

// begin starts a task that writes into each store, and asks before its last step. Its steps need
// each other, or only the last one needs others.
func (s *stores) begin(n int, inOrder bool) {
	s.Helper()
	source := "name: stores\nsteps:\n"
	needs := "needs: [], "
	if inOrder {
		needs = ""
	}
	for _, each := range s.kinds {
		source += "  - {id: " + each.name + ", " + needs + fmt.Sprintf(each.step, n) + "}\n"
	}
	source += fmt.Sprintf(
		"  - {id: last, gate: ask, uses: redis.exec, with: {database: cache, commands: [[SET, last:%d, x]]}}\n", n)
	_, err := s.start(s.task(n), s.document([]byte(source), nil))
	require.NoError(s, err)
}

// untilAsked waits until a task asks before its last step.
func (s *stores) untilAsked(n int) {
	s.Helper()
	s.until(s.task(n), func(is protocol.State) bool {
		require.Nil(s, is.Cause, "task %d unwinds", n)
		return len(is.Gates) == 1
	})
}

// parks waits until the undos of these steps, and no others, are parked.
func (s *stores) parks(id string, steps ...string) (parked []compensations.StepReport) {
	s.Helper()
	s.until(id, func(is protocol.State) bool {
		parked = nil
		if is.Report == nil {
			return false
		}
		for _, each := range is.Report.Steps {
			if each.State == string(compensations.Parked) {
				parked = append(parked, each)
			}
		}
		return len(parked) == len(steps)
	})
	for _, each := range parked {
		require.Contains(s, steps, each.Step)
	}
	return parked
}

// resolve decides all undos of a task that are parked.
func (s *stores) resolve(id string, do compensations.Do, steps ...string) {
	s.Helper()
	for _, each := range s.parks(id, steps...) {
		require.NoError(s, s.client.SignalWorkflow(s.Context(), id, "", compensations.SignalResolve,
			compensations.Resolution{Step: each.Step, Digest: each.Digest, Do: do, Who: "ann"}))
	}
}

// rollBack begins to roll a task back that is committed, and returns the id of what does it.
func (s *stores) rollBack(n int) string {
	s.Helper()
	server := recovery.Server{Client: s.client, Namespace: servertest.Shared(s.T).Namespace}
	done, err := server.FindDone(s.Context(), s.task(n))
	require.NoError(s, err)
	back, err := server.Rollback(s.Context(), done, recovery.Part{}, "ann", "", converter.GetDefaultDataConverter())
	require.NoError(s, err)
	return back.WorkflowID
}
