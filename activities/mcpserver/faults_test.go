package mcpserver_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/declared"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/mcpserver"
	"github.com/seed-62bf7108/unwind/activities/mcpserver/mcptest"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// store is a server with one note, and the world over it.
type store struct {
	*testing.T

	dir   string
	world activities.World
	steps int
}

func newStore(t *testing.T) *store {
	t.Helper()
	return newStoreOf(t, func(*mcpserver.Declarations) {})
}

// newStoreOf is a store of which something else is declared.
func newStoreOf(t *testing.T, declare func(*mcpserver.Declarations)) *store {
	t.Helper()
	return newStoreWith(t, func(c *mcpserver.Config) {
		notes := c.Servers["notes"]
		declare(&notes.Declarations)
		c.Servers["notes"] = notes
	})
}

// newStoreWith is a store in a world with another config.
func newStoreWith(t *testing.T, change func(*mcpserver.Config)) *store {
	t.Helper()
	dir := t.TempDir()
	start(t, dir)
	c, err := configOf(dir)
	require.NoError(t, err)
	change(&c)
	w, err := mcpserver.New(c)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { w.Watch(ctx); close(ended) }()
	t.Cleanup(func() { stop(); <-ended })
	return &store{T: t, dir: dir, world: w}
}

func (s *store) fault(what string) {
	s.Helper()
	require.NoError(s, os.WriteFile(filepath.Join(notesIn(s.dir), "fault"), []byte(what), 0o600))
}

// step is one step on the store.
type step struct {
	*store

	action activities.Action
	entry  activities.Entry
	step   activities.Step
}

func (s *store) step(action, tool string, arguments params) step {
	s.Helper()
	return s.stepOf("notes", action, tool, arguments)
}

// stepOf is a step on another server.
func (s *store) stepOf(server, action, tool string, arguments params) step {
	s.Helper()
	s.steps++
	with, err := json.Marshal(params{"server": server, "tool": tool, "arguments": arguments})
	require.NoError(s, err)
	made := step{store: s, step: activities.Step{ID: "s", With: with}}
	for _, a := range s.world.Actions {
		if a.Spec().Name == action {
			made.action = a
		}
	}
	place, err := s.world.Journal(s.Context())
	require.NoError(s, err)
	kept, err := made.action.Spec().EntryParams(with)
	require.NoError(s, err)
	made.entry = activities.Entry{
		Version: activities.EntryVersion, Seq: 1, Step: "s", Action: action, Token: activities.NewToken(s.dir, "s", s.steps),
		Place: activities.Place{Journal: place}, Params: kept,
	}
	return made
}

func (s step) apply() (activities.Result, error) {
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	return s.action.Apply(ctx, s.entry, s.step, "")
}

// leaveWhen applies the step, which does not end, and leaves it as soon as something holds.
func (s step) leaveWhen(holds func() bool) {
	s.Helper()
	ctx, leave := context.WithCancel(s.Context())
	failed := make(chan error)
	go func() {
		_, err := s.action.Apply(ctx, s.entry, s.step, "")
		failed <- err
	}()
	require.Eventually(s, holds, time.Minute, time.Millisecond)
	leave()
	require.ErrorIs(s, <-failed, context.Canceled)
}

func (s step) undo() activities.Undone {
	s.Helper()
	undone, err := s.action.Undo(s.Context(), s.entry, activities.Decision{})
	require.NoError(s, err)
	return undone
}

func (s step) observe() activities.Observation {
	s.Helper()
	seen, err := s.action.Observe(s.Context(), s.entry)
	require.NoError(s, err)
	return seen
}

// answered is the answer in the journal.
func (s step) answered() string {
	s.Helper()
	j, err := journal.Open(filepath.Join(s.dir, "state", "journal"))
	require.NoError(s, err)
	token, err := j.Token(s.entry.Token)
	require.NoError(s, err)
	var answer mcpserver.Answer
	found, err := token.Read("answered", &answer)
	require.NoError(s, err)
	require.True(s, found)
	return string(answer.Result)
}

