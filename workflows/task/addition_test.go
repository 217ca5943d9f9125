package task

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const opened = `{"name": "live", "agent": "bot", "vars": {"dir": "/srv"}, "session": {"idle": "5m"}, "steps": []}`

func compileAddition(t *testing.T, steps string, earlier map[string]string) (*Compiled, error) {
	t.Helper()
	doc, err := Addition{Session: json.RawMessage(opened), Steps: json.RawMessage(steps), Earlier: earlier}.Parse()
	if err != nil {
		return nil, err
	}
	return Compile(doc, catalog())
}

// A session needs no steps, and a step that fails in it is undone alone unless its file says
// otherwise.
func TestASessionIsATaskThatMayHaveNoSteps(t *testing.T) {
	compiled := mustCompile(t, opened)
	require.Equal(t, &Session{Idle: 5 * time.Minute, Gone: GoneAsk}, compiled.Session)
	require.Empty(t, compiled.Steps)

	const step = "\nsteps:\n- {id: a, uses: file.write, with: {path: /srv/a}}\n"
	require.Equal(t, FailRollbackStep, mustCompile(t, "name: t\nsession: {}"+step).Steps[0].OnFailure.Do)
	require.Equal(t, FailUnwind, mustCompile(t, "name: t\nsession: {}\non_failure: unwind"+step).Steps[0].OnFailure.Do)
	require.Nil(t, mustCompile(t, "name: t"+step).Session)
}

func TestAddedStepsAreOrderedAmongThemselvesAndAfterTheSession(t *testing.T) {
	compiled, err := compileAddition(t, `[
		{"id": "c", "uses": "file.write", "with": {"path": "${{ vars.dir }}/c"}},
		{"id": "d", "uses": "file.write", "with": {"path": "/srv/d"}},
		{"id": "e", "uses": "file.write", "needs": ["a"], "with": {"path": "/srv/d/e", "content": "${{ steps.b.outputs.id }}"}},
		{"id": "f", "uses": "file.write", "needs": [], "with": {"path": "/srv/f"}},
		{"id": "g", "uses": "stripe.customer.create", "with": {"email": "${{ steps.a.outputs.path }}"}}
	]`, map[string]string{"a": "file.write", "b": "stripe.customer.create"})
	require.NoError(t, err)
	type order struct {
		id, needs string
		follows   bool
	}
	var got []order
	for _, s := range compiled.Steps {
		got = append(got, order{s.ID, strings.Join(s.Needs, " "), s.Follows})
		require.Equal(t, FailRollbackStep, s.OnFailure.Do)
	}
	require.Equal(t, []order{
		{"c", "", true}, {"d", "c", false}, {"e", "a b d", false}, {"f", "", false}, {"g", "a e f", false},
	}, got)
	require.JSONEq(t, `{"path": "/srv/c"}`, string(compiled.Steps[0].With))
}

func TestAnAdditionThatIsWrongIsRefusedWithTheWayOut(t *testing.T) {
	earlier := map[string]string{"a": "file.write"}
	for steps, want := range map[string]string{
		`[{"id": "b", "uses": "file.wite", "with": {"path": "/srv/b"}}]`:                                    "did you mean file.write?",
		`[{"id": "b", "uses": "file.write", "with": {"paht": "/srv/b"}}]`:                                   "did you mean path?",
		`[{"id": "a", "uses": "file.write", "with": {"path": "/srv/b"}}]`:                                   "an earlier step has this id",
		`[{"id": "b", "uses": "file.write", "needs": ["x"], "with": {"path": "/srv/b"}}]`:                   "there is no such step",
		`[{"id": "b", "uses": "file.write", "with": {"path": "${{ steps.a.outputs.pth }}"}}]`:               "file.write has no such output, found \"${{ steps.a.outputs.pth }}\"; did you mean path?",
		`[{"id": "b", "uses": "file.write", "with": {"path": "/srv/b"}, "on_failure": {"unwind_to": "x"}}]`: "there is no such savepoint",
		`[]`: "has 0 steps",
		`{}`: "must be a list",
		`[{"id": "b", "uses": "file.write", "id": "c"}]`: "stands here a second time",
		`[`: "not JSON",
	} {
		_, err := compileAddition(t, steps, earlier)
		require.ErrorContains(t, err, want, steps)
	}
	_, err := Addition{Session: json.RawMessage(`{"name": "t", "steps": []}`), Steps: json.RawMessage(`[{}]`)}.Parse()
	require.ErrorContains(t, err, "the task is no session")
}

func TestMentionedNamesWhatAnAdditionBuildsOn(t *testing.T) {
	needed, referred := Mentioned(
		json.RawMessage(`[{"needs": ["b", "a"]}, {"with": {"x": ["${{ steps.c.outputs.id }}", "${{ vars.d }}"]}}]`))
	require.Equal(t, []string{"a", "b"}, needed)
	require.Equal(t, []string{"c"}, referred)
	needed, referred = Mentioned(json.RawMessage(`{"needs"`))
	require.Empty(t, append(needed, referred...))
}
