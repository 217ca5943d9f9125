package policy

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// What a history does not tell is not taken for harmless.
func TestAPastStepIsJudgedByWhatIsKnownOfIt(t *testing.T) {
	const asks = "ask r (it looks at what the history of the task does not tell: "
	planned := Past{Case: deletion(7), Time: usualTime, IsPlanned: true}
	for name, c := range map[string]struct {
		when   string
		change func(*Past)
		want   string
	}{
		"a planned change":         {"change.counts.exists(c, c.removed == 7) && change.diffBytes == 40000", nil, "deny r"},
		"its step, time and host":  {"step.id == \"tidy\" && with.database == \"shop\" && time.getHours() == 12 && host == \"build-1\"", nil, "deny r"},
		"another change":           {"change.counts.exists(c, c.removed > 7)", nil, none},
		"one that was not planned": {"change.risk == \"high\"", func(s *Past) { s.IsPlanned = false }, asks + "change) 1 person"},
		"one of another action":    {"step.world == \"file\" && change.risk == \"high\"", func(s *Past) { s.IsPlanned = false }, none},
		"one that denies anyway":   {"step.world == \"postgres\" || change.risk == \"high\"", func(s *Past) { s.IsPlanned = false }, "deny r"},
		"a long list": {"\"x\" in change.keys", func(s *Past) {
			s.Case.Change.Keys = append(slices.Repeat([]string{"k"}, activities.MaxItems), "and 3 more")
		}, asks + "change.keys) 1 person"},
		"many tables": {"change.counts.exists(c, c.removed > 1000)", func(s *Past) {
			s.Case.Change.Counts = slices.Repeat(s.Case.Change.Counts, activities.MaxItems)[:activities.MaxItems]
		}, asks + "change.counts) 1 person"},
		"the sum of many tables": {"change.removed > 1000", func(s *Past) {
			s.Case.Change.Counts = slices.Repeat(s.Case.Change.Counts, activities.MaxItems)[:activities.MaxItems]
		}, asks + "change.removed) 1 person"},
		"a diff that was cut": {"change.diffBytes > 10", func(s *Past) {
			s.Case.Change.Diff = activities.HeadDiff(strings.Repeat("-\n", 40_000), activities.MaxDiff)
		}, asks + "change.diffBytes) 1 person"},
		"the host of what any may take":    {"host == \"build-1\"", func(s *Past) { s.Case.Host = "" }, asks + "host) 1 person"},
		"the history of what any may take": {"history.steps > 0", func(s *Past) { s.Case.Host = "" }, asks + "history) 1 person"},
	} {
		t.Run(name, func(t *testing.T) {
			s := planned
			if c.change != nil {
				c.change(&s)
			}
			all, err := load(t, "rules:\n  - {name: r, when: '"+c.when+"', then: deny}\n").JudgePast(t.Context(), []Past{s})
			require.NoError(t, err)
			require.Equal(t, c.want, describe(all[0]))
		})
	}
}

func TestTheHistoryOfAPastStepIsWhatWasDoneBefore(t *testing.T) {
	step := func(action, host string, removed int64) Past {
		return Past{IsPlanned: true, Time: time.Unix(0, 0), Case: activities.Case{Action: action, Host: host,
			Change: activities.Change{Counts: []activities.Count{{Of: "a", Removed: removed}}}}}
	}
	reads, unplanned := step("sqlite.query", "one", 100), step("file.write", "one", 0)
	reads.ReadOnly, unplanned.IsPlanned = true, false
	steps := []Past{step("sqlite.exec", "one", 20), reads, step("sqlite.exec", "two", 400), step("sqlite.exec", "one", 3), unplanned,
		step("sqlite.exec", "one", 1)}
	verdicts := func(when string) (all []string) {
		rulings, err := load(t, "rules:\n  - {name: r, when: '"+when+"', then: deny}\n").JudgePast(t.Context(), steps)
		require.NoError(t, err)
		for _, r := range rulings {
			all = append(all, describe(r))
		}
		return all
	}
	require.Equal(t, []string{none, none, none, none, none, "deny r"}, verdicts("history.steps == 3"))
	require.Equal(t, []string{none, none, none, none, none, "deny r"}, verdicts("step.world == \"sqlite\" && history.by[step.action] == 2"))
	require.Equal(t, []string{none, none, none, none, "deny r",
		"ask r (it looks at what the history of the task does not tell: history.removed) 1 person"}, verdicts("history.removed == 23"))
}

// What any worker could have taken may have been counted by the one that judges.
func TestWhatAnyWorkerCouldHaveTakenLeavesTheHistoryUnknown(t *testing.T) {
	step := func(action, host string) Past {
		return Past{IsPlanned: true, Time: time.Unix(0, 0), Case: activities.Case{Action: action, Host: host}}
	}
	steps := slices.Concat([]Past{step("file.write", "one")}, slices.Repeat([]Past{step("postgres.exec", "")}, 50),
		[]Past{step("file.write", "one")})
	const asks = "ask r (it looks at what the history of the task does not tell: history) 1 person"
	last := func() string {
		rulings, err := load(t, "rules:\n  - {name: r, when: 'history.steps > 50', then: deny}\n").JudgePast(t.Context(), steps)
		require.NoError(t, err)
		require.Equal(t, none, describe(rulings[0]))
		return describe(rulings[51])
	}
	require.Equal(t, asks, last())
	for i := range steps[1:51] {
		steps[1+i].ReadOnly = true
	}
	require.Equal(t, none, last(), "reads are never counted")
}

// No worker counts what was planned and never acted.
func TestWhatWasOnlyPlannedIsNotCounted(t *testing.T) {
	step := Past{IsPlanned: true, Time: time.Unix(0, 0), Case: activities.Case{Action: "sqlite.exec", Host: "one",
		Change: activities.Change{Counts: []activities.Count{{Of: "a", Removed: 7}}}}}
	rejected := step
	rejected.IsPlannedOnly = true
	rulings, err := load(t, "rules:\n  - {name: r, when: 'history.steps == 1 && history.removed == 7', then: deny}\n").
		JudgePast(t.Context(), []Past{step, rejected, step})
	require.NoError(t, err)
	require.Equal(t, []string{"deny r", "deny r"}, []string{describe(rulings[1]), describe(rulings[2])})
}
