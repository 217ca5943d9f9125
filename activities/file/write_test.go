package file_test

import (
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/testrun"
)

var folderTime = time.Date(2021, 2, 3, 4, 5, 6, 7, time.UTC)

func TestParametersAreRefusedWithTheWayOut(t *testing.T) {
	b := newBench(t)
	b.put("f", "old")
	b.put("folder/f", "old")
	for _, c := range []struct {
		action string
		with   params
		says   string
	}{
		{"write", params{"path": b.path("new"), "content": strings.Repeat("x", activities.MaxInline)}, "name it as source:"},
		{"write", params{"path": b.path("new")}, "give one of content and source"},
		{"write", params{"path": b.path("new"), "content": "", "source": b.path("f")}, "give one of content and source"},
		{"write", params{"path": b.path("new"), "content": "", "files": []params{{"path": b.path("x"), "content": ""}}},
			"not both"},
		{"write", params{"path": b.path("new"), "content": "", "mode": "rw-r--r--"},
			`mode: "rw-r--r--" is not an octal mode`},
		{"write", params{"path": b.path("new"), "content": "", "mode": "0"}, "is not an octal mode"},
		{"write", params{"path": b.path("new"), "contents": ""}, "contents"},
		{"write", params{"path": b.path("folder"), "content": ""}, "is a folder"},
		{"write", params{"path": b.path("new"), "source": b.path("missing")}, "missing does not exist"},
		{"write", params{"path": b.path("new"), "source": b.path("folder")}, "is not a regular file"},
		{"write", params{"files": []params{{"path": b.path("f"), "content": ""}, {"path": b.path("f"), "content": ""}}},
			"name each file once"},
		{"write", params{"files": []params{{"path": b.path("n"), "content": ""}, {"path": b.path("n/x"), "content": ""}}},
			"one is, or is in, the other"},
		{"write", params{"files": []params{{"path": b.path("f"), "content": ""}, {"path": "/etc/x", "content": ""}}},
			`files[1].path: "/etc/x"`},
		{"delete", params{}, "give one path, or a list of paths"},
		{"delete", params{"path": b.path("f"), "paths": []string{b.path("f")}}, "give one path, or a list of paths"},
		{"delete", params{"paths": []string{b.path("folder"), b.path("folder/f")}}, "one is, or is in, the other"},
		{"delete", params{"path": b.path("missing")}, "missing does not exist"},
	} {
		before := describe(t, b.root)
		e := b.entry()
		requireError(t, b.apply(c.action, e, c.with), activities.Refused, c.says)
		_, err := b.action(c.action).Plan(t.Context(), e, step(c.with))
		requireError(t, err, activities.Refused, c.says)
		require.Equal(t, before, describe(t, b.root))
	}
}

func TestModes(t *testing.T) {
	b := newBench(t)
	require.NoError(t, os.Chmod(b.put("setuid", "old"), 0o755|fs.ModeSetuid))
	require.NoError(t, os.Chmod(b.put("odd", "old"), 0o604))
	require.NoError(t, os.Mkdir(b.path("group"), 0o755))
	require.NoError(t, os.Chmod(b.path("group"), 0o755|fs.ModeSetgid))
	for path, want := range map[string]fs.FileMode{"setuid": 0o755, "odd": 0o604, "new": 0o644, "group/sub/new": 0o644} {
		require.NoError(t, b.apply("write", b.entry(), params{"path": b.path(path), "content": "new"}))
		info, err := os.Stat(b.path(path))
		require.NoError(t, err)
		require.Equal(t, want, info.Mode(), path)
	}
	info, err := os.Stat(b.path("group/sub"))
	require.NoError(t, err)
	require.Equal(t, 0o755|fs.ModeSetgid|fs.ModeDir, info.Mode())
	require.NoError(t, b.apply("write", b.entry(), params{"path": b.path("odd"), "content": "new", "mode": "4711"}))
	info, err = os.Stat(b.path("odd"))
	require.NoError(t, err)
	require.Equal(t, 0o711|fs.ModeSetuid, info.Mode())
}

