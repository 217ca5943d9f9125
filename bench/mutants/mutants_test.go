package mutants

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/testrun"
)

// mutant is a change of one place in the source that the tests must notice.
type mutant struct {
	name string
	// in is the folder of the source, from the root of the repository; from stands in one of its
	// files, once, and becomes to.
	in, from, to string
	// also are changes of other places, where either guards what the other does.
	also []mutant
	// tests is the package whose tests must fail at the depth of a plain run, and run which of them
	// are enough.
	tests, run string
}

var mutants = []mutant{
	{
		name: "compensations registers nothing", in: "compensations",
		from: "e, fresh := s.ledger.Push(", to: "e, fresh := new(Ledger).Push(",
		tests: "compensations", run: "TestFailedStepAndAllBeforeItAreUndoneLastInFirstOut",
	},
	{
		name: "journal does not sync folders", in: "activities/journal",
		from: "\tdefer d.Close()\n\treturn fsync(d)", to: "\tdefer d.Close()\n\treturn nil",
		tests: "activities/journal", run: "Durable|OnTheDisk",
	},
	{
		name: "journal does not sync documents", in: "activities/journal",
		from: "return f.Name(), fsync(f)", to: "return f.Name(), nil",
		tests: "activities/journal", run: "Durable|OnTheDisk",
	},
	{
		name: "a worker believes who claims to have approved", in: "activities",
		from: "\tcase waits != \"\":\n\t\treturn Errorf(StaleApproval,", to: "\tcase false:\n\t\treturn Errorf(StaleApproval,",
		tests: "activities", run: "TestAForwardIsJudgedAsItActs",
	},
	{
		name: "a worker makes another change than it has judged", in: "activities",
		from: "f.Step, cmp.Or(p.Change, want))", to: `f.Step, cmp.Or(want, ""))`,
		tests: "activities", run: "TestATargetThatChangesWhileItIsJudged|TestAForwardIsJudgedAsItActs",
	},
	{
		name: "a rule that cannot be evaluated is passed over", in: "worker/policy",
		from: "oneLine(err)\n\t\treturn f, true", to: "oneLine(err)\n\t\treturn f, false",
		tests: "worker/policy", run: "TestVerdicts",
	},
	{
		name: "a Cedar policy that cannot be evaluated is passed over", in: "worker/policy",
		from: "range append(forbidden.Errors, permitted.Errors...) {", to: "range permitted.Errors {",
		tests: "worker/policy", run: "TestCedarVerdicts",
	},
	{
		name: "an OPA that gives no verdict allows", in: "worker/policy",
		from: `f = o.asks("it gave no verdict: " + err.Error())`, to: "f.verdict = activities.Allows",
		tests: "worker/policy", run: "TestWhatIsNoVerdictOfOPAAsks",
	},
	{
		name: "two steps beside each other use the last of a budget", in: "activities",
		from: "if isStale, err := seen.isStale(); isStale", to: "if isStale, err := false, error(nil); isStale",
		tests: "activities", run: "TestAChangeIsJudgedAnew",
	},
	{
		name: "file has no fence", in: "activities/file",
		from:  "if err := u.leaveTombstone(stagePath(u.id), undoPath(u.id, keptName)); err != nil {",
		to:    "if err := error(nil); err != nil {",
		tests: "activities/file", run: "TestConformance/replace_a_file$",
	},
	{
		name: "file keeps no record", in: "activities/file",
		from: "if _, err := f.token.Create(journal.Record, &f.rec); err != nil {", to: "if err := error(nil); err != nil {",
		tests: "activities/file", run: "TestConformance/replace_a_file$",
	},
	{
		name: "container lets in who comes after the undo", in: "activities/journal",
		from: "\tif f != Undecided {", to: "\tif f == Releasing {",
		tests: "activities/container/checkpoint/dockercommit", run: "TestChanging/(undo_without_apply|apply_then_undo)$",
	},
	{
		name: "container runs what was taken back", in: "activities/container",
		from: "err == nil && holder.Holder != forwardHolds {", to: `err == nil && holder.Holder == "" {`,
		also: []mutant{{name: "its journal", in: "activities/journal", from: "\tif f != Undecided {",
			to: "\tif f == Releasing {"}},
		tests: "activities/container/checkpoint/dockercommit", run: "TestChanging/undo_without_apply$",
	},
	{
		name: "container keeps no record", in: "activities/container",
		from: "_, err = a.token.Create(journal.Record, &rec)", to: "err = nil",
		tests: "activities/container/checkpoint/dockercommit", run: "TestChanging/(apply_then_undo|undo_twice)$",
	},
	{
		name: "folder does not bring back the container that it has set aside", in: "activities/folder",
		from: "old := m.setAside()\n\t\terr := old.BringBack(ctx, old.RestoreRestarts)", to: "err := error(nil)",
		tests: "activities/folder", run: "TestADeployedContainerGoesBack",
	},
	{
		name: "folder leaves free the name from which it has brought a container forward", in: "activities/docker/aside",
		from: "if fenced, err := c.Hold(ctx, FormerName(from)); err != nil || fenced {", to: "if err == nil {",
		tests: "activities/folder", run: "TestALateUndoMovesNoContainerThatIsLiveAgain/forward_again",
	},
	{
		name: "folder leaves free the name from which it has brought a container back", in: "activities/docker/aside",
		from: `err == nil && taken && c.Left != ""`, to: "false",
		tests: "activities/folder", run: "TestALateUndoMovesNoContainerThatIsLiveAgain/undone",
	},
	{
		name: "folder releases a step without what a later one has left aside for it", in: "activities/folder",
		from: "left, err := m.setAside().LeftBy(ctx)", to: `left, err := "", error(nil)`,
		tests: "activities/folder", run: "TestWhatIsLeftAsideGoesWithTheStepThatSetItAside",
	},
	{
		name: "folder drops what another step's record needs", in: "activities/docker/aside",
		from: "giver != token {", to: "giver == \"\" {",
		tests: "activities/folder", run: "TestWhatIsLeftAsideGoesWithTheStepThatSetItAside",
	},
	{
		name: "folder takes any container for the one that it has made", in: "activities/folder",
		from: "case holder.ID == id:", to: `case holder.ID != "":`,
		tests: "activities/folder", run: "TestAThirdContainerIsNotTakenAway",
	},
	{
		name: "sqlite lets in who comes after the undo", in: "activities/journal",
		from: "\tif f != Undecided {", to: "\tif f == Releasing {",
		tests: "activities/sqlite", run: "TestConformance/rows$",
	},
	{
		name: "sqlite leaves no mark", in: "activities/sqlite",
		from: "if err := d.mark(c.Entry.Token, m); err != nil {", to: "if err := error(nil); err != nil {",
		tests: "activities/sqlite", run: "TestConformance/rows$",
	},
	{
		name: "sqlite keeps no record", in: "activities/sqlite",
		from: "if _, err := c.token.Create(journal.Record, &rec); err != nil {", to: "if err := error(nil); err != nil {",
		tests: "activities/sqlite", run: "TestConformance/rows$",
	},
	{
		name: "sqlite waits for a stopped process", in: "activities/isolated",
		from:  "if j.Op == Undo && (other.op != Undo || time.Since(began) > patience) || other.isStuck() {",
		to:    "if false {",
		tests: "activities/sqlite", run: "TestConformance/rows$",
	},
	{
		name: "units believe that what looks stopped is", in: "activities/unit",
		from: "if err := c.force(ctx, ran); err != nil {", to: "if err := c.switchTo(ctx, ran); err != nil {",
		tests: "activities/unit", run: "TestWhatIsStillUnderWayIsTakenBack",
	},
	{
		name: "sqlite does not sync what an undo needs", in: "activities/sqlite",
		from: "durable.DigestFile(s.path, fsync)", to: "durable.DigestFile(s.path, nil)",
		tests: "activities/sqlite", run: "TestUndoDataIsOnTheDiskBeforeTheCommit",
	},
	{
		name: "postgres lets in who comes after the undo", in: "activities/postgres",
		from: "\t\tcase r.State != recordkeeping.Applied:", to: "\t\tcase r.State == \"\":",
		tests: "activities/postgres", run: "TestConformance/exec$",
	},
	{
		name: "postgres does not end what is open when the undo begins", in: "activities/postgres",
		from: "if err := c.fence(e, recordkeeping.Undoing); err != nil {", to: "if err := error(nil); err != nil {",
		tests: "activities/postgres", run: "TestConformance/exec$",
	},
	{
		name: "postgres keeps no record", in: "activities/postgres",
		from: "n, created, err = c.insertRecord(e, recordkeeping.Applied)", to: "n, created = 1, true",
		tests: "activities/postgres", run: "TestConformance/exec$",
	},
	{
		name: "terraform lets in who comes after the undo", in: "activities/journal",
		from: "\tif f != Undecided {", to: "\tif f == Releasing {",
		tests: "activities/terraform/terraformtest", run: "TestBuiltin/undo_without_apply$",
	},
	{
		name: "terraform starts for a step that was taken back", in: "activities/terraform/run",
		from: "if err := CheckFence(s.token, s.Turn); err != nil {", to: "if err := error(nil); err != nil {",
		tests: "activities/terraform", run: "TestWokenRightAfterTheUndo",
	},
	{
		name: "terraform keeps what it imported in the state", in: "activities/terraform",
		from: "if a.Imported && now.Has(a.Address) {", to: "if a.Imported && now.Has(a.From) {",
		tests: "activities/terraform", run: "TestAnImportIsUndoneByForgetting",
	},
	{
		name: "terraform keeps no record", in: "activities/terraform",
		from: "if _, err := pr.ws.Token.Create(journal.Record, r); err != nil {", to: "if err := error(nil); err != nil {",
		tests: "activities/terraform/terraformtest", run: "TestBuiltin/apply_then_undo$",
	},
	{
		name: "terraform lets pass what nobody has accepted", in: "activities/terraform",
		from: "if to.isAccepted() {", to: "if to != nil {",
		tests: "activities/terraform", run: "TestARestoreThatReplacesIsAcceptedBefore",
	},
	{
		name: "terraform puts files into a folder that was taken back", in: "activities/terraform/configuration",
		from: "if err := p.Over(); err != nil {", to: "if err := error(nil); err != nil {",
		tests: "activities/terraform/configuration", run: "TestALatePlacementTouchesNothing/over",
	},
	{
		name: "stripe has no fence", in: "activities/stripe",
		from: "\t_, _, err = c.postWithKey(path, formParams(\"metadata[\"+k.mark(fenceMark)+\"]\", token), " +
			"deriveKey(token))",
		to: "\t_, _, err = c.postWithKey(path, formParams(\"metadata[\"+k.mark(fenceMark)+\"]\", token), " +
			"deriveKey(token, \"else\"))",
		tests: "activities/stripe", run: "TestConformance/payment_intent",
	},
}

