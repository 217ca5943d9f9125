package task

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// steps is a task of these lines, each a step s0, s1 ... without its id.
func stepsOf(lines ...string) string {
	var b strings.Builder
	b.WriteString("name: t\nsteps:\n")
	for i, line := range lines {
		fmt.Fprintf(&b, "- {id: s%d, %s}\n", i, line)
	}
	return b.String()
}

func needsOf(c *Compiled) [][]string {
	var all [][]string
	for _, s := range c.Steps {
		all = append(all, s.Needs)
	}
	return all
}

func TestNeeds(t *testing.T) {
	const (
		write    = "uses: file.write, with: {path: /srv/%s}"
		create   = "uses: stripe.customer.create"
		free     = ", needs: []"
		exec     = "uses: container.exec"
		writeA   = "uses: file.write, with: {path: /srv/a}"
		writeAB  = "uses: file.write, with: {path: /srv/a/b}"
		writeAB2 = "uses: file.write, with: {path: /srv//a/./c/../b/}"
		writeAx  = "uses: file.write, with: {path: /srv/ab}"
	)
	for name, c := range map[string]struct {
		lines []string
		want  [][]string
	}{
		"in order": {[]string{create, create, create}, [][]string{nil, {"s0"}, {"s1"}}},
		"no needs": {[]string{create + free, create + free}, [][]string{nil, nil}},
		"all before are the sinks": {[]string{create + free, create + free, create + ", needs: [s0]", create},
			[][]string{nil, nil, {"s0"}, {"s1", "s2"}}},
		"what follows is left out": {[]string{create, create, create + ", needs: [s1, s0]"},
			[][]string{nil, {"s0"}, {"s1"}}},
		"an output is a need": {[]string{create, create + ", needs: [], with: {email: '${{ steps.s0.outputs.id }}'}"},
			[][]string{nil, {"s0"}}},
		"the same path": {[]string{writeAB, writeAB2 + free}, [][]string{nil, {"s0"}}},
		"a path below":  {[]string{writeA, writeAB + free}, [][]string{nil, {"s0"}}},
		"a path above":  {[]string{writeAB, writeA + free}, [][]string{nil, {"s0"}}},
		"a path beside": {[]string{writeAB, writeAx + free}, [][]string{nil, nil}},
		"one path above many": {[]string{fmt.Sprintf(write, "a/1"), fmt.Sprintf(write, "a/2") + free, writeA + free,
			fmt.Sprintf(write, "a/1") + free}, [][]string{nil, nil, {"s0", "s1"}, {"s2"}}},
		"another host":     {[]string{writeA, writeA + free + ", on: there"}, [][]string{nil, nil}},
		"own host by name": {[]string{writeA, writeA + free + ", on: here"}, [][]string{nil, {"s0"}}},
		"a relative path is unknown": {[]string{writeA, "uses: file.write, with: {path: a}" + free,
			"uses: file.write, with: {path: b}" + free, writeA + free}, [][]string{nil, {"s0"}, {"s1"}, {"s2"}}},
		"the same key": {[]string{"uses: stripe.customer.update, with: {key: a}",
			"uses: stripe.customer.update, with: {key: a}" + free}, [][]string{nil, {"s0"}}},
		"another key": {[]string{"uses: stripe.customer.update, with: {key: a/b}",
			"uses: stripe.customer.update, with: {key: a}" + free}, [][]string{nil, nil}},
		"no key given": {[]string{"uses: stripe.customer.update", "uses: stripe.customer.update" + free},
			[][]string{nil, nil}},
		"an unknown key": {[]string{create, create + free,
			"uses: stripe.customer.update, needs: [], with: {key: '${{ secrets.STRIPE_KEY }}'}",
			"uses: stripe.customer.update, needs: [], with: {key: b}", create +
				free}, [][]string{nil, nil, {"s0", "s1"}, {"s2"}, {"s2"}}},
		"no keys at all":         {[]string{create, exec + free, exec + free}, [][]string{nil, {"s0"}, {"s1"}}},
		"no keys, another place": {[]string{writeA, exec + free}, [][]string{nil, nil}},
		"items of a list": {[]string{"uses: file.delete, with: {files: [{path: /x}, {path: /y}]}",
			"uses: file.write, with: {path: /y/z}" + free, "uses: file.write, with: {path: /z}" + free},
			[][]string{nil, {"s0"}, nil}},
		"a list not known yet": {[]string{create,
			"uses: file.delete, needs: [], with: {files: '${{ steps.s0.outputs.id }}'}", writeA + free},
			[][]string{nil, {"s0"}, {"s1"}}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, needsOf(mustCompile(t, stepsOf(c.lines...))))
		})
	}
}

