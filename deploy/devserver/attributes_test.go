package devserver

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
)

// The server refreshes its view of a namespace every few seconds.
const waitForCache = 90 * time.Second

func TestSearchAttributesThatAreMissing(t *testing.T) {
	hideCLI(t)
	s := startServer(t, Options{})
	c, ctx := dial(t, s), t.Context()

	names, command, err := MissingSearchAttributes(ctx, c, "default")
	require.NoError(t, err)
	require.Empty(t, names, "a start registers them")
	require.Empty(t, command)

	remove := func(names ...string) {
		t.Helper()
		_, err := c.OperatorService().RemoveSearchAttributes(ctx,
			&operatorservice.RemoveSearchAttributesRequest{Namespace: "default", SearchAttributes: names})
		require.NoError(t, err)
	}
	missing := func() []string {
		names, command, err = MissingSearchAttributes(ctx, c, "default")
		require.NoError(t, err)
		return names
	}
	remove("UnwindStatus", "UnwindPending")
	require.Eventually(t, func() bool { return len(missing()) == 2 }, waitForCache, pollEvery)
	require.Equal(t, []string{"UnwindStatus", "UnwindPending"}, names)
	require.Equal(t,
		"temporal operator search-attribute create --namespace default --name UnwindStatus --type Keyword --name "+
			"UnwindPending --type Int", command)

	require.NoError(t, EnsureSearchAttributes(ctx, c, "default"))
	require.Empty(t, missing())
	require.NoError(t, EnsureSearchAttributes(ctx, c, "default"), "nothing to do is fine")

	remove("UnwindPending")
	_, err = c.OperatorService().AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{Namespace: "default",
		SearchAttributes: map[string]enums.IndexedValueType{"UnwindPending": enums.INDEXED_VALUE_TYPE_KEYWORD}})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, _, err := MissingSearchAttributes(ctx, c, "default")
		return err != nil
	}, waitForCache, pollEvery)
	require.ErrorContains(t, EnsureSearchAttributes(ctx, c, "default"),
		"UnwindPending of namespace default is of type Keyword, but Unwind needs Int")
}

func TestHistoriesAreKeptForLong(t *testing.T) {
	hideCLI(t)
	s := startServer(t, Options{DB: filepath.Join(t.TempDir(), "dev.db")})
	for _, when := range []string{"at first", "after a restart, which has nothing to set"} {
		got, err := dial(t, s).WorkflowService().DescribeNamespace(t.Context(),
			&workflowservice.DescribeNamespaceRequest{Namespace: s.Namespace})
		require.NoError(t, err, when)
		require.Equal(t, retention, got.Config.WorkflowExecutionRetentionTtl.AsDuration(), when)
		require.NoError(t, s.Restart(t.Context()))
	}
}
