package task

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// Batches wait for each other, targets of one batch do not, and the steps of a target keep their
// order.
func TestAGroupBecomesSteps(t *testing.T) {
	compiled := mustCompile(t, accepted(t)["groups.yml"])
	var lines []string
	for _, s := range compiled.Steps {
		lines = append(lines, fmt.Sprintf("%s %v %s %s %s", s.ID, s.Needs, s.With, s.OnFailure.Do, s.OnFailure.With))
	}
	require.Equal(t, []string{
		`note [] {} rollback_step []`,
		`roll-out-web-1-config [note] {"path":"/srv/web-1/nginx.conf","content":"server web-1"} rollback_step []`,
		`roll-out-web-1-reload [roll-out-web-1-config] {"path":"${{ steps.roll-out-web-1-config.outputs.path }}.done"} ` +
			`rollback_step [roll-out-web-1-config]`,
		`roll-out-10-0-0-7-config [roll-out-web-1-reload] {"path":"/srv/10.0.0.7/nginx.conf","content":"server 10.0.0.7"} ` +
			`rollback_step []`,
		`roll-out-10-0-0-7-reload [roll-out-10-0-0-7-config] ` +
			`{"path":"${{ steps.roll-out-10-0-0-7-config.outputs.path }}.done"} rollback_step [roll-out-10-0-0-7-config]`,
		`others-web-2-config [roll-out-10-0-0-7-reload] {"path":"/srv/web-2","content":"$${{ target }}"} rollback_step []`,
		`others-web-3-config [roll-out-10-0-0-7-reload] {"path":"/srv/web-3","content":"$${{ target }}"} rollback_step []`,
		`others-web-4-config [others-web-2-config others-web-3-config] {"path":"/srv/Web.4","content":"$${{ target }}"} ` +
			`rollback_step []`,
		`done [others-web-4-config] {} rollback_step []`,
		`checked [done] {"path":"/srv/checked"} rollback_step []`,
	}, lines)
	config := compiled.Steps[1]
	require.Equal(t, []string{"nginx", "-t", "-c", "/srv/web-1/nginx.conf"}, config.Check[0].Command.Run)
	require.Equal(t, "limits of web-1", config.Name)
	require.Equal(t, "web-1", config.Place.Host)
}

// A step below a group, and one beside it, wait for what they would wait for without it.
func TestWhatStandsBelowAGroupFollowsIt(t *testing.T) {
	const step = "{id: s, uses: stripe.customer.create}"
	group := "- {id: g, for_each: [a, b, c], batch: 2, steps: [" + step + "]}\n"
	src := "name: t\nsteps:\n- {id: free, uses: stripe.customer.create, needs: []}\n" +
		strings.Replace(group, "id: g", "id: g, needs: []", 1) +
		"- {id: after, uses: stripe.customer.create}\n" + strings.Replace(group, "id: g", "id: h", 1) +
		"- {id: last, uses: stripe.customer.create, needs: [g, h]}\n"
	require.Equal(t, [][]string{nil, nil, {"g-a-s"}, {"g-a-s"}, {"free", "g-b-s", "g-c-s"}, {"after"}, {"h-a-s"}, {"h-a-s"},
		{"h-b-s", "h-c-s"}}, needsOf(mustCompile(t, src)))
}

// A value of a target keeps its type where it stands alone, and is data: no expression is read from
// it.
func TestAValueOfATargetIsData(t *testing.T) {
	src := "name: t\nvars: {all: [{name: a, port: 80, text: '$${{ vars.x }}'}]}\nsteps:\n" +
		"- id: g\n  for_each: ${{ vars.all }}\n  steps:\n  - id: s\n    uses: file.write\n" +
		"    with: {path: '/srv/${{ target.port }}', count: '${{ target.port }}', content: '${{ target.text }}'}\n"
	require.JSONEq(t, `{"path": "/srv/80", "count": 80, "content": "$${{ vars.x }}"}`, string(mustCompile(t, src).Steps[0].With))
}

func TestASessionStartsWithAGroupAndIsGivenNone(t *testing.T) {
	const session = `{"name": "t", "session": {}, "steps": []}`
	_, err := Addition{Session: []byte(session), Steps: []byte(`[{"id": "g", "for_each": ["a"],
		"steps": [{"id": "s", "uses": "stripe.customer.create"}]}]`)}.Parse()
	require.EqualError(t, err,
		"step:1:2: steps.g.for_each: a group cannot be added to a session; add the steps themselves")
}

// What a group makes is bounded before it is made.
func TestAGroupIsBounded(t *testing.T) {
	const group = "name: t\nvars: {all: [%s]}\nsteps:\n- id: g\n  for_each: ${{ vars.all }}\n  steps:\n" +
		"  - {id: s, uses: stripe.customer.create, with: {email: %q}}\n"
	targets := func(n int, more string) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf("{name: t%d%s}", i, more)
		}
		return strings.Join(all, ", ")
	}
	for name, c := range map[string]struct{ src, want string }{
		"targets": {fmt.Sprintf(group, targets(1001, ""), ""), "has 1001 targets; a group has 1 to 1000"},
		"bytes": {fmt.Sprintf(group, targets(1000, ""), strings.Repeat("x", 20_000)),
			"a task has at most 10000 of 16777216 in all"},
		"values": {fmt.Sprintf(group, targets(2, ", v: "+strings.Repeat("x", 30_000)), strings.Repeat("${{ target.v }}", 600)),
			"more than 16777216 bytes with their targets filled in"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("task.yml", []byte(c.src))
			require.ErrorContains(t, err, c.want)
		})
	}
}