func TestResultsAndPlans(t *testing.T) {
	b := newBench(t)
	b.put("f", "old\n")
	b.put("source", strings.Repeat("0123456789", 100_000))
	one := params{"path": b.path("f"), "content": "new\n"}
	change, err := b.action("write").Plan(t.Context(), b.entry(), step(one))
	require.NoError(t, err)
	require.Equal(t, "replace "+b.path("f")+" (4 -> 4 bytes)", change.Summary)
	require.Contains(t, change.Diff, "@@ -1 +1 @@\n-old\n+new\n")
	require.Equal(t, []string{"file:" + b.path("f")}, change.Keys)
	require.Equal(t, activities.Low, change.Risk)

	result, err := b.action("write").Apply(t.Context(), b.entry(),
		step(params{"path": b.path("big"), "source": b.path("source")}), "")
	require.NoError(t, err)
	require.Equal(t, "create "+b.path("big")+" (1000000 bytes)", result.Summary)
	require.EqualValues(t, 1_000_000, result.Outputs["bytes"])
	require.Equal(t, b.path("big"), result.Outputs["path"])
	require.Len(t, result.Outputs["sha256"], 64)
	require.Equal(t, b.read("source"), b.read("big"))

	var files []params
	for i := range 20 {
		files = append(files, params{"path": b.path("many/" + string(rune('a'+i))), "content": "x"})
	}
	change, err = b.action("write").Plan(t.Context(), b.entry(), step(params{"files": files}))
	require.NoError(t, err)
	require.Equal(t, activities.Medium, change.Risk)
	require.Equal(t, []string{"writes 20 files"}, change.Facts)
	require.Equal(t, 21, strings.Count(change.Diff, "+++ "), "the new folder and each file in it")
}

func TestChecksSeeWhatIsStagedAndThenWhatIsThere(t *testing.T) {
	testrun.NeedShell(t)
	b := newBench(t)
	b.put("old.json", `{"a": 1}`)
	b.put("old.json.bak", "another")
	t.Setenv("WORKERS_OWN", "not for checks")
	run := func(when activities.When, argv ...string) activities.Check {
		return activities.Check{When: when, Command: &activities.CommandCheck{Run: argv}}
	}
	with := params{"files": []params{{"path": b.path("old.json"), "content": `{"a": 2}`},
		{"path": b.path("x/new.json"), "content": `{"b": 3}`}}}
	good := []activities.Check{
		{JSON: &activities.JSONCheck{File: b.path("old.json"), At: "/a", Equals: []byte("2")}},
		{JSON: &activities.JSONCheck{File: b.path("x/new.json"), At: "/b", Equals: []byte("3")}},
		{Exists: &activities.ExistsCheck{Path: b.path("x")}},
		run(activities.Staged, "grep", "-q", "2", b.path("old.json")),
		run(activities.Staged, "sh", "-c",
			"grep 3 '"+b.path("x/new.json")+"' && test -d "+b.path("x")+" && ! test -e "+b.path("x")+"y"),
		run(activities.Staged, "dd", "status=none", "of=/dev/null", "if="+b.path("x/new.json")),
		run(activities.Staged, "grep", "-q", "another", b.path("old.json.bak")),
		run(activities.Live, "grep", "-q", "2", b.path("old.json")),
		run(activities.Staged, "sh", "-c", `test -z "$WORKERS_OWN"`),
		run(activities.Staged, "sh", "-c", "sleep 1000 & exit 0"),
		{When: activities.Live, Exists: &activities.ExistsCheck{Path: b.path("x/new.json")}},
	}
	e := b.entry()
	require.NoError(t, b.apply("write", e, with, good...))
	b.mustRestore(e)
	before := describe(t, b.root)
	for _, c := range []struct {
		check activities.Check
		want  activities.ErrorType
		says  string
	}{
		{run(activities.Staged, "cat", "{path}"), activities.Refused, "this step has several"},
		{run(activities.Staged, "sh", "-c", "echo why; exit 3"), activities.CheckFailed, "exit status 3"},
		{activities.Check{Exists: &activities.ExistsCheck{Path: b.path("nope")}}, activities.CheckFailed,
			"nope is not there"},
		{activities.Check{JSON: &activities.JSONCheck{}}, activities.Refused, "no single target"},
		{activities.Check{JSON: &activities.JSONCheck{File: b.path("old.json"), At: "/a", Equals: []byte("1")}},
			activities.CheckFailed, "/a is 2, want 1"},
	} {
		requireError(t, b.apply("write", b.entry(), with, c.check), c.want, c.says)
		require.Equal(t, before, describe(t, b.root), "nothing is put into place before the checks hold")
	}
	one := params{"path": b.path("new.json"), "content": "{}"}
	requireError(t, b.apply("write", b.entry(), one, run(activities.Staged, "sh", "-c", "echo >> {path}")),
		activities.CheckFailed, "checks may only read")
	gone := activities.Check{Exists: &activities.ExistsCheck{}}
	requireError(t, b.apply("delete", b.entry(), params{"path": b.path("old.json")}, gone), activities.CheckFailed,
		"is not there")
	require.Equal(t, before, describe(t, b.root))
}
