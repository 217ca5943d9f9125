package engine

import (
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// Step is a step in a run of its task.
type Step struct {
	Step       task.Step
	index      int // in file order, among the steps of this run
	View       protocol.StepView
	Generation int
	Seq        int               // of its entry; 0 if it has none
	approved   activities.Digest // the change that may be made, until it is applied
	isApproved bool              // as many as must have approved it
	assents    []activities.Assent
	mustAsk    bool  // its worker makes no change that a person has not approved
	refusals   int   // how often its worker has refused standing approvals
	err        error // what it ended with

	pendingNeeds int     // the number of its needs that are not done
	dependents   []*Step // the steps that need it

	Gate     *gate // nil unless it is open
	openings int   // how often the gate was opened

	park      *park // nil unless it has failed and waits for a person
	corrected bool  // a person has given it other parameters than its document
	futile    protocol.FutileNotes
	edited    string // who has given it those that it has at its gate, and how they differ; empty if nobody has

	cancel     func()                    // while it runs
	Rollback   *Rollback                 // nil if none is due
	restarting bool                      // it is being canceled in order to be repeated
	withdrawn  bool                      // it is being canceled because the agent of its session rolls it back
	Undone     *compensations.StepReport // what became of it, if it was undone while the task went on

	row string // its row in the table of the details; empty if that is out of date
}

func (s *Step) AddNotes(notes ...string) { s.View.Notes = append(s.View.Notes, notes...) }

// maxFutile is how many decisions that decided nothing a step's notes tell of; more are counted.
const maxFutile = 20

// addFutile notes a decision about the step that decided nothing.
func (s *Step) addFutile(note string) {
	f, notes := &s.futile, slices.Clone(s.View.Notes)
	if len(f.At) == maxFutile {
		first := f.At[0]
		f.At = slices.Clone(f.At[1:])
		if f.More == 0 { // its place is that of the note that counts
			f.Told = first
		} else {
			notes = slices.Delete(notes, first, first+1)
			for i := range f.At { // all come after it
				f.At[i]--
			}
		}
		f.More++
		notes[f.Told] = activities.CountOf(f.More, "earlier decision") + " about it decided nothing"
	}
	f.At = append(slices.Clip(f.At), len(notes))
	s.View.Notes = notes
	s.AddNotes(note)
}

func (s *Step) title() string {
	if s.Step.Name != "" {
		return s.Step.ID + ": " + s.Step.Name
	}
	return s.Step.ID
}

// reason says why the step has failed, and by which limit if it was one.
func (s *Step) reason() string {
	return compensations.Limits{Attempt: s.Step.Timeout, Heartbeat: s.Step.Heartbeat}.Reason(s.err)
}

// IsSatisfied reports whether steps that need this one may run.
func (s *Step) IsSatisfied() bool {
	return s.View.State == protocol.Done || s.View.State == protocol.StepFailed && s.Step.OnFailure.Do == task.FailContinue
}

// IsOver reports whether the step will not run any more, unless the task unwinds to a savepoint
// before it.
func (s *Step) IsOver() bool {
	if s.Rollback != nil {
		return false
	}
	switch s.View.State {
	case protocol.NotStarted, protocol.Planning, protocol.AtGate, protocol.Running, protocol.StepParked, protocol.Canceled:
		return false
	case protocol.Done, protocol.StepFailed, protocol.RolledBack, protocol.LeftOut:
	}
	return true
}

// isNotable reports whether a report must mention the step: it began and was not simply done.
func (s *Step) isNotable() bool {
	return s.View.State != protocol.NotStarted &&
		(s.View.State != protocol.Done || len(s.View.Notes)+len(s.View.Tried) > 0)
}

// consent says who has let the step make its change.
func (s *Step) consent() activities.Consent {
	if s.isApproved {
		return activities.Approved
	}
	return s.Step.Gate.Consent()
}

// maxKnown is how many bytes of the step's result its undo may be given, with their frame.
func (s *Step) maxKnown() int {
	if len(s.Step.UndoOutputs) == 0 {
		return 0
	}
	return activities.MaxKnown + entryBytes
}

// GateView is the gate at which a step waits; nil if it waits at none.
func (s *Step) GateView() *protocol.GateView {
	if s.Gate == nil || s.Gate.decision != nil {
		return nil
	}
	view := s.Gate.view
	return &view
}

// ParkView is why a step waits after it has failed; nil if it does not wait.
func (s *Step) ParkView() *protocol.ParkView {
	if s.park == nil || s.park.decision != nil {
		return nil
	}
	view := s.park.view
	view.With = s.Step.With
	return &view
}

// gate is one opening of a step's gate.
type gate struct {
	view     protocol.GateView
	decision *protocol.Decision // nil until somebody decides
	approved bool
	by       string        // who has decided it last, and why
	edit     *parkDecision // other parameters, while they are checked; nil if there are none
	edited   *edited       // that they replace its own; nil as long as that is not decided
}

// park is a step's waiting for a person.
type park struct {
	view     protocol.ParkView
	decision *parkDecision // nil until somebody decides
}

// parkDecision is what a person has decided, and what its correction of the step has come to.
type parkDecision struct {
	protocol.Resolution

	checking  bool // its correction is being checked
	corrected *task.Step
	Refusal   error
}

// isDue reports whether the decision can be carried out, or refused.
func (d *parkDecision) isDue() bool { return !d.checking || d.corrected != nil || d.Refusal != nil }

// Rollback undoes a failed step, and what its on_failure says, before the task goes on; or the part
// of a session that its agent asks to undo.
type Rollback struct {
	step  *Step // nil if the agent asks for it
	Cause compensations.Cause
	Begun bool   // its scope is decided, and some of it may be undone already
	From  int    // the first sequence number that is undone; math.MaxInt for the target alone
	Only  string // the id of the target; empty if everything from there on is undone

	Request string                     // the update that asks for it
	Undone  []compensations.StepReport // of the steps that it has undone so far, if it is asked for
	Over    bool
	Edited  bool // a person has edited the step, which then begins again

	To         string               // the savepoint that it goes back to
	Branch     *protocol.Branch     // what it takes back is kept under this name
	Taken      []protocol.TakenStep // what it has undone so far
	Unfinished []string             // the steps that it has canceled or left out
	Then       []task.Step          // what the session does once all that is undone
}

// covers reports whether e is undone. What builds on such an entry is undone too.
func (r *Rollback) covers(e activities.Entry) bool {
	return e.Seq >= r.From || e.Step == r.Only ||
		r.step != nil && slices.Contains(r.step.Step.OnFailure.With, e.Step)
}

// take notes which entries a rollback has undone.
func (r *Rollback) take(undone []activities.Entry) {
	for _, e := range undone {
		r.Taken = append(r.Taken,
			protocol.TakenStep{ID: e.Step, Seq: e.Seq, Generation: max(1, e.Generation), Savepoint: e.Savepoint})
	}
}
