package workflows

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/compensations/inbox"
	"github.com/seed-62bf7108/unwind/workflows/packed"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// CarryVersion is the only format of Carry that this code writes and reads. Formats 1 and 2 were never released.
const CarryVersion = 3

// Carry is a task as data: what a run hands to the next one of its chain. Together with what that run schedules, it is all that
// undoing needs. A Carry decoded from another version holds only its Version: see WrongVersion.
type Carry struct {
	Version int                  `json:"v"`
	Saga    compensations.Carry  `json:"saga"`
	Began   time.Time            `json:"began"`
	Phase   Phase                `json:"phase"`
	Cause   *compensations.Cause `json:"cause,omitempty"`
	// Compiled holds the steps that are not done, or may be repeated.
	Compiled task.Compiled `json:"compiled"`
	// Order is the order of the file: the ids of all steps, also of those that are over. A session has none.
	Order []string `json:"order,omitempty"`
	// Steps are the states of those that have begun.
	Steps   map[string]StepCarry      `json:"steps,omitempty"`
	Outputs map[string]map[string]any `json:"outputs,omitempty"`
	Redoes  map[string]string         `json:"redoes,omitempty"`
	// Rollbacks are carried out in this order, before anything else is done.
	Rollbacks []RollbackCarry `json:"rollbacks,omitempty"`
	// Past are the ended steps that a report must mention.
	Past []StepView `json:"past,omitempty"`
	// Size is the number of steps in the whole task, Done the number that are done.
	Size int `json:"size,omitempty"`
	Done int `json:"done,omitempty"`
	// Pivot is the sequence number of the last pivot that is done; Committed is how many steps have left the ledger for good.
	Pivot     int `json:"pivot,omitempty"`
	Committed int `json:"committed,omitempty"`
	// Unwound counts how often each step has unwound to its savepoint.
	Unwound map[string]int `json:"unwound,omitempty"`
	// Unknown means that the ledger of the run that the chain was reset from could not be read.
	Unknown bool `json:"unknown,omitempty"`
	// Session is nil for a task that takes no steps while it runs.
	Session *SessionCarry `json:"session,omitempty"`
	// Redoable means that what is undone is kept.
	Redoable bool          `json:"redoable,omitempty"`
	Ignored  inbox.Ignored `json:"ignored,omitzero"`
	Notes    []string      `json:"notes,omitempty"`
	// Alerts are those that nobody was told of yet, and Untold counts others that are not kept.
	Alerts []Alert `json:"alerts,omitempty"`
	Untold int     `json:"untold,omitempty"`

	size int // in bytes, as it was carried over
}

// StepCarry is the state of a step.
type StepCarry struct {
	State      StepState         `json:"state,omitempty"`
	Generation int               `json:"generation,omitempty"`
	Seq        int               `json:"seq,omitempty"`
	Openings   int               `json:"openings,omitempty"`
	Approved   activities.Digest `json:"approved,omitempty"`
	IsApproved bool              `json:"isApproved,omitempty"`
	Gate       *GateCarry        `json:"gate,omitempty"`
	Park       *ParkCarry        `json:"park,omitempty"`
	Corrected  bool              `json:"corrected,omitempty"`
	Notes      []string          `json:"notes,omitempty"`
	Tried      []Tried           `json:"tried,omitempty"`
	Error      string            `json:"error,omitempty"`
}

// GateCarry is an open gate. A signal may have decided it at the last moment.
type GateCarry struct {
	View     GateView  `json:"view"`
	Decision *Decision `json:"decision,omitempty"`
	Approved bool      `json:"approved,omitempty"`
}

// ParkCarry is a step that waits for a person. A signal may have decided it at the last moment.
type ParkCarry struct {
	View     ParkView    `json:"view"`
	Decision *Resolution `json:"decision,omitempty"`
}

// RollbackCarry is the rollback of a failed step.
type RollbackCarry struct {
	Step  string              `json:"step"`
	Cause compensations.Cause `json:"cause"`
	// Begun means that From is decided, and that some of it may be undone already.
	Begun bool `json:"begun,omitempty"`
	// From is the first sequence number that is undone.
	From int `json:"from"`
	// Request is the update of a session that asks for it; Undone is what became of the steps that it has undone so far.
	Request string                     `json:"request,omitempty"`
	Undone  []compensations.StepReport `json:"undone,omitempty"`
	// To is the savepoint that it goes back to, Taken what it has taken back so far, Unfinished the steps that it has kept from ending.
	To         string      `json:"to,omitempty"`
	Branch     *Branch     `json:"branch,omitempty"`
	Taken      []TakenStep `json:"taken,omitempty"`
	Unfinished []string    `json:"unfinished,omitempty"`
}

