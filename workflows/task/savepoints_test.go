package task

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

const hour = time.Hour

// What happens when a step fails: its own word, else the task's, else the task unwinds.
func TestOnFailure(t *testing.T) {
	for task, wants := range map[string]map[string]OnFailure{
		"": {
			"":                                        {},
			"on_failure: unwind":                      {},
			"on_failure: rollback_step":               {Do: FailRollbackStep},
			"on_failure: continue":                    {Do: FailContinue},
			"on_failure: {unwind_to: p}":              {Do: FailUnwindTo, To: "p", Times: 1},
			"on_failure: {unwind_to: q}":              {Do: FailUnwindTo, To: "q", Times: 1},
			"on_failure: {unwind_to: p, times: 100}":  {Do: FailUnwindTo, To: "p", Times: 100},
			"needs: [], on_failure: {unwind_to: p}":   {Do: FailUnwindTo, To: "p", Times: 1},
			"pivot: true, on_failure: {unwind_to: p}": {Do: FailUnwindTo, To: "p", Times: 1},
			"pivot: true, on_failure: rollback_step":  {Do: FailRollbackStep},
		},
		"on_failure: unwind\n": {"": {}, "on_failure: continue": {Do: FailContinue}},
		"on_failure: continue\n": {
			"": {Do: FailContinue}, "on_failure: unwind": {}, "on_failure: rollback_step": {Do: FailRollbackStep},
			"on_failure: {unwind_to: p}": {Do: FailUnwindTo, To: "p", Times: 1},
		},
		"on_failure: rollback_step\n": {"": {Do: FailRollbackStep}},
	} {
		for step, want := range wants {
			if step != "" {
				step = ", " + step
			}
			const create = "uses: stripe.customer.create"
			compiled := mustCompile(t,
				task+stepsOf(create+", pivot: true", create+", savepoint: p", create, create+", savepoint: q"+step))
			require.Equal(t, want, compiled.Steps[3].OnFailure, task+step)
			require.Equal(t, [...]string{"", "p", "", "q"},
				[...]string{compiled.Steps[0].Savepoint, compiled.Steps[1].Savepoint, compiled.Steps[2].Savepoint,
					compiled.Steps[3].Savepoint})
			require.Equal(t, [...]bool{true, false, strings.Contains(step, "pivot")},
				[...]bool{compiled.Steps[0].Pivot, compiled.Steps[1].Pivot, compiled.Steps[3].Pivot})
		}
	}
}

// How the task is undone and for how long. What is the default takes no room.
func TestUnwindAndKeep(t *testing.T) {
	type task struct {
		unwind UnwindMode
		keep   time.Duration
	}
	for head, want := range map[string]task{
		"":                             {},
		"unwind: lifo\nkeep: 1h\n":     {},
		"unwind: lifo\nkeep: 60m\n":    {},
		"unwind: parallel\n":           {unwind: UnwindParallel},
		"keep: 3d\n":                   {keep: 72 * hour},
		"unwind: parallel\nkeep: 1s\n": {UnwindParallel, time.Second},
	} {
		compiled := mustCompile(t, head+stepsOf("uses: stripe.customer.create"))
		require.Equal(t, want, task{compiled.Unwind, compiled.Keep}, head)
		raw, err := compiled.MarshalJSON()
		require.NoError(t, err)
		require.Equal(t, want.unwind != "", strings.Contains(string(raw), "unwind\":\"parallel"), "%s", raw)
		require.Equal(t, want.keep != 0, strings.Contains(string(raw), `"keep"`), "%s", raw)
	}
}

func TestUndoPolicy(t *testing.T) {
	for undo, want := range map[string]activities.UndoPolicy{
		"{}": {},
		"{within: 1h, drift: ask, criticality: normal}": {},
		"{attempts: 7}":                   {Attempts: 7},
		"{attempts: 1000, within: 20m}":   {Attempts: 1000, Within: 20 * time.Minute},
		"{attempts: 1, within: 2m}":       {Attempts: 1, Attempt: 2 * time.Minute, Within: 2 * time.Minute},
		"{criticality: low}":              {Criticality: activities.LowCritical},
		"{drift: skip, criticality: low}": {Drift: activities.DriftSkip, Criticality: activities.LowCritical},
	} {
		require.Equal(t, want, mustCompile(t, stepsOf("uses: stripe.customer.create, undo: "+undo)).Steps[0].Undo, undo)
	}
}

// A task cannot be rolled back for longer than the server keeps its run.
func TestRetention(t *testing.T) {
	for _, c := range []struct {
		head      string
		retention time.Duration
		want      string
	}{
		{"", 0, ""},
		{"", hour, ""},
		{"keep: 3650d\n", 0, ""},
		{"keep: 3d\n", 72 * hour, ""},
		{"keep: 30m\n", 30 * time.Minute, ""},
		{"keep: 72h1s\n", 72 * hour,
			`task.yml:1:7: keep: is longer than the 3d that the server keeps closed runs, found "72h1s"; write at most 3d, or raise the retention of the namespace`},
		{"keep: 2h\n", 90*time.Minute + 1500*time.Millisecond,
			`task.yml:1:7: keep: is longer than the 1h30m1s500ms that the server keeps closed runs, found "2h"; write at most 1h30m1s500ms, or raise the retention of the namespace`},
		{"", 30 * time.Minute,
			`task.yml:1:1: keep: is missing, and its default of 1h is longer than the 30m that the server keeps closed runs; add keep: 30m, or raise the retention of the namespace`},
	} {
		cat := catalog()
		cat.Retention = c.retention
		_, err := Compile(mustParse(t, c.head+stepsOf("uses: stripe.customer.create")), cat)
		if c.want == "" {
			require.NoError(t, err, c.head)
		} else {
			require.EqualError(t, err, c.want, c.head)
		}
	}
}

// What a message says of a time can be written into the file.
func TestWrittenDurations(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"1h": hour, "3d": 72 * hour, "1d1m": 24*hour + time.Minute, "1h30m": 90 * time.Minute,
		"1s500ms": 1500 * time.Millisecond, "3650d": MaxDuration,
	} {
		require.Equal(t, want, activities.WriteDuration(d))
		back, ok := activities.ParseDuration(want)
		require.True(t, ok)
		require.Equal(t, d, back)
	}
}

// Ways back from every step of a long task, and as many that are wrong, take no time.
func TestManySavepoints(t *testing.T) {
	long := func(to func(i int) string) string {
		var lines []string
		for i := range MaxSteps {
			lines = append(lines,
				fmt.Sprintf("uses: stripe.customer.create, savepoint: p%d, on_failure: {unwind_to: %s}", i, to(i)))
		}
		return stepsOf(lines...)
	}
	compiled := mustCompile(t, long(func(i int) string { return fmt.Sprintf("p%d", i/2) }))
	require.Equal(t, "p4999", compiled.Steps[MaxSteps-1].OnFailure.To)
	for _, to := range []string{"q", "p9999"} {
		_, err := Parse("task.yml", []byte(long(func(int) string { return to })))
		require.Len(t, err.(Problems), MaxProblems+1)
	}
}
