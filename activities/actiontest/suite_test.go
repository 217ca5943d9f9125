package actiontest_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/actiontest"
)

// found names, for each flaw, tests of the suite that must find it.
var found = map[flaw][]string{
	noFence:          {"broken/apply_stopped"},
	recordAfterwards: {"broken/apply_killed"},
	blindUndo:        {"drift"},
	loneForce:        {"drift"},
	rubberStamp:      {"stale_digest", "changed_meanwhile"},
	asksNobody:       {"unapproved"},
	judgesAgain:      {"stale_digest", "broken/apply_killed_and_retried"},
	noTombstone:      {"undo_without_apply", "plan_touches_nothing", "release"},
	anyPlace:         {"wrong_place"},
	keepsNothing:     {"broken/undo_stopped"},
	showsSecret:      {"secret"},
	redoesBlindly:    {"redo_meanwhile"},
	redoesAnew:       {"redo_drift"},
	keepsLate:        {"broken/rollback_killed"},
	keepsForever:     {"redo_released", "records_undone"},
	nobodys:          {"records", "records_undone"},
	endsEarly:        {"records_undone"},
	missesLoss:       {"documents_gone"},
	releasesHeld:     {"records_held"},
	forgetsEpochs:    {"journal_rewound"},
}

// flawVariable makes TestFlawed run the suite on a flawed toy, in a separate process, which should
// fail.
const flawVariable = "ACTIONTEST_FLAW"

func TestMain(m *testing.M) {
	cases := []actiontest.Case{shelfCase(noFlaw), keysCase}
	for f := range found {
		cases = append(cases, shelfCase(f))
	}
	os.Exit(actiontest.Main(m, cases...))
}

func TestCorrectActionPasses(t *testing.T) { actiontest.Run(t, shelfCase(noFlaw)) }

func TestFlawed(t *testing.T) {
	if f := os.Getenv(flawVariable); f != "" {
		actiontest.Run(t, shelfCase(flaw(f)))
		return
	}
	failed := regexp.MustCompile(`(?m)^ *--- FAIL: TestFlawed/(\S+)`)
	for f, names := range found {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			// Only the tests that must find it: the others might too, and take time.
			var tests []string
			for _, name := range names {
				top, _, _ := strings.Cut(name, "/")
				tests = append(tests, top)
			}
			cmd := exec.Command(os.Args[0], "-test.short", "-test.v", "-test.run=^TestFlawed$/^("+strings.Join(tests, "|")+")$")
			cmd.Env = append(os.Environ(), flawVariable+"="+string(f))
			out, err := cmd.CombinedOutput()
			require.Error(t, err, "the suite has found nothing:\n%s", out)
			var by []string
			for _, m := range failed.FindAllStringSubmatch(string(out), -1) {
				by = append(by, m[1])
			}
			t.Logf("found by %q", by)
			for _, name := range names {
				require.True(t, slices.Contains(by, name), "%s has not found it, but %q", name, by)
			}
		})
	}
}