func (s *store) manifest() string { s.Helper(); return manifest(s, s.dir) }

func TestALostAnswerIsFoundByTheLook(t *testing.T) {
	s := newStore(t)
	before := s.manifest()
	s.fault(mcptest.Lose)
	create := s.step("mcp.call", "create_note", params{"title": "plan", "body": "one"})
	_, err := create.apply()
	require.Equal(t, activities.ActionFailed, activities.TypeOf(err), "another attempt can find out: %v", err)
	s.fault("")
	left := s.manifest()
	result, err := create.apply()
	require.NoError(t, err)
	require.Equal(t, []string{"the answer of the server was lost: find_notes shows that the call has happened"},
		result.Notes)
	require.Equal(t, left, s.manifest(), "it is not called twice")
	require.Equal(t, activities.Restored, create.undo().Outcome)
	require.Equal(t, before, s.manifest())
}

// A server that passes calls on ends before they arrive: that the look shows no change proves
// nothing.
func TestACallThatWasPassedOnCanStillArrive(t *testing.T) {
	s := newStoreOf(t, func(d *mcpserver.Declarations) { d.Local = false })
	before := s.manifest()
	s.fault(mcptest.Lose)
	put := s.step("mcp.call", "put_note", params{"id": "there", "body": "new"})
	_, err := put.apply()
	require.Equal(t, activities.ActionFailed, activities.TypeOf(err), "another attempt can find out: %v", err)
	s.fault("")
	body := func(text string) {
		require.NoError(t, mcptest.Put(notesIn(s.dir), mcptest.Note{ID: "there", Title: "note there", Body: text}))
	}
	body("old") // it is still on its way
	_, err = put.apply()
	require.Equal(t, activities.UnknownOutcome, activities.TypeOf(err), "%v", err)
	require.Equal(t, before, s.manifest(), "it is not called twice")
	require.Equal(t, activities.Unseen, put.observe().State, "a probe must not say that it has not happened")
	undone := put.undo()
	require.Equal(t, activities.Unknown, undone.Outcome, "%+v", undone)
	require.Contains(t, undone.Observed,
		"the server may have passed the call on (local: true is not declared); get_note shows no change so far")

	body("new") // it arrives
	require.Equal(t, activities.Restored, put.undo().Outcome)
	require.Equal(t, before, s.manifest())
}

func TestALostAnswerWithoutALookIsUnknown(t *testing.T) {
	s := newStore(t)
	s.fault(mcptest.Lose)
	create := s.step("mcp.call", "create_blind", params{"title": "plan", "body": "one"})
	_, err := create.apply()
	require.Equal(t, activities.UnknownOutcome, activities.TypeOf(err), "%v", err)
	s.fault("")
	left := s.manifest()
	undone := create.undo()
	require.Equal(t, activities.Unknown, undone.Outcome)
	require.Equal(t,
		"create_blind was called and has not answered, and no look is declared that would tell whether it has happened",
		undone.Observed)
	require.Equal(t, left, s.manifest())

	known := s.step("mcp.call", "create_blind", params{"title": "plan", "body": "two"})
	_, err = known.apply()
	require.NoError(t, err)
	require.Equal(t, activities.Compensated, known.undo().Outcome, "nothing was seen, so it is not called restored")
	require.Equal(t, left, s.manifest())
}

func TestWhatIsNoSuccessIsNotTakenForOne(t *testing.T) {
	for fault, want := range map[string]activities.ErrorType{mcptest.Deny: activities.Unsuccessful,
		mcptest.Task: activities.UnknownOutcome} {
		s := newStore(t)
		before := s.manifest()
		s.fault(fault)
		put := s.step("mcp.call", "put_note", params{"id": "there", "body": "new"})
		_, err := put.apply()
		require.Equal(t, want, activities.TypeOf(err), "%s: %v", fault, err)
		require.NotEqual(t, before, s.manifest(), "it has acted all the same")
		require.Contains(t, put.answered(),
			map[string]string{mcptest.Deny: `"isError":true`, mcptest.Task: `"taskId":"t1"`}[fault])
		s.fault("")
		require.Equal(t, activities.Restored, put.undo().Outcome, fault)
		require.Equal(t, before, s.manifest(), fault)
	}
}

