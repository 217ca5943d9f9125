package command

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/workflows/environment"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// printed are the commands that print JSON, with the type of what they print.
var printed = []struct {
	heading string
	of      any
}{
	{"run, rollback, redo, recover", startedJSON{}},
	{"show", tasks.Standing{}},
	{"show with a step", tasks.Step{}},
	{"list", []tasks.Listed{}},
	{"orphans list", []protocol.RecordName{}},
	{"orphans undo", protocol.Orphan{}},
	{"validate", validJSON{}},
	{"plan", protocol.Plan{}},
	{"catalog", []activities.Spec{}},
	{"policy try", triedJSON{}},
	{"allowances", []activities.GivenAllowance{}},
	{"env show", environment.View{}},
	{"env checkpoint, env show with a checkpoint", environment.Checkpoint{}},
	{"env rollback", environment.RolledBack{}},
	{"env diff", environment.Comparison{}},
	{"env prune, env remove", environment.Pruned{}},
}

// writeFields lists the fields of a JSON value, each with its type.
func writeFields(b *strings.Builder, prefix string, t reflect.Type, within []reflect.Type) {
	switch {
	case t.Kind() == reflect.Pointer:
		writeFields(b, prefix, t.Elem(), within)
		return
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		writeFields(b, prefix+"[]", t.Elem(), within)
		return
	case t.Kind() != reflect.Struct || t == reflect.TypeFor[time.Time]() || slices.Contains(within, t):
		fmt.Fprintf(b, "| `%s` | %s |\n", strings.TrimPrefix(prefix, "."), jsonKind(t))
		return
	}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case !f.IsExported() || name == "-":
		case f.Anonymous && name == "":
			writeFields(b, prefix, f.Type, within)
		case name == "":
			writeFields(b, prefix+"."+f.Name, f.Type, append(within, t))
		default:
			writeFields(b, prefix+"."+name, f.Type, append(within, t))
		}
	}
}

func jsonKind(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "time, RFC 3339"
	case t == reflect.TypeFor[time.Duration]():
		return "duration in nanoseconds"
	case t == reflect.TypeFor[json.RawMessage]():
		return "any"
	}
	switch t.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int64, reflect.Float64:
		return "number"
	}
	return "object"
}

const generated = "<!-- What follows is written by `UPDATE_DOCS=1 go test -run TestTheJSONOfCommandsIsDocumented " +
	"./starter/command`. -->\n"

func TestTheJSONOfCommandsIsDocumented(t *testing.T) {
	const file = "../../docs/json.md"
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	head, documented, found := strings.Cut(string(raw), generated)
	require.True(t, found)
	var b strings.Builder
	for _, p := range printed {
		fmt.Fprintf(&b, "\n## %s\n\n| field | type |\n|---|---|\n", p.heading)
		writeFields(&b, "", reflect.TypeOf(p.of), nil)
	}
	if os.Getenv("UPDATE_DOCS") != "" {
		require.NoError(t, os.WriteFile(file, []byte(head+generated+b.String()), 0o644))
		documented = b.String()
	}
	require.Equal(t, documented, b.String())
}

func TestWhatIsStartedIsPrintedAsJSON(t *testing.T) {
	d := newDesk(t)
	var run, back startedJSON
	require.NoError(t, json.Unmarshal([]byte(d.ok("run", d.file(saved), "--id", t.Name(), "-o", "json")), &run))
	require.Equal(t, [3]string{t.Name(), "AgentTask", d.queue}, [3]string{run.ID, run.Type, run.Queue})
	d.ok("watch", t.Name())
	require.NoError(t, json.Unmarshal([]byte(d.ok("rollback", t.Name(), "-o", "json")), &back))
	require.Equal(t, d.idOf("rollback", t.Name()), back.ID)
	both := d.do("redo", back.ID, "--watch", "-o", "json")
	require.Equal(t, statusUsage, both.status)
	require.Contains(t, both.err, "give --watch or -o json, not both")
	var valid validJSON
	require.NoError(t, json.Unmarshal([]byte(d.ok("validate", d.file(saved), "-o", "json")), &valid))
	require.Equal(t, 2, valid.Steps)
}

func TestVersion(t *testing.T) {
	r := do(t.Context(), Options{}, "--version")
	require.Equal(t, statusOK, r.status)
	require.Regexp(t, `^starter version \S+ go1\.`, r.out)
}
