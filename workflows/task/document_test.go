package task

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

func accepted(t testing.TB) map[string]string {
	files, err := filepath.Glob("testdata/accepted/*.yml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	sources := map[string]string{}
	for _, file := range files {
		src, err := os.ReadFile(file)
		require.NoError(t, err)
		sources[filepath.Base(file)] = string(src)
	}
	return sources
}

// The file that the documentation shows is a task file, and says all that one can say.
func TestDocumentation(t *testing.T) {
	src, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	_, shown, _ := strings.Cut(string(src), "//\n//	name: ")
	shown, _, _ = strings.Cut("name: "+shown, "//\n// ")
	shown = strings.ReplaceAll(shown, "\n//	", "\n")
	doc := mustParse(t, shown)
	root, step := map[string]bool{}, map[string]bool{}
	note := func(n *node, fields map[string]bool) {
		for _, f := range n.fields {
			fields[f.key.text] = true
		}
	}
	note(doc.root, root)
	for _, s := range doc.file.Steps {
		note(s.node, step)
	}
	schema, err := Schema(nil)
	require.NoError(t, err)
	delete(schema.Properties, "$schema")
	require.Equal(t, sortedKeys(schema.Properties), sortedKeys(root))
	require.Equal(t, sortedKeys(schema.Defs["step"].Properties), sortedKeys(step))
}

// A document is the same after it was sent as JSON, and compiles to the same task.
func TestRoundTrip(t *testing.T) {
	for name, src := range accepted(t) {
		t.Run(name, func(t *testing.T) {
			doc := mustParse(t, src)
			raw, err := doc.JSON()
			require.NoError(t, err)
			again, err := Parse("task.json", raw)
			require.NoError(t, err)
			rawAgain, err := again.JSON()
			require.NoError(t, err)
			require.Equal(t, string(raw), string(rawAgain))
			require.Equal(t, [...]any{doc.Name, doc.Agent, doc.Timeout}, [...]any{again.Name, again.Agent, again.Timeout})

			first, err := Compile(doc, catalog())
			require.NoError(t, err)
			second, err := Compile(again, catalog())
			require.NoError(t, err)
			require.Equal(t, first, second)
		})
	}
}

func TestJSONKeepsTheShapeAndTheOrder(t *testing.T) {
	raw, err := mustParse(t,
		"name: t\nsteps:\n- uses: file.write\n  id: a\n  with: {path: /srv/a, mode: '0644', count: 0x10, force: True, "+
			"content: 2024-01-02}\n").JSON()
	require.NoError(t, err)
	require.Equal(t,
		`{"name":"t","steps":[{"uses":"file.write","id":"a","with":{"path":"/srv/a","mode":"0644","count":16,"force":true,"content":"2024-01-02"}}]}`, string(raw))
}

func TestJSONTextIsExact(t *testing.T) {
	doc := mustParse(t, accepted(t)["editor.yml"])
	require.Equal(t, "🚀 tab/slash", doc.root.findValue("name").text)
	raw, err := doc.JSON()
	require.NoError(t, err)
	var decoded struct {
		Vars  map[string]json.RawMessage
		Steps []struct{ With struct{ Content string } }
	}
	require.NoError(t, json.Unmarshal(raw, &decoded))
	require.Equal(t, "12345678901234567890", string(decoded.Vars["big"]))
	require.Equal(t, "\u0085\u2028", decoded.Steps[0].With.Content)
}

func TestOverride(t *testing.T) {
	doc := mustParse(t,
		"name: t\nvars: {text: a, n: 3, on: false, list: [1]}\nsteps:\n- id: a\n  uses: stripe.customer.create\n  with: "+
			"{email: \"${{ vars.text }}\"}\n")
	changed, err := doc.Override(map[string]any{"text": "${{ secrets.STRIPE_KEY }}", "n": "7", "on": "true",
		"list": []int{2, 3}})
	require.NoError(t, err)
	raw, err := changed.JSON()
	require.NoError(t, err)
	require.Equal(t,
		`{"name":"t","vars":{"text":"$${{ secrets.STRIPE_KEY }}","n":7,"on":true,"list":[2,3]},"steps":[{"id":"a","uses":"stripe.customer.create","with":{"email":"${{ vars.text }}"}}]}`, string(raw))
	compiled, err := Compile(changed, catalog())
	require.NoError(t, err)
	require.Equal(t, `{"email":"$${{ secrets.STRIPE_KEY }}"}`, string(compiled.Steps[0].With),
		"a value is data, never a reference")

	before, err := doc.JSON()
	require.NoError(t, err)
	require.Contains(t, string(before), `"n":3`, "the document itself is as it was")

	_, err = doc.Override(map[string]any{"tetx": "a", "n": "seven", "on": "maybe", "list": make(chan int)})
	require.EqualError(t, err, strings.Join([]string{
		`task.yml:2:7: vars.tetx: the task file has no such var; did you mean text?`,
		`task.yml:2:20: vars.n: the new value must be a number as in the file, found "seven"`,
		`task.yml:2:27: vars.on: the new value must be true or false as in the file, found "maybe"`,
		`task.yml:2:40: vars.list: the new value cannot be written as JSON: json: unsupported type: chan int`,
	}, "\n"))

	cat := catalog()
	cat.Vars = map[string]any{"text": "b"}
	compiled, err = Compile(doc, cat)
	require.NoError(t, err)
	require.Equal(t, `{"email":"b"}`, string(compiled.Steps[0].With))
}

func TestLimits(t *testing.T) {
	step := "- {id: s%d, uses: file.write, with: {path: /srv/a}}\n"
	var many strings.Builder
	many.WriteString("name: t\nsteps:\n")
	for i := range MaxSteps + 1 {
		fmt.Fprintf(&many, step, i)
	}
	_, err := Parse("task.yml", []byte(many.String()))
	require.EqualError(t, err, "task.yml:3:1: steps: has 10001 steps; a task has 1 to 10000; split the task")

	_, err = Parse("task.yml", make([]byte, MaxFile+1))
	require.EqualError(t, err,
		"task.yml:1:1: the file has 4194305 bytes, more than 4194304; split the task, or keep large content in files of "+
			"its own and name them with source:")

	var wide strings.Builder
	wide.WriteString("name: t\nsteps:\n")
	for i := range 40 {
		fmt.Fprintf(&wide, "- {id: s%d, uses: file.write, with: {content: %s}}\n", i, strings.Repeat("x", 60_000))
	}
	_, err = Parse("task.yml", []byte(wide.String()))
	require.EqualError(t, err,
		"task.yml:1:1: the task has 2402212 bytes as JSON, more than 2000000; split the task, or put large content into "+
			"files and name them with source:")

	checks := "name: t\nsteps:\n- id: a\n  uses: file.write\n  check: [" + strings.Repeat("{exists: x},", MaxChecks+1) +
		"]\n"
	_, err = Parse("task.yml", []byte(checks))
	require.EqualError(t, err,
		"task.yml:5:10: steps.a.check: has 101 checks, more than 100; put them into one program and check that")

	_, err = Parse("task.yml", []byte("name: t\nsteps:\n"+strings.Repeat("- {}\n", 200)))
	problems := err.(Problems)
	require.Len(t, problems, MaxProblems+1)
	require.Equal(t, "task.yml:53:3: and 300 problems more", problems[MaxProblems].Error())
	_, err = Parse("task.yml", []byte("name: t\nsteps:\n"+strings.Repeat("- {}\n", 2000)))
	require.Equal(t, "task.yml:53:3: and at least 900 problems more", err.(Problems)[MaxProblems].Error())
}

// Text that hardly compresses, in steps that are each small enough, makes a task that could not be
// carried.
func TestCompiledTaskIsTooLarge(t *testing.T) {
	var b strings.Builder
	b.WriteString("name: t\nsteps:\n")
	seed := uint64(1)
	for i := range 30 {
		fmt.Fprintf(&b, "- id: s%d\n  uses: file.write\n  with:\n    path: /srv/a\n    content: ", i)
		for range 60_000 {
			seed = seed*6364136223846793005 + 1442695040888963407
			b.WriteByte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"[seed>>58])
		}
		b.WriteByte('\n')
	}
	_, err := Compile(mustParse(t, b.String()), catalog())
	require.ErrorContains(t, err, "task.yml:3:1: steps: the compiled task: it has ")
	require.ErrorContains(t, err,
		" bytes compressed, more than 1000000; split the task, or put large content into files and name them with source:")
}

func TestDurations(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"30s": 30 * time.Second, "5m": 5 * time.Minute, "2h": 2 * time.Hour, "3d": 72 * time.Hour,
		"250ms":       250 * time.Millisecond,
		"1d2h3m4s5ms": 26*time.Hour + 3*time.Minute + 4*time.Second + 5*time.Millisecond, "3650d": MaxDuration,
	} {
		got, ok := activities.ParseDuration(s)
		require.True(t, ok, s)
		require.Equal(t, want, got, s)
	}
	for _, s := range []string{"", "0s", "00h", "1", "s", "1.5h", "-1s", "+1s", "1s1h", "1 h", "1H", "3651d",
		"99999999999s", "1w", "3650d1ms"} {
		_, ok := activities.ParseDuration(s)
		require.False(t, ok, s)
	}
}

// A document that was not parsed is refused, not taken for an empty task.
func TestZeroDocument(t *testing.T) {
	_, err := new(Document).JSON()
	require.EqualError(t, err, "the document was not made by Parse")
	_, err = Compile(new(Document), catalog())
	require.EqualError(t, err, "the document was not made by Parse")
}