func TestATaskMayStillAct(t *testing.T) {
	s := newStore(t)
	s.fault(mcptest.Later)
	put := s.step("mcp.call", "put_note", params{"id": "there", "body": "new"})
	_, err := put.apply()
	require.Equal(t, activities.UnknownOutcome, activities.TypeOf(err), "%v", err)
	require.Equal(t, activities.Unseen, put.observe().State)
	undone := put.undo()
	require.Equal(t, activities.Unknown, undone.Outcome)
	require.Equal(t,
		"put_note may still act: it has answered with a task, whose end nobody awaits; get_note shows no change so far",
		undone.Observed)

	require.NoError(t, mcptest.Put(notesIn(s.dir), mcptest.Note{ID: "there", Title: "note there", Body: "new"}))
	require.Equal(t, activities.Drifted, put.undo().Outcome, "it is not kept: the next undo looks again")
}

func TestASecondAnswerIsNobodys(t *testing.T) {
	s := newStore(t)
	s.fault(mcptest.Twice)
	for _, body := range []string{"one", "two", "three"} {
		result, err := s.step("mcp.call", "put_note", params{"id": "there", "body": body}).apply()
		require.NoError(t, err)
		require.Equal(t, body, result.Outputs["data"].(map[string]any)["body"])
	}
}

func TestTheUndoEndsAServerThatIsStillAtTheCall(t *testing.T) {
	s := newStore(t)
	before := s.manifest()
	s.fault(mcptest.Hang)
	put := s.step("mcp.call", "put_note", params{"id": "there", "body": "new"})
	put.leaveWhen(func() bool { return s.manifest() != before })
	s.fault("")
	require.Equal(t, activities.Restored, put.undo().Outcome)
	require.Equal(t, before, s.manifest())
	_, err := put.apply()
	require.Equal(t, activities.Fenced, activities.TypeOf(err))
}

func TestTheClassOfAToolIsTheWorkersToSay(t *testing.T) {
	s := newStore(t)
	before := s.manifest()
	for _, c := range []struct{ action, tool, text string }{
		{"mcp.read", "put_note", `is called with mcp.call, as`},
		{"mcp.call", "send_mail", `is called with mcp.call.irreversible, as`},
		{"mcp.call", "get_note", `is called with mcp.read, as`},
		{"mcp.read", "count_notes", `is called with mcp.call.irreversible, as`},
		{"mcp.call", "fly", `has no tool "fly"; it has: count_notes, create_blind,`},
	} {
		_, err := s.step(c.action, c.tool, params{"id": "there", "body": "new"}).apply()
		require.Equal(t, activities.Refused, activities.TypeOf(err), c.tool)
		require.ErrorContains(t, err, c.text)
	}
	_, err := s.step("mcp.call", "delete_note", params{"id": "nowhere"}).apply()
	require.ErrorContains(t, err, "no undo of delete_note of server notes is declared for this case")
	require.Equal(t, before, s.manifest())
}

func TestASecretIsNotPutIntoTheJournal(t *testing.T) {
	s := newStore(t)
	put := s.step("mcp.call", "put_note", params{"id": "there", "body": "battery staple"})
	masker := &activities.Masker{}
	masker.Add("battery staple")
	_, err := put.action.Apply(activities.WithMasker(t.Context(), masker), put.entry, put.step, "")
	require.Equal(t, activities.Refused, activities.TypeOf(err))
	require.ErrorContains(t, err, "environment")
}