// waitingCatalog knows wait.for besides.
func waitingCatalog() Catalog {
	known := catalog()
	known.Specs = append(known.Specs, activities.Spec{Name: "wait.for", Keys: []activities.Key{}, ReadOnly: true,
		Params: []byte(`{"type": "object"}`), Strategy: activities.NoUndo, Risk: activities.Low})
	known.Journals["wait"] = "none"
	return known
}

// Between large batches there is one step, so that what the ledger holds of them grows with the number
// of targets, and not with its square; the order is that of small ones.
func TestLargeBatchesWaitForOneStep(t *testing.T) {
	names := make([]string, 200)
	for i := range names {
		names[i] = fmt.Sprint("t", i)
	}
	group := func(id string) string {
		return "- id: " + id + "\n  for_each: [" + strings.Join(names, ", ") + "]\n  canary: 100\n  batch: 100\n" +
			"  on_failure: rollback_target\n  steps: [{id: s, uses: stripe.customer.create}]\n"
	}
	compiled, err := Compile(mustParse(t, "name: t\nsteps:\n"+group("g")+group("h")+
		"- {id: last, uses: stripe.customer.create, needs: [g]}\n"), waitingCatalog())
	require.NoError(t, err)
	batch := func(id string, from int) (ids []string) {
		for _, name := range names[from : from+100] {
			ids = append(ids, id+"-"+name+"-s")
		}
		return ids
	}
	pairs, joins := 0, map[string][]string{}
	for _, s := range compiled.Steps {
		pairs += len(s.Needs)
		if s.Uses == pauseAction {
			joins[s.ID] = s.Needs
			require.Equal(t, OnFailure{Do: FailRollbackStep}, s.OnFailure)
			require.Equal(t, GateOpen, s.Gate.Mode)
		}
	}
	require.Equal(t, map[string][]string{"g-batch-2": batch("g", 0), "h-batch-1": batch("g", 100), "h-batch-2": batch("h", 0)},
		joins)
	require.Equal(t, 300+300+100, pairs, "to the steps between, from them, and of the last step")
	require.Equal(t, []string{"g-batch-2"}, compiled.Steps[101].Needs)
	require.Equal(t, batch("g", 100), compiled.Steps[len(compiled.Steps)-1].Needs)
}

// pausing compiles a group of four targets, in batches of two, with more fields.
func pausing(t *testing.T, more string) *Compiled {
	src := "name: t\nsteps:\n- id: g\n  for_each: [a, '$${{ b }}', c, d]\n  batch: 2\n  "
	compiled, err := Compile(mustParse(t, src+more+
		"\n  steps: [{id: s, uses: stripe.customer.create}, {id: u, uses: stripe.customer.create}]\n"), waitingCatalog())
	require.NoError(t, err)
	return compiled
}

func TestAPauseIsAStepBeforeEachBatch(t *testing.T) {
	var lines []string
	for _, s := range pausing(t, "pause: 1h30m").Steps {
		lines = append(lines, fmt.Sprintf("%s %v %s %q", s.ID, s.Needs, s.With, s.Name))
	}
	require.Equal(t, []string{
		`g-a-s [] {} ""`,
		`g-a-u [g-a-s] {} ""`,
		`g-batch-2 [g-a-u] {"for":"1h30m"} "next: ${{ b }}, c; 1 target after that"`,
		`g-----b----s [g-batch-2] {} ""`,
		`g-----b----u [g-----b----s] {} ""`,
		`g-c-s [g-batch-2] {} ""`,
		`g-c-u [g-c-s] {} ""`,
		`g-batch-3 [g-----b----u g-c-u] {"for":"1h30m"} "next: d"`,
		`g-d-s [g-batch-3] {} ""`,
		`g-d-u [g-d-s] {} ""`,
	}, lines)
}

func TestAPauseMayBeAGate(t *testing.T) {
	compiled := pausing(t, "pause: gate\n  on_failure: rollback_target")
	stop := compiled.Steps[2]
	require.Equal(t, "g-batch-2", stop.ID)
	require.Equal(t, GateAsk, stop.Gate.Mode)
	require.Equal(t, "next: ${{ b }}, c; 1 target after that", stop.Gate.Why)
	require.JSONEq(t, `{}`, string(stop.With))
	require.Equal(t, OnFailure{Do: FailRollbackStep}, stop.OnFailure)
	require.Equal(t, GateOpen, compiled.Steps[3].Gate.Mode)
}

func TestAPauseNamesManyTargetsInBrief(t *testing.T) {
	var batch []target
	for i := range 1000 {
		batch = append(batch, target{values: map[string]*node{"name": {kind: text, text: fmt.Sprintf("%s-%d",
			strings.Repeat("n", 150), i)}}})
	}
	why := describeBatch(batch, 12)
	require.Less(t, len(why), MaxWhy)
	require.Contains(t, why, "n-2, 997 more; 12 targets after that")
}

func TestAPauseIsAGateOrATime(t *testing.T) {
	for _, wrong := range []string{"0s", "31d", "ask", "10", "true", "[]", "-1m"} {
		_, err := Parse("task.yml", []byte("name: t\nsteps:\n- id: g\n  for_each: [a]\n  pause: "+wrong+
			"\n  steps: [{id: s, uses: stripe.customer.create}]\n"))
		require.ErrorContains(t, err, "task.yml:5:10: steps.g.pause: must be gate, or a time of at most 30d", wrong)
		require.ErrorContains(t, err, "write gate, or a time like 10m, 2h or 1d")
	}
}