func TestKeysAreNamed(t *testing.T) {
	c := mustCompile(t, stepsOf(
		"uses: file.delete, with: {files: [{path: /y/../x}, {path: /a}, {path: /a/}]}",
		"uses: container.exec",
		"uses: stripe.customer.create",
	))
	require.Equal(t, []string{"file:/a", "file:/x"}, c.Steps[0].Keys)
	require.Nil(t, c.Steps[1].Keys)
	require.Empty(t, c.Steps[2].Keys)
}

// The graph of random tasks is compared with one that is made pair by pair, as the rules say: the
// same order follows from both, and no edge of ours follows from the others.
func TestNeedsFollowTheRules(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var lines []string
		n := 2 + rng.IntN(14)
		paths := []string{"/", "/a", "/a/b", "/a/b/c", "/a/c", "/ab", "/b", "b", "b/c", "c", "..", "."}
		var at []string
		for i := range n {
			p := paths[rng.IntN(len(paths))]
			line := fmt.Sprintf("uses: file.write, with: {path: %s, content: x", p)
			if i > 0 && rng.IntN(5) == 0 {
				line += fmt.Sprintf(", source: '${{ steps.s%d.outputs.path }}'", rng.IntN(i))
			}
			line += "}"
			if rng.IntN(8) == 0 {
				p, line = "?", "uses: container.exec, on: here"
			}
			switch rng.IntN(4) {
			case 0:
			case 1:
				if i > 0 {
					line += fmt.Sprintf(", needs: [s%d]", rng.IntN(i))
				}
			default:
				line += ", needs: []"
			}
			at, lines = append(at, p), append(lines, line)
		}
		doc := mustParse(t, stepsOf(lines...))
		compiled, err := Compile(doc, catalog())
		require.NoError(t, err)

		want := make([]map[int]bool, n) // everything before each step
		for i := range n {
			want[i] = map[int]bool{}
			add := func(j int) {
				want[i][j] = true
				for k := range want[j] {
					want[i][k] = true
				}
			}
			for j := range i {
				if !doc.file.Steps[i].Needs.written || strings.Contains(lines[i], fmt.Sprintf("s%d.", j)) ||
					strings.Contains(lines[i], fmt.Sprintf("[s%d]", j)) || overlap(at[i], at[j]) {
					add(j)
				}
			}
		}
		got := make([]map[int]bool, n)
		for i, s := range compiled.Steps {
			got[i] = map[int]bool{}
			require.True(t, slices.IsSortedFunc(s.Needs, func(a, b string) int { return stepNumber(a) - stepNumber(b) }))
			for _, need := range s.Needs {
				j := stepNumber(need)
				got[i][j] = true
				for k := range got[j] {
					require.NotContains(t, s.Needs, fmt.Sprintf("s%d", k), "follows from %s:\n%s", need, strings.Join(lines, "\n"))
					got[i][k] = true
				}
			}
			require.Equal(t, want[i], got[i], "step %d of\n%s", i, strings.Join(lines, "\n"))
		}
	}
}

func stepNumber(id string) (n int) {
	_, _ = fmt.Sscanf(id, "s%d", &n)
	return n
}

func overlap(a, b string) bool {
	anywhere := func(p string) bool { return !path.IsAbs(p) }
	covers := func(a, b string) bool { return a == b || strings.HasPrefix(b, strings.TrimSuffix(a, "/")+"/") }
	return anywhere(a) || anywhere(b) || covers(a, b) || covers(b, a)
}

