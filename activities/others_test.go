package activities_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/seed-62bf7108/unwind/activities"
)

type unlisted = activities.Records

// listed are records of a journal, of which only the list is asked for.
type listed struct {
	unlisted

	all []activities.Record
}

func (l listed) Records(context.Context) ([]activities.Record, []error, error) {
	return l.all, nil, nil
}

// TestADriftNamesTheStepsOfOthers that have acted on the same since, by the world's records.
func TestADriftNamesTheStepsOfOthers(t *testing.T) {
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	record := func(task, token, key string, minute int, state activities.RecordState) activities.Record {
		return activities.Record{
			Entry: activities.Entry{Version: 1, Token: token, Step: "change", Action: "echo.say", Keys: []string{key}},
			Owner: activities.Owner{Workflow: task}, State: state, Since: at.Add(time.Duration(minute) * time.Minute),
		}
	}
	mine := record("mine", "t0", "file:/a/b", 0, activities.RecordOpen)
	undo := func(all ...activities.Record) string {
		r := activities.NewRegistry(activities.World{
			Name: "echo", Actions: []activities.Action{echo{}}, Records: listed{all: append(all, mine)},
			Journal: func(context.Context) (string, error) { return "journal", nil },
		})
		var suite testsuite.WorkflowTestSuite
		env := suite.NewTestActivityEnvironment()
		r.Register(env, activities.Host{})
		v, err := env.ExecuteActivity("echo.say.undo", activities.Backward{Entry: mine.Entry})
		require.NoError(t, err)
		var undone activities.Undone
		require.NoError(t, v.Get(&undone))
		return undone.Drift.Diff
	}
	require.Empty(t, undo(
		record("before", "t1", "file:/a/b", -1, activities.RecordCommitted),
		record("elsewhere", "t2", "file:/a/bc", 1, activities.RecordCommitted),
		record("undone", "t3", "file:/a/b", 1, activities.RecordUndone),
	))
	require.Equal(t, `! others that have acted on the same since, by the records of this world:
!   task later, step change (echo.say), 2026-05-01T12:07:00Z
!   task folder, step change (echo.say), 2026-05-01T12:03:00Z
`, undo(record("folder", "t1", "file:/a", 3, activities.RecordOpen),
		record("later", "t2", "file:/a/b", 7, activities.RecordCommitted)))
	var many []activities.Record
	for n := range 8 {
		many = append(many, record(fmt.Sprint("task-", n), fmt.Sprint("m", n), "file:/a/b", n+1, activities.RecordOpen))
	}
	named := undo(many...)
	require.Contains(t, named, "task task-7, ")
	require.NotContains(t, named, "task task-2, ")
	require.True(t, strings.HasSuffix(named, "!   and 3 more steps\n"), named)
}
