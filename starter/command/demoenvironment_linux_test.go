package command

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/examples/shop"
	"github.com/seed-62bf7108/unwind/testrun"
)

func TestDemoPlaysTheStoryOfAnEnvironment(t *testing.T) {
	if err := shop.Missing(); err != nil {
		testrun.Skipf(t, "the demo of environments is not tested: %v", err)
	}
	t.Setenv("TEMPORAL_ADDRESS", servertest.Shared(t).Address)
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	r := do(t.Context(), Options{}, "demo", "--exit", "--example", "environment")
	require.Equal(t, statusOK, r.status, r.out+r.err)
	told := 0
	for _, line := range []string{
		"health answers 200: release 1.4.2 sells solo for 500, legacy for 900, team for 1500",
		`starter env checkpoint shop-`,
		"commit ",
		"+ALTER TABLE plan RENAME COLUMN cents TO price;",
		`health answers 500: ERROR: column "price_cents" does not exist`,
		"starter env rollback shop-",
		"verify             ok",
		"stop-unit          ok",
		"safety-checkpoint  ok",
		"restore-files      ok",
		"restore-databases  ok",
		"start-unit         ok",
		"health-check       ok",
		"✓ as at the checkpoint, and the same page: 5 files",
		"health-check       warning",
		`health answers 500: ERROR: column "price_cents" does not exist`,
		"starter env diff shop-",
		"~ /lib/pricelist/plans.sql",
		"~ table data public.plan: 3 rows then, 2 now",
		"+ /notes.txt",
		"health answers 200: release 1.5.0 sells solo for 500, team for 1500",
		"✓ what it tells, and nothing else: 8 files",
		"NO ANSWER  AN ERROR  DURING",
		"a checkpoint before the upgrade",
		"the rollback to the checkpoint",
	} {
		at := strings.Index(r.out[told:], line)
		require.GreaterOrEqual(t, at, 0, "%q is not told, or too early:\n%s", line, r.out)
		told += at
	}
	require.NoDirExists(t, regexp.MustCompile(`its parts are in (\S+)`).FindStringSubmatch(r.out)[1])
	response, err := http.Get(regexp.MustCompile(`http://127\.0\.0\.1:\d+/`).FindString(r.out))
	if err == nil {
		response.Body.Close()
	}
	require.ErrorContains(t, err, "connection refused", "the shop is still there")
}

func TestTheDemoOfAnEnvironmentSaysWhatTheMachineLacks(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	r := do(t.Context(), Options{}, "demo", "--exit", "--example", "environment")
	require.Equal(t, statusFailed, r.status)
	require.Regexp(t, `^starter: the example environment cannot be played here: (there is no git on PATH|PostgreSQL is not installed).*\n$`, r.err)
	require.Empty(t, r.out)
	r = do(t.Context(), Options{}, "demo", "--example", "environments")
	require.Equal(t, statusUsage, r.status)
	require.Contains(t, r.err, `there is no example "environments"; there are publish-release, `)
	require.Contains(t, r.err, ", environment\n")
}