func TestDeclarationsAreChecked(t *testing.T) {
	for text, want := range map[string]string{
		"tools: {a: {}}":                        "tools.a: write exactly one of",
		"tools: {a: {reads: true, undo: [{}]}}": "tools.a: write exactly one of",
		"tools: {a: {undo: [{}]}}":              "tools.a.undo[0].tool: name the tool",
		"tools: {a: {undo: [{tool: b, with: {x: '${{ before.text " +
			"}}'}}]}}": "tools.a.undo[0].with: ${{ before }} is not known here",
		"tools: {a: {look: {tool: b}, undo: " +
			"[{tool: b}]}}": `tools.a.look.tool: "b" is not declared as a tool that reads`,
		"tools: {b: {reads: true}, a: {look: {tool: b, match: x}, undo: " +
			"[{tool: c}]}}": "tools.a.look.match: \"x\" has no named group",
		"tools: {b: {reads: true}, a: {look: {tool: b, absent: '('}, undo: " +
			"[{tool: c}]}}": "tools.a.look.absent: error parsing regexp",
		"tools: {b: {reads: true}, a: {happened: {absent: true}, undo: " +
			"[{tool: c}]}}": "tools.a.happened: it is compared",
		"tools: {a: {undo: [{tool: c, when: {absent: " +
			"true}}]}}": "tools.a.undo[0].when: it compares",
		"tools: {b: {reads: true}, a: {look: {tool: b, with: {x: '${{ left.text }}'}}, undo: " +
			"[{tool: c}]}}": "tools.a.look.with: ${{ left }} is not known here",
		"tools: {a: {undo: [{tool: c, with: {x: [{y: '${{ arguments.a b " +
			"}}'}]}}]}}": `tools.a.undo[0].with: "${{ arguments.a b }}": ${{ is not the start of an expression`,
		"tools: {b: {reads: true}, a: {look: {tool: b, with: {x: '${{ arguments.id }'}}, undo: " +
			"[{tool: c}]}}": `tools.a.look.with: "${{ arguments.id }": ${{ is not`,
		"tools: {b: {reads: true}, a: {look: {tool: b, with: {x: '${{ token }}'}}, undo: " +
			"[{tool: c}]}}": "tools.a.look.with: ${{ token }} is not known here",
		"tool: {}": "field tool not found",
	} {
		_, err := mcpserver.ParseDeclarations([]byte(text))
		require.ErrorContains(t, err, want, text)
	}
}

func TestAnErrorWithoutATextIsNoSuccess(t *testing.T) {
	for result, succeeded := range map[string]bool{`{"content": []}`: true, `{"content": [], "isError": true}`: false} {
		require.Equal(t, succeeded, mcpserver.Answer{Result: []byte(result)}.Succeeded(), result)
	}
}

func TestTheExamplesAreRead(t *testing.T) {
	files, err := filepath.Glob("../../examples/mcp/*.yaml")
	require.NoError(t, err)
	require.Len(t, files, 4)
	for _, file := range files {
		d, err := mcpserver.ReadDeclarations(file)
		require.NoError(t, err)
		require.NotEmpty(t, d.Tools, file)
	}
}

// at does something when a point is reached, once.
func at(t *testing.T, label string, do func()) (isReached func() bool) {
	t.Helper()
	var once sync.Once
	var reached atomic.Bool
	point.Hook(func(l string) {
		if l == label {
			once.Do(func() { reached.Store(true); do() })
		}
	})
	t.Cleanup(func() { point.Hook(nil) })
	return reached.Load
}

// An undo without a look calls the inverse again only if it cannot have been called before.
func TestAnInverseIsCalledAgainUnlessItMayHaveBeenCalled(t *testing.T) {
	s := newStore(t)
	before := s.manifest()
	create := func() step {
		made := s.step("mcp.call", "create_blind", params{"title": "plan", "body": "one"})
		_, err := made.apply()
		require.NoError(t, err)
		return made
	}

	refused := create()
	s.fault(mcptest.Refuse)
	_, err := refused.action.Undo(t.Context(), refused.entry, activities.Decision{})
	require.ErrorContains(t, err, "the inverse of create_blind: it is refused")
	s.fault("")
	require.Equal(t, activities.Compensated, refused.undo().Outcome)
	require.Equal(t, before, s.manifest())

	stopped := create()
	ctx, stop := context.WithCancel(t.Context())
	at(t, "mcp.call:undo-ready", stop)
	_, err = stopped.action.Undo(ctx, stopped.entry, activities.Decision{})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, activities.Compensated, stopped.undo().Outcome)
	require.Equal(t, before, s.manifest())

	lost := create()
	s.fault(mcptest.Lose)
	_, err = lost.action.Undo(t.Context(), lost.entry, activities.Decision{})
	require.ErrorContains(t, err, "delete_note: no answer")
	s.fault("")
	undone := lost.undo()
	require.Equal(t, activities.Unknown, undone.Outcome)
	require.Contains(t, undone.Observed, "delete_note was called and has not answered")
}