type bareCarry Carry

// MarshalJSON packs a long carry.
func (c Carry) MarshalJSON() ([]byte, error) { return packed.Marshal(bareCarry(c)) }

// UnmarshalJSON reads what MarshalJSON has written. Of another version it reads only the version, so that the run waits for a
// worker of that version: an argument that cannot be decoded would end it with nothing undone.
func (c *Carry) UnmarshalJSON(raw []byte) error {
	*c = Carry{}
	err := packed.Unmarshal(raw, (*bareCarry)(c))
	if err == nil && c.Version == CarryVersion {
		c.size = len(raw)
		return nil
	}
	var header struct {
		Version int `json:"v"`
	}
	if err := packed.Unmarshal(raw, &header); err != nil {
		return err
	}
	if header.Version == CarryVersion {
		return err
	}
	*c = Carry{Version: header.Version}
	return nil
}

// WrongVersion says why this code cannot continue a run that was handed c, and the way out. It is empty if it can.
func (c Carry) WrongVersion() string {
	if c.Version == CarryVersion {
		return ""
	}
	wayOut := "run workers of the version that recorded it until its task is over"
	if c.Version > CarryVersion {
		wayOut = "upgrade this one"
	}
	return fmt.Sprintf("recorded by a version that this one cannot undo: the run before handed it format %d, and this one knows %d; %s",
		c.Version, CarryVersion, wayOut)
}

// carryOver returns what the next run of the chain is handed. No activity is pending. Signals are handled first, and the run ends with no
// yield after that, so that none is lost. The error says why the next run cannot be handed so much: then this one goes on.
func (t *agentTask) carryOver() (json.RawMessage, error) {
	t.inbox.HandleSignals()
	c := t.takeCarry()
	c.Saga = t.saga.Carry()
	return c.fit()
}

// measureCarry returns the approximate compressed size of the carry.
func (t *agentTask) measureCarry() (int, error) {
	c := t.takeCarry()
	c.Saga.Entries, c.Saga.Results = t.saga.Entries(), t.saga.Known()
	if c.Session != nil {
		c.Session.forgetSteps() // there need be no room for them
	}
	return packed.Size(bareCarry(c))
}

// takeCarry returns the present state of the task, without its saga.
func (t *agentTask) takeCarry() Carry {
	c := Carry{
		Version: CarryVersion, Began: t.began, Phase: t.phase, Cause: t.ending.cause,
		Outputs: map[string]map[string]any{}, Steps: map[string]StepCarry{}, Redoes: map[string]string{},
		Size: t.schedule.size, Done: t.schedule.done, Pivot: t.pivot.seq, Committed: t.pivot.committed, Unwound: t.rollbacks.unwound,
		Unknown: t.unknown, Redoable: t.redoable, Ignored: t.inbox.Ignored(), Notes: t.notes,
		Order: t.schedule.order,
	}
	if t.phase == Forward {
		c.Rollbacks = t.rollbacks.toCarry()
	}
	c.Compiled = t.compiled
	c.Compiled.Steps = nil
	c.Past = append(c.Past, t.schedule.past...)
	first := t.rollbacks.firstReachable()
	for _, s := range t.schedule.steps {
		if t.phase == Forward && (!s.isOver() || s.seq >= first) {
			c.Compiled.Steps = append(c.Compiled.Steps, s.step)
			t.runner.carryStep(&c, s)
		} else if s.isNotable() {
			c.Past = append(c.Past, s.view)
		}
	}
	c.Alerts, c.Untold = t.alerts.toCarry()
	t.carrySession(&c)
	return c
}

// carryStep adds to c a step that goes on in the next run, or may be repeated.
func (r *stepRunner) carryStep(c *Carry, s *stepRun) {
	for _, id := range append(s.step.References(), s.step.ID) {
		if outputs, known := r.outputs[id]; known {
			c.Outputs[id] = outputs
		}
	}
	if token, redoes := r.redoes[s.step.ID]; redoes {
		c.Redoes[s.step.ID] = token
	}
	if carry, begun := s.toCarry(); begun {
		c.Steps[s.step.ID] = carry
	}
}

