package sessions

import (
	"encoding/json"
	"fmt"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/engine"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// session is the state that a session has besides the schedule of its task.
type session struct {
	*engine.Task

	// of steps before they are accepted; nil if they are only checked afterwards
	check    engine.StepCheck
	document json.RawMessage // that it was opened with, without steps
	// of the hosts asked so far, by task queue; only looked up, never ranged over
	places map[string]protocol.Places
	named  int // counts the steps that the session has named
	// counts the requests whose steps are being compiled, or whose context is being confirmed
	compiling          int
	naming             map[string]bool // the ids of the steps that are being compiled; only looked up
	used               idSet           // the ids of steps: a token is made of each, so none is ever used again
	seen               requestIDs      // those of the last requests
	loose              []string        // the steps that no other one needs, in order
	looseAt            int             // rollbacks.undone when loose was right; -1 if it never was
	answers            answers
	keptOutputs        []string        // the ids of the steps of earlier runs whose outputs are kept, the oldest first
	dropped            int             // counts steps that a report leaves out
	first              json.RawMessage // the steps that it was opened with
	redos              redos
	contexts           []protocol.Context  // the oldest first
	forgotten          []protocol.Context  // that their hosts may still have
	giving, forgetting []activities.Digest // of contexts that are being confirmed, and removed
	notes              []protocol.Note     // the oldest first
	checkpoints        map[string]string   // the steps that have taken those of savepoints, by their names
}

// Of makes the session of a document, or of what the run before has handed over.
func Of(document json.RawMessage, check engine.StepCheck) engine.Extend {
	return func(t *engine.Task, carried *protocol.SessionCarry) engine.Extension {
		if carried != nil {
			document = carried.Document
		}
		s := newSession(document)
		if s == nil {
			return nil
		}
		s.Task, s.check = t, check
		return s
	}
}

// newSession makes the session of a document; nil if the document opens none.
func newSession(document json.RawMessage) *session {
	var fields map[string]json.RawMessage
	if json.Unmarshal(document, &fields) != nil || fields["session"] == nil {
		return nil
	}
	first := fields["steps"]
	delete(fields, "steps")
	delete(fields, "$schema")
	raw, _ := json.Marshal(fields)
	return &session{
		document: raw, places: map[string]protocol.Places{}, naming: map[string]bool{}, used: idSet{}, looseAt: -1,
		first: first, redos: redos{written: map[string]json.RawMessage{}}, checkpoints: map[string]string{},
	}
}

// Begin takes up the settings that the session was compiled with.
func (t *session) Begin(ctx workflow.Context) {
	settings := t.Compiled.Session
	if settings == nil {
		return
	}
	t.Schedule.Open, t.Schedule.Live = true, true
	t.Parks.AgentDecides = settings.AgentDecides
	*t.Silence = engine.Silence{
		Limit: settings.Idle, Gone: settings.Gone, Heard: workflow.Now(ctx), IsBusy: t.isBusy, Alert: t.alertSilence,
	}
	for _, s := range t.Schedule.Steps {
		t.used.add("step", s.Step.ID)
	}
	t.redos.keep(t.first, t.Compiled.Steps)
}

// isBusy reports whether the agent of a session waits for it, or for a person. One that may decide
// itself is waited for.
func (t *session) isBusy() bool {
	return t.RunsSteps() || t.Parks.IsOpen() && !t.Parks.AgentDecides || t.Rollbacks.HasDue() || t.compiling > 0
}

// atRest reports whether all requests are over, and otherwise what is not.
func (t *session) atRest() (unfinished string, rests bool) {
	for _, s := range t.Schedule.Steps {
		if !s.IsOver() {
			return fmt.Sprintf("step %s is %s", s.Step.ID, s.View.State), false
		}
	}
	switch {
	case t.Rollbacks.HasDue():
		return "a rollback is under way", false
	case t.compiling > 0:
		return "another request is being checked", false
	}
	return "", true
}

// checkTakes refuses a change of a session that no longer accepts any.
func (t *session) checkTakes() error {
	switch {
	case t.Phase == protocol.Compiling && t.Ending.Cause == nil:
		return nil
	case t.Ending.Cause != nil:
		return protocol.RefuseRequestf(protocol.SessionOver, "the session goes no further: %s", t.Ending.Cause.Text)
	case t.Phase != protocol.Forward || !t.Schedule.Open:
		return protocol.RefuseRequestf(protocol.SessionOver,
			"the session goes no further: it was told to finish; open another")
	}
	return nil
}

func (t *session) checkRests() error {
	if what, rests := t.atRest(); !rests {
		return protocol.RefuseRequestf(protocol.SessionBusy, "%s: wait for it, roll it back, or abort the session", what)
	}
	return nil
}

// alertSilence alerts a person that the agent is gone.
func (t *session) alertSilence(ctx workflow.Context, why string) {
	t.AddNote(why + ": a person was asked")
	t.MarkStale()
	t.SendAlert(ctx,
		compensations.StepReport{State: string(protocol.AgentGone), Reason: why + ": finish it, abort it, or go on with it"})
}

// checkGrows refuses a request that would add to a session which takes no more.
func (t *session) checkGrows() error { return first(t.checkTakes, t.checkNotStuck) }

// checkAlive refuses a request to a session that has ended.
func (t *session) checkAlive() error {
	if t.Phase == protocol.Closed || t.Phase == protocol.Compiling && t.Ending.Cause != nil {
		return protocol.RefuseRequestf(protocol.SessionOver, "the session has ended")
	}
	return nil
}

// checkNotStuck refuses a request that would add to a session that is stuck.
func (t *session) checkNotStuck() error {
	if t.Stuck() != "" {
		return protocol.RefuseRequestf(protocol.SessionBusy, "%s", t.Stuck())
	}
	return nil
}

// checkTakes and checkGrows are the checks of verbs that take whatever their argument says.
func checkTakes[R any](t *session, _ R) error { return t.checkTakes() }

func checkGrows[R any](t *session, _ R) error { return t.checkGrows() }

func first(checks ...func() error) error {
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func listed(names []string) string {
	const most = 20
	switch {
	case len(names) == 0:
		return "none"
	case len(names) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