func TestAnInverseCanNameTheToken(t *testing.T) {
	s := newStoreOf(t, func(d *mcpserver.Declarations) {
		d.Tools["put_note"] = declared.Tool{
			Undo: []declared.Inverse{{Tool: "put_note",
				With: params{"id": "${{ arguments.id }}-${{ token }}", "body": "undone"}}}}
	})
	put := s.step("mcp.call", "put_note", params{"id": "there", "body": "new"})
	_, err := put.apply()
	require.NoError(t, err)
	require.Equal(t, activities.Compensated, put.undo().Outcome)
	require.Contains(t, notes(t, s.dir), "there-"+put.entry.Token)
}

func TestAMatchThatFindsNothingIsWhatWasSeen(t *testing.T) {
	s := newStoreOf(t, func(d *mcpserver.Declarations) { d.Tools["put_note"].Look.Match = `(?P<tag>#\w+)` })
	before := s.manifest()
	put := s.step("mcp.call", "put_note", params{"id": "there", "body": "new"})
	result, err := put.apply()
	require.NoError(t, err)
	require.Len(t, result.Notes, 1)
	require.Contains(t, result.Notes[0], "get_note shows the same before and after put_note")
	require.Equal(t, activities.AsLeft, put.observe().State)
	undone := put.undo()
	require.Equal(t, activities.Compensated, undone.Outcome, "a look that shows nothing of the call proves nothing")
	require.Equal(t, "get_note shows what it showed before the call, and was never seen to show what put_note does",
		undone.Observed)
	require.Equal(t, before, s.manifest())
}

// An inverse that takes nothing back looks the same as one that does.
func TestALookThatShowsNoChangeIsNoProofOfAnUndo(t *testing.T) {
	s := newStoreOf(t, func(d *mcpserver.Declarations) {
		put := d.Tools["put_note"]
		put.Look.Match, put.Happened = `^version: (?P<v>\d+)`, nil
		put.Undo = []declared.Inverse{{Tool: "put_note", With: params{"id": "elsewhere", "body": "this does not help"},
			Done: "."}}
		d.Tools["put_note"] = put
	})
	put := s.step("mcp.call", "put_note", params{"id": "there", "body": "new"})
	_, err := put.apply()
	require.NoError(t, err)
	at(t, "mcp.call:undo-called", func() { panic("broken off") })
	require.PanicsWithValue(t, "broken off",
		func() { _, _ = put.action.Undo(t.Context(), put.entry, activities.Decision{}) })
	require.Equal(t, activities.Compensated, put.undo().Outcome, "nor is it one when the undo is repeated")
}

func TestALookThatNothingTiesToItsCallIsWarnedAbout(t *testing.T) {
	blind := declared.Tool{Undo: []declared.Inverse{{Tool: "reset"}}, Look: &declared.Look{Tool: "list"}}
	told, asked := blind, blind
	told.Happened = params{"text": "${{ arguments.text }}"}
	asked.Look = &declared.Look{Tool: "list", With: params{"of": "${{ arguments.of }}"}}
	w, err := mcpserver.New(mcpserver.Config{LookOnly: true, Servers: map[string]mcpserver.Server{"notes": {
		Command: "false",
		Declarations: mcpserver.Declarations{Tools: map[string]declared.Tool{"list": {Reads: true}, "blind": blind,
			"told": told, "asked": asked}},
	}}})
	require.NoError(t, err)
	require.Len(t, w.Notices, 1)
	require.Contains(t, w.Notices[0],
		"mcp.servers.notes.declarations: tools.blind.look: list is asked the same for every call, and no happened says")
}