// toCarry returns the state of the step, and whether it has begun.
func (s *stepRun) toCarry() (c StepCarry, begun bool) {
	c = StepCarry{
		Generation: s.generation, Seq: s.seq, Openings: s.openings, Approved: s.approved, IsApproved: s.isApproved, Notes: s.view.Notes, Tried: s.view.Tried,
		Error: s.view.Error, Corrected: s.corrected,
	}
	if s.isOver() {
		c.State = s.view.State
	}
	if s.gate != nil {
		c.Gate = &GateCarry{View: s.gate.view, Decision: s.gate.decision, Approved: s.gate.approved}
	}
	if s.park != nil {
		c.Park = &ParkCarry{View: s.park.view}
		if d := s.park.decision; d != nil {
			c.Park.Decision = &d.Resolution
		}
	}
	return c, c.State != "" || s.generation > 1 || s.seq > 0 || s.rollback != nil || s.park != nil
}

func (s *stepRun) resume(c StepCarry) {
	s.generation, s.seq, s.openings, s.approved, s.isApproved = c.Generation, c.Seq, c.Openings, c.Approved, c.IsApproved
	s.view.Notes, s.view.Tried, s.view.Error, s.corrected = c.Notes, c.Tried, c.Error, c.Corrected
	if c.Generation > 1 {
		s.view.Try = c.Generation
	}
	if c.State != "" {
		s.view.State = c.State
	}
	if g := c.Gate; g != nil {
		s.gate = &gate{view: g.View, decision: g.Decision, approved: g.Approved}
	}
	if p := c.Park; p != nil {
		s.park = &park{view: p.View}
		if p.Decision != nil {
			s.park.decision = &parkDecision{Resolution: *p.Decision}
		}
	}
}

func (b *rollbacks) toCarry() []RollbackCarry {
	var carries []RollbackCarry
	for _, r := range b.due {
		if r.step == nil || r.step.rollback == r { // otherwise another rollback has restarted the step
			carries = append(carries, RollbackCarry{
				Step: r.only, Cause: r.cause, Begun: r.begun, From: r.from, Request: r.request, Undone: r.undone, To: r.to, Branch: r.branch, Taken: r.taken,
				Unfinished: r.unfinished,
			})
		}
	}
	return carries
}

func (b *rollbacks) resume(carries []RollbackCarry) {
	for _, c := range carries {
		r := &rollback{
			cause: c.Cause, begun: c.Begun, from: c.From, only: c.Step, request: c.Request, undone: c.Undone, to: c.To, branch: c.Branch, taken: c.Taken,
			unfinished: c.Unfinished,
		}
		if r.request == "" {
			r.step = b.schedule.byID[c.Step]
			r.step.view.State, r.step.rollback = StepFailed, r
		}
		b.due = append(b.due, r)
	}
}

// resume restores what the previous run carried over, except for the saga. A worker that does not know the format fails the
// workflow task, which then waits for one that does: the ledger is in there.
func (t *agentTask) resume(ctx workflow.Context, c Carry) {
	if why := c.WrongVersion(); why != "" {
		panic(fmt.Sprintf("%s: this run was %s", activities.UnknownFormat, why))
	}
	t.began, t.phase, t.ending.cause, t.compiled, t.notes = c.Began, c.Phase, c.Cause, c.Compiled, c.Notes
	t.unknown, t.redoable = c.Unknown, c.Redoable
	t.alerts.waiting, t.alerts.dropped = c.Alerts, c.Untold
	t.schedule.keepOrder(c.Order)
	t.schedule.past, t.schedule.size, t.schedule.done = c.Past, c.Size, c.Done
	t.pivot.seq, t.pivot.committed = c.Pivot, c.Committed
	t.inbox.Restore(c.Ignored)
	t.runner.redoes = c.Redoes
	maps.Copy(t.runner.outputs, c.Outputs)
	maps.Copy(t.rollbacks.unwound, c.Unwound)
	t.configure(ctx)
	for _, step := range c.Compiled.Steps {
		s := t.addStep(step)
		if carry, begun := c.Steps[step.ID]; begun {
			s.resume(carry)
		}
		if s.park != nil {
			t.parks.reopen(s)
		}
	}
	t.rollbacks.resume(c.Rollbacks)
	t.resumeSession(ctx, c)
	t.room.reset(c.size)
	t.schedule.arrangeSteps()
	t.alerts.flush(ctx)
}