const root = "../.."

// places are all that a mutant changes.
func (m mutant) places() []mutant { return append([]mutant{m}, m.also...) }

// find is the file that a mutant changes, with its content then.
func (m mutant) find(t *testing.T) (path string, content []byte) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(filepath.Join(root, m.in), func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(at) != ".go" || strings.HasSuffix(at, "_test.go") {
			return err
		}
		source, err := os.ReadFile(at)
		if n := strings.Count(string(source), m.from); n > 0 {
			require.Equal(t, 1, n, "%s: what %q changes stands there more than once", at, m.name)
			require.Empty(t, path, "what %q changes stands in two files", m.name)
			path, content = at, []byte(strings.Replace(string(source), m.from, m.to, 1))
		}
		return err
	}))
	require.NotEmpty(t, path, "what %q changes stands nowhere below %s any more: bring the mutant up to date", m.name,
		m.in)
	return path, content
}

func TestEachMutantHasItsPlace(t *testing.T) {
	for _, m := range mutants {
		for _, each := range m.places() {
			each.find(t)
		}
	}
}

// TestEachMutantIsFound runs tests, at the depth of a plain run that leaves out none of many, on
// one mutant after another, in drawn order.
func TestEachMutantIsFound(t *testing.T) {
	if testrun.Plain() {
		return
	}
	for _, i := range testrun.Rand(t).Perm(len(mutants)) {
		m := mutants[i]
		t.Run(m.name, func(t *testing.T) {
			testrun.Extra(t)
			out, err := m.test(t)
			require.Error(t, err, "no test has noticed:\n%s", out)
			require.Contains(t, out, "--- FAIL: ", "it has not come to its tests:\n%s", out)
		})
	}
}

// test runs the tests with a mutant in place of what it changes.
func (m mutant) test(t *testing.T) (string, error) {
	dir, replace := t.TempDir(), map[string]string{}
	for i, each := range m.places() {
		path, content := each.find(t)
		replaced, err := filepath.Abs(path)
		require.NoError(t, err)
		require.NotContains(t, replace, replaced, "two places of one file")
		replace[replaced] = filepath.Join(dir, fmt.Sprintf("%d.go", i))
		require.NoError(t, os.WriteFile(replace[replaced], content, 0o600))
	}
	overlay := filepath.Join(dir, "overlay.json")
	raw, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, raw, 0o600))
	cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-timeout=10m", "-overlay="+overlay, "-run="+m.run,
		"./"+m.tests)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "UNWIND_TEST_DEEP=", "UNWIND_TEST_SHARE=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}
