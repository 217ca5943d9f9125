package mcpserver_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/mcpserver"
	"github.com/seed-62bf7108/unwind/activities/mcpserver/mcptest"
)

func TestMain(m *testing.M) {
	mcptest.Attend()
	mcpserver.Attend()
	mcpserver.ShortenUndoTurn()
	os.Exit(actiontest.Main(m, cases()...))
}

func TestConformance(t *testing.T) {
	for _, c := range cases() {
		t.Run(strings.ReplaceAll(c.Name, " ", "_"), func(t *testing.T) { actiontest.Run(t, c) })
	}
}

type params = map[string]any

func notesIn(dir string) string { return filepath.Join(dir, "store") }

func call(tool string, arguments params) func(string) any {
	return func(string) any { return params{"server": "notes", "tool": tool, "arguments": arguments} }
}

func cases() []actiontest.Case {
	put := actiontest.Case{
		Name: "put over", Action: "mcp.call",
		With: call("put_note", params{"id": "there", "body": "new"}), Next: call("put_note",
			params{"id": "there", "body": "newer"}),
		Drift: edit("there"), Meanwhile: edit("there"),
	}
	putNew := put
	putNew.Name, putNew.Brief = "put new", true
	putNew.With, putNew.Next = call("put_note", params{"id": "fresh", "body": "new"}), call("put_note",
		params{"id": "fresh", "body": "newer"})
	putNew.Drift, putNew.Meanwhile = edit("fresh"), edit("fresh")
	remove := put
	remove.Name, remove.Brief = "delete", true
	remove.With, remove.Next = call("delete_note", params{"id": "there"}), call("put_note",
		params{"id": "there", "body": "newer"})
	create := actiontest.Case{
		Name: "create", Action: "mcp.call", Brief: true,
		With: call("create_note", params{"title": "plan", "body": "one"}), Next: call("create_note",
			params{"title": "plan", "body": "two"}),
		Drift: func(t testing.TB, dir string) {
			for _, n := range notes(t, dir) {
				if n != "there" {
					editTitled(t, dir, n, "plan")
				}
			}
		},
	}
	send := actiontest.Case{
		Name: "send", Action: "mcp.call.irreversible", Undone: activities.Final,
		With: call("send_mail", params{"text": "first"}), Next: call("send_mail", params{"text": "next"}),
		Meanwhile: func(t testing.TB, dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(notesIn(dir), "mails"), []byte("of someone else\n"), 0o600))
		},
		Same: func(before, after string) bool {
			sent, is := strings.CutPrefix(after, before)
			return is && (sent == "" || sent == "first\n" || sent == "next\n" || sent == "first\nnext\n")
		},
	}
	read := actiontest.Case{
		Name: "read", Action: "mcp.read", Undone: activities.Nothing, Brief: true,
		With: call("get_note", params{"id": "there"}), Next: call("find_notes", params{"title": "x"}),
	}
	all := []actiontest.Case{put, putNew, remove, create, send, read}
	for i := range all {
		all[i].Start, all[i].Open, all[i].Manifest, all[i].Sample, all[i].EitherWay = start, open, manifest, 1, true
	}
	return all
}

func start(t testing.TB, dir string) {
	_, _, err := mcptest.Start(notesIn(dir))
	require.NoError(t, err)
	require.NoError(t, mcptest.Put(notesIn(dir), mcptest.Note{ID: "there", Title: "note there", Body: "old"}))
}

func configOf(dir string) (mcpserver.Config, error) {
	command, env, err := mcptest.Start(notesIn(dir))
	if err != nil {
		return mcpserver.Config{}, err
	}
	declared, err := mcpserver.ParseDeclarations([]byte(mcptest.Declarations))
	return mcpserver.Config{
		State:   filepath.Join(dir, "state"),
		Servers: map[string]mcpserver.Server{"notes": {Command: command, Env: env, Declarations: declared}},
	}, err
}

func open(dir string) (activities.World, error) {
	c, err := configOf(dir)
	if err != nil {
		return activities.World{}, err
	}
	return mcpserver.New(c)
}

func manifest(t testing.TB, dir string) string {
	t.Helper()
	m, err := mcptest.Manifest(notesIn(dir))
	require.NoError(t, err)
	return m
}

func notes(t testing.TB, dir string) (names []string) {
	t.Helper()
	files, err := os.ReadDir(filepath.Join(notesIn(dir), "notes"))
	require.NoError(t, err)
	for _, each := range files {
		names = append(names, each.Name())
	}
	return names
}

// edit changes a note, or makes it, as someone else would.
func edit(id string) func(testing.TB, string) {
	return func(t testing.TB, dir string) { editTitled(t, dir, id, "note "+id) }
}

func editTitled(t testing.TB, dir, id, title string) {
	was, err := os.ReadFile(filepath.Join(notesIn(dir), "notes", id))
	if err != nil {
		was = nil
	}
	require.NoError(t,
		mcptest.Put(notesIn(dir),
			mcptest.Note{ID: id, Title: title, Body: "edited over " + activities.DigestOf(was).Short()}))
}
