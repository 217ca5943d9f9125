package workflows

import (
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

// CarryVersion is the one format of Carry that this code writes and reads. Formats 1 and 2 were never released.
const CarryVersion = 3

// Carry is a task as data: what a run hands to the next one of its chain. With what that run schedules, it is all that
// undoing needs. One of another version holds nothing but that version: see WrongVersion.
type Carry struct {
	Version int                  `json:"v"`
	Saga    compensations.Carry  `json:"saga"`
	Began   time.Time            `json:"began"`
	Phase   Phase                `json:"phase"`
	Cause   *compensations.Cause `json:"cause,omitempty"`
	// Compiled holds the steps that are not done, or may be done again.
	Compiled task.Compiled `json:"compiled"`
	// Steps are those of them that are not at their start.
	Steps   map[string]StepCarry      `json:"steps,omitempty"`
	Outputs map[string]map[string]any `json:"outputs,omitempty"`
	Redoes  map[string]string         `json:"redoes,omitempty"`
	// Rollbacks are undone before anything else is done, in this order.
	Rollbacks []RollbackCarry `json:"rollbacks,omitempty"`
	// Past are the steps that have ended and a report must mention.
	Past []StepView `json:"past,omitempty"`
	// Size is how many steps the whole task has, Done how many are done.
	Size int `json:"size,omitempty"`
	Done int `json:"done,omitempty"`
	// Pivot is the place in the ledger of the last pivot that is done, Committed how many steps are off it for good.
	Pivot     int `json:"pivot,omitempty"`
	Committed int `json:"committed,omitempty"`
	// Unwound is how often each step has unwound to its savepoint.
	Unwound map[string]int `json:"unwound,omitempty"`
	// Unknown says that the ledger of a run which the chain was reset from could not be read.
	Unknown bool `json:"unknown,omitempty"`
	// Redoable says that what is undone is kept.
	Redoable bool          `json:"redoable,omitempty"`
	Ignored  inbox.Ignored `json:"ignored,omitzero"`
	Notes    []string      `json:"notes,omitempty"`

	size int // bytes, as it was carried over
}

// StepCarry is where a step stands.
type StepCarry struct {
	State      StepState         `json:"state,omitempty"`
	Generation int               `json:"generation,omitempty"`
	Seq        int               `json:"seq,omitempty"`
	Openings   int               `json:"openings,omitempty"`
	Approved   activities.Digest `json:"approved,omitempty"`
	Gate       *GateCarry        `json:"gate,omitempty"`
	Notes      []string          `json:"notes,omitempty"`
	Error      string            `json:"error,omitempty"`
}

// GateCarry is a gate that is open. A signal may have decided it in the last moment.
type GateCarry struct {
	View     GateView  `json:"view"`
	Decision *Decision `json:"decision,omitempty"`
	Approved bool      `json:"approved,omitempty"`
}

// RollbackCarry is a step that has failed and is rolled back.
type RollbackCarry struct {
	Step  string              `json:"step"`
	Cause compensations.Cause `json:"cause"`
	// Begun says that From is known, and that some of it may be undone.
	Begun bool `json:"begun,omitempty"`
	// From is the first place in the ledger that is undone.
	From int `json:"from"`
}

type bareCarry Carry

// MarshalJSON packs what is long.
func (c Carry) MarshalJSON() ([]byte, error) { return packed.Marshal(bareCarry(c)) }

// UnmarshalJSON reads what MarshalJSON has written. Of another version it reads the version only, so that the run which gets
// it waits for a worker of that version: an argument that cannot be decoded would end it with nothing undone.
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

// WrongVersion says of a run that was handed c why this code cannot take it up, and the way out; empty where it can.
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

// continueAsNew ends the run with the next one of its chain. No activity is pending. Signals are handled first, with no yield
// between that and the end.
func (t *agentTask) continueAsNew(ctx workflow.Context) error {
	t.inbox.HandleSignals()
	c := t.takeCarry()
	c.Saga = t.saga.Carry()
	return t.variant.continueAsNew(ctx, c.fit())
}

// measureCarry is about how large the carry is, compressed.
func (t *agentTask) measureCarry() (int, error) {
	c := t.takeCarry()
	c.Saga.Entries = t.saga.Entries()
	return packed.Size(bareCarry(c))
}

// takeCarry is the task as it stands, without its saga.
func (t *agentTask) takeCarry() Carry {
	c := Carry{
		Version: CarryVersion, Began: t.began, Phase: t.phase, Cause: t.ending.cause,
		Outputs: map[string]map[string]any{}, Steps: map[string]StepCarry{}, Redoes: map[string]string{},
		Size: t.schedule.size, Done: t.schedule.done, Pivot: t.pivot.seq, Committed: t.pivot.committed, Unwound: t.rollbacks.unwound,
		Unknown: t.unknown, Redoable: t.redoable, Ignored: t.inbox.Ignored(), Notes: t.notes,
	}
	if t.phase == Forward {
		c.Rollbacks = t.rollbacks.carries()
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
	return c
}

// carryStep puts a step into c that goes on in the next run, or may be done again.
func (r *stepRunner) carryStep(c *Carry, s *stepRun) {
	for _, id := range append(s.step.References(), s.step.ID) {
		if outputs, known := r.outputs[id]; known {
			c.Outputs[id] = outputs
		}
	}
	if token, redoes := r.redoes[s.step.ID]; redoes {
		c.Redoes[s.step.ID] = token
	}
	if carry, begun := s.carry(); begun {
		c.Steps[s.step.ID] = carry
	}
}

// carry is where the step stands; not where it is at its start.
func (s *stepRun) carry() (c StepCarry, begun bool) {
	c = StepCarry{
		Generation: s.generation, Seq: s.seq, Openings: s.openings, Approved: s.approved, Notes: s.view.Notes, Error: s.view.Error,
	}
	if s.isOver() {
		c.State = s.view.State
	}
	if s.gate != nil {
		c.Gate = &GateCarry{View: s.gate.view, Decision: s.gate.decision, Approved: s.gate.approved}
	}
	return c, c.State != "" || s.generation > 1 || s.seq > 0 || s.rollback != nil
}

func (s *stepRun) resume(c StepCarry) {
	s.generation, s.seq, s.openings, s.approved = c.Generation, c.Seq, c.Openings, c.Approved
	s.view.Notes, s.view.Error = c.Notes, c.Error
	if c.State != "" {
		s.view.State = c.State
	}
	if g := c.Gate; g != nil {
		s.gate = &gate{view: g.View, decision: g.Decision, approved: g.Approved}
	}
}

func (b *rollbacks) carries() []RollbackCarry {
	var carries []RollbackCarry
	for _, r := range b.due {
		if r.step.rollback == r { // else it was put back to its start with another one
			carries = append(carries, RollbackCarry{Step: r.step.step.ID, Cause: r.cause, Begun: r.begun, From: r.from})
		}
	}
	return carries
}

func (b *rollbacks) resume(carries []RollbackCarry) {
	for _, c := range carries {
		s := b.schedule.byID[c.Step]
		s.view.State, s.rollback = StepFailed, &rollback{step: s, cause: c.Cause, begun: c.Begun, from: c.From}
		b.due = append(b.due, s.rollback)
	}
}

// resume takes up what the run before has carried over, but for the saga. A worker that does not know its format fails the
// workflow task, which waits for one that does: the ledger is in there.
func (t *agentTask) resume(ctx workflow.Context, c Carry) {
	if why := c.WrongVersion(); why != "" {
		panic(fmt.Sprintf("%s: this run was %s", activities.UnknownFormat, why))
	}
	t.began, t.phase, t.ending.cause, t.compiled, t.notes = c.Began, c.Phase, c.Cause, c.Compiled, c.Notes
	t.unknown, t.redoable = c.Unknown, c.Redoable
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
	}
	t.rollbacks.resume(c.Rollbacks)
	t.room.reset(c.size)
	t.schedule.arrange()
}