// The largest task compiles in well under two seconds, whatever its shape.
func TestManySteps(t *testing.T) {
	for name, line := range map[string]func(i int) string{
		"in order":     func(i int) string { return fmt.Sprintf("uses: file.write, with: {path: /srv/%d}", i) },
		"independent":  func(i int) string { return fmt.Sprintf("uses: file.write, needs: [], with: {path: /srv/%d}", i) },
		"one resource": func(int) string { return "uses: file.write, needs: [], with: {path: /srv/a}" },
		"one above, many below": func(i int) string {
			if i%100 == 0 {
				return "uses: file.write, needs: [], with: {path: /srv}"
			}
			return fmt.Sprintf("uses: file.write, needs: [], with: {path: /srv/%d}", i)
		},
		"wordy": func(i int) string {
			line := fmt.Sprintf("name: page %d, uses: file.write, with: {path: /srv/book/%d.html, content: 'page %d, %016x'}", i,
				i, i, rand.Uint64())
			if i%100 == 0 {
				line += fmt.Sprintf(", savepoint: pages-%d, undo: {attempts: 20, criticality: low}", i)
			}
			return line + fmt.Sprintf(", on_failure: {unwind_to: pages-%d}", i/100*100)
		},
		"chained": func(i int) string {
			if i < 2 {
				return "uses: stripe.customer.create, needs: []"
			}
			return fmt.Sprintf("uses: stripe.customer.create, needs: [s%d, s%d], with: {email: '${{ steps.s0.outputs.id }}'}",
				i-1, i-2)
		},
	} {
		t.Run(name, func(t *testing.T) {
			lines := make([]string, MaxSteps)
			for i := range lines {
				lines[i] = line(i)
			}
			src := stepsOf(lines...)
			compiled := mustCompile(t, src)
			require.Len(t, compiled.Steps, MaxSteps)
			edges := 0
			for _, s := range compiled.Steps {
				edges += len(s.Needs)
			}
			require.LessOrEqual(t, edges, 2*MaxSteps)
			raw, err := json.Marshal(compiled)
			require.NoError(t, err)
			require.Less(t, len(raw), 2<<20, "a server takes no larger payload")
			var again Compiled
			require.NoError(t, json.Unmarshal(raw, &again))
			require.Equal(t, needsOf(compiled), needsOf(&again))
			t.Logf("%d edges, %d bytes", edges, len(raw))
		})
	}
}

func TestGates(t *testing.T) {
	day := 24 * time.Hour
	open, year := Gate{Mode: GateOpen}, 365*day
	for line, want := range map[string]Gate{
		"uses: stripe.customer.create":             open,
		"uses: stripe.customer.create, gate: none": {Mode: GateNone},
		"uses: stripe.customer.create, gate: auto": {Mode: GateAuto, Limit: day,
			Why: "the task file asks where the change is risky"},
		"uses: stripe.customer.create, gate: ask": {Mode: GateAsk, Limit: year,
			Why: "the task file asks"},
		"uses: stripe.customer.create, gate: {timeout: 4h, why: because}": {Mode: GateAsk, Limit: 4 * time.Hour,
			Why: "because"},
		"uses: stripe.customer.create, gate: {mode: auto, timeout: 4h}": {Mode: GateAuto, Limit: 4 * time.Hour,
			Why: "the task file asks where the change is risky"},
		"uses: stripe.customer.update": open,
		"uses: stripe.customer.update, gate: auto": {Mode: GateAuto, Limit: day,
			Why: "the task file asks where the change is risky"},
		"uses: container.exec":             open,
		"uses: container.exec, gate: none": {Mode: GateNone},
		"uses: stripe.refund.create": {Mode: GateAsk, Limit: year,
			Risky: true, Why: "stripe.refund.create is irreversible"},
		"uses: stripe.refund.create, gate: auto": {Mode: GateAsk, Limit: year,
			Risky: true, Why: "stripe.refund.create is irreversible"},
		"uses: stripe.refund.create, gate: ask": {Mode: GateAsk, Limit: year,
			Why: "the task file asks"},
		"uses: stripe.refund.create, gate: none":                     {Mode: GateNone},
		"uses: stripe.refund.create, gate: {mode: none, why: small}": {Mode: GateNone, Why: "small"},
		"uses: terraform.apply": {Mode: GateAsk, Limit: year,
			Risky: true, Why: "terraform.apply is risky"},
		"uses: terraform.apply, gate: none":                      {Mode: GateNone},
		"uses: terraform.apply, gate: {mode: none, timeout: 1h}": {Mode: GateNone, Limit: time.Hour},
		"uses: stripe.customer.create, gate: {mode: ask, why: \"it is ${{ 'x' }}\"}": {Mode: GateAsk, Limit: year,
			Why: "it is x"},
	} {
		require.Equal(t, want, mustCompile(t, stepsOf(line)).Steps[0].Gate, line)
	}
}