// A call that has succeeded may show later than the look of the undo.
func TestACallThatDoesNotShowYetIsTakenBack(t *testing.T) {
	s := newStore(t)
	before := s.manifest()
	s.fault(mcptest.Slow)
	put := s.step("mcp.call", "put_note", params{"id": "fresh", "body": "new"})
	ctx, stop := context.WithCancel(t.Context())
	at(t, "mcp.call:called", stop)
	_, err := put.action.Apply(ctx, put.entry, put.step, "")
	require.ErrorIs(t, err, context.Canceled)
	s.fault("")

	isReached := at(t, "mcp.call:undo-ready", func() {
		if err := mcptest.Put(notesIn(s.dir), mcptest.Note{ID: "fresh", Title: "note fresh", Body: "new"}); err != nil {
			t.Error(err)
		}
	})
	require.Equal(t, activities.Compensated, put.undo().Outcome, "nobody has seen what the call did")
	require.True(t, isReached(), "the inverse is called")
	require.Equal(t, before, s.manifest())
}

func TestAStagedCheckIsRefused(t *testing.T) {
	s := newStore(t)
	before := s.manifest()
	for _, each := range []step{
		s.step("mcp.call", "put_note", params{"id": "there", "body": "new"}),
		s.step("mcp.read", "get_note", params{"id": "there"}),
	} {
		each.step.Checks = []activities.Check{{When: activities.Live, JSON: &activities.JSONCheck{}},
			{When: activities.Staged, JSON: &activities.JSONCheck{}}}
		_, errPlan := each.action.Plan(t.Context(), each.entry, each.step)
		_, errApply := each.apply()
		for _, err := range []error{errPlan, errApply} {
			require.Equal(t, activities.Refused, activities.TypeOf(err), "%v", err)
			require.ErrorContains(t, err, "check[1]: when: staged")
		}
	}
	require.Equal(t, before, s.manifest())
}

func TestNumbersStayAsTheyAreWritten(t *testing.T) {
	s := newStore(t)
	for action, tool := range map[string]string{"mcp.call.irreversible": "send_mail", "mcp.read": "get_note"} {
		made := s.step(action, tool, params{"number": json.Number("12345678901234567890.10")})
		change, err := made.action.Plan(t.Context(), made.entry, made.step)
		require.NoError(t, err)
		require.Contains(t, change.Diff, "12345678901234567890.10", action)
	}
}

func TestWhatWasReleasedIsUnseen(t *testing.T) {
	s := newStore(t)
	put := s.step("mcp.call", "put_note", params{"id": "there", "body": "new"})
	require.Equal(t, activities.AsBefore, put.observe().State)
	_, err := put.apply()
	require.NoError(t, err)
	require.Equal(t, activities.AsLeft, put.observe().State)
	require.NoError(t, put.action.Release(t.Context(), put.entry))
	require.Equal(t, activities.Unseen, put.observe().State)
}

// A server on this host may still be at a call that nothing shows of.
func TestACallWhoseServerRunsCanStillArrive(t *testing.T) {
	s := newStore(t)
	before := s.manifest()
	s.fault(mcptest.Stall)
	put := s.step("mcp.call", "put_note", params{"id": "there", "body": "new"})
	put.leaveWhen(func() bool { return mcptest.HasStalled(notesIn(s.dir)) })
	seen := put.observe()
	require.Equal(t, activities.Unseen, seen.State)
	require.Equal(t,
		"put_note was called and has not answered, and the server still runs; get_note shows no change so far", seen.Detail)
	require.Equal(t, activities.Nothing, put.undo().Outcome, "the undo has ended the server")
	require.Equal(t, before, s.manifest())
}