func TestPlaces(t *testing.T) {
	for line, want := range map[string]activities.Place{
		"uses: stripe.customer.create":            {Queue: "unwind", Journal: "journal-stripe"},
		"uses: stripe.customer.create, on: there": {Queue: "unwind@there", Host: "there"},
		"uses: stripe.customer.create, on: here": {Queue: "unwind@here", Host: "here",
			Journal: "journal-stripe"},
		"uses: file.write, with: {path: /srv/a}": {Queue: "unwind@here", Host: "here",
			Journal: "journal-file"},
		"uses: file.write, with: {path: /srv/a}, on: there":            {Queue: "unwind@there", Host: "there"},
		"uses: file.write, with: {path: /srv/a}, on: \"${{ 'n-1' }}\"": {Queue: "unwind@n-1", Host: "n-1"},
	} {
		require.Equal(t, want, mustCompile(t, stepsOf(line)).Steps[0].Place, line)
	}
	cat := catalog()
	cat.SharedQueue = "mine@here"
	compiled, err := Compile(mustParse(t, stepsOf("uses: file.write, with: {path: /srv/a}")), cat)
	require.NoError(t, err)
	require.Equal(t, "mine@here", compiled.Steps[0].Place.Queue, "it is the host's own already")
	for _, tasks := range []string{"mine", "mine@here"} {
		host, isOwn := HostOf(HostQueue(tasks, "here"), tasks)
		require.Equal(t, []any{"here", true}, []any{host, isOwn})
	}
	_, isOwn := HostOf("mine", "mine")
	require.False(t, isOwn)
	cat.Host = ""
	_, err = Compile(mustParse(t, stepsOf("uses: file.write, with: {path: /srv/a}")), cat)
	require.EqualError(t, err,
		"task.yml:3:3: steps.s0.on: file.write changes things of one host, and none is known; add on: the name of the host")
}

func TestBounds(t *testing.T) {
	s := mustCompile(t, stepsOf("uses: stripe.customer.create")).Steps[0]
	require.Equal(t, Retry{3, time.Second, 30 * time.Second}, s.Retry)
	require.Equal(t, [...]time.Duration{5 * time.Minute, 10 * time.Second}, [...]time.Duration{s.Timeout, s.Heartbeat})
	require.Zero(t, s.Undo, "the default policy takes no room")

	s = mustCompile(t,
		stepsOf("uses: stripe.customer.create, timeout: 1h, retry: {backoff: 2m}, undo: {within: 1m, drift: force}")).Steps[0]
	require.Equal(t, Retry{3, 2 * time.Minute, 2 * time.Minute}, s.Retry)
	require.Equal(t, time.Hour, s.Timeout)
	require.Equal(t, activities.UndoPolicy{Attempt: time.Minute, Within: time.Minute, Drift: activities.DriftForce},
		s.Undo)

	s = mustCompile(t, stepsOf("uses: stripe.customer.create, retry: {attempts: 1, max: 500ms}")).Steps[0]
	require.Equal(t, Retry{1, 500 * time.Millisecond, 500 * time.Millisecond}, s.Retry)

	cat := catalog()
	cat.Defaults = Defaults{Attempts: 7, Heartbeat: time.Second}
	compiled, err := Compile(mustParse(t, stepsOf("uses: stripe.customer.create")), cat)
	require.NoError(t, err)
	require.Equal(t, Retry{7, time.Second, 30 * time.Second}, compiled.Steps[0].Retry)
	require.Equal(t, time.Second, compiled.Steps[0].Undo.Heartbeat)
}
