package workflows

import (
	"fmt"
	"math"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/packed"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// CarryVersion is the newest format of Carry that this code reads; older ones it reads as well. It writes the oldest that
// holds what there is: a worker that knows no newer one refuses what it would drop.
//
//	1  tasks, their gates and parks
//	2  and parts of them that are rolled back over several runs, parks whose reason was shortened
const CarryVersion = 2

// Carry is a task as data: what a run hands to the next one of its chain. With what that run schedules, it is all that
// undoing needs.
type Carry struct {
	Version int                   `json:"v"`
	Saga    compensations.Carried `json:"saga"`
	Began   time.Time             `json:"began"`
	Phase   Phase                 `json:"phase"`
	Cause   *compensations.Cause  `json:"cause,omitempty"`
	// Compiled holds the steps that are not done, or may be done again.
	Compiled task.Compiled `json:"compiled"`
	// Steps are those of them that are not at their start.
	Steps   map[string]CarriedStep    `json:"steps,omitempty"`
	Outputs map[string]map[string]any `json:"outputs,omitempty"`
	Redoes  map[string]string         `json:"redoes,omitempty"`
	// Failed are those of them that are rolled back before anything else is done, in this order.
	Failed []CarriedFailure `json:"failed,omitempty"`
	// Past are the steps that have ended and have something to tell.
	Past    []StepView     `json:"past,omitempty"`
	Size    int            `json:"size,omitempty"` // steps of the whole task
	Done    int            `json:"done,omitempty"`
	Kept    int            `json:"kept,omitempty"`
	Pivot   int            `json:"pivot,omitempty"`
	Rewound map[string]int `json:"rewound,omitempty"`
	Unknown bool           `json:"unknown,omitempty"`
	// Redoable says that what is undone is kept.
	Redoable bool     `json:"redoable,omitempty"`
	Ignored  []string `json:"ignored,omitempty"`
	More     int      `json:"more,omitempty"`
	Notes    []string `json:"notes,omitempty"`

	size int // bytes, as it was carried over
}

// CarriedStep is where a step stands.
type CarriedStep struct {
	State      StepState         `json:"state,omitempty"`
	Generation int               `json:"generation,omitempty"`
	Seq        int               `json:"seq,omitempty"`
	Openings   int               `json:"openings,omitempty"`
	Want       activities.Digest `json:"want,omitempty"`
	Gate       *CarriedGate      `json:"gate,omitempty"`
	Notes      []string          `json:"notes,omitempty"`
	Error      string            `json:"error,omitempty"`
}

// CarriedFailure is a step that has failed and is rolled back.
type CarriedFailure struct {
	Step  string              `json:"step"`
	Cause compensations.Cause `json:"cause"`
	// Begun says that From is known, and that some of it may be undone.
	Begun bool `json:"begun,omitempty"`
	// From is the first place in the ledger that is undone.
	From int `json:"from"`
}

// CarriedGate is a gate that is open. A signal may have decided it in the last moment.
type CarriedGate struct {
	View     GateView  `json:"view"`
	Decision *Decision `json:"decision,omitempty"`
	Approved bool      `json:"approved,omitempty"`
}

type bareCarry Carry

// MarshalJSON packs what is long.
func (c Carry) MarshalJSON() ([]byte, error) { return packed.Marshal(bareCarry(c)) }

// UnmarshalJSON reads what MarshalJSON has written. Numbers among the outputs stay as they are written.
func (c *Carry) UnmarshalJSON(raw []byte) error {
	c.size = len(raw)
	return packed.Unmarshal(raw, (*bareCarry)(c))
}

// continueAsNew ends the run with the next one of its chain. No activity is pending. Signals are taken first, with no
// yield between that and the end.
func (t *agentTask) continueAsNew(ctx workflow.Context) error {
	t.takeSignals()
	c := t.carry()
	return t.next(ctx, c.fit())
}

// format is the oldest version of Carry that holds all of c.
func (c *Carry) format() int {
	if len(c.Failed)+len(c.Saga.Part) > 0 {
		return 2
	}
	for _, l := range c.Saga.Left {
		if l.Shown != "" {
			return 2
		}
	}
	return 1
}

// carry is the task as it stands, for the next run.
func (t *agentTask) carry() Carry {
	c := t.snapshot()
	c.Saga = t.saga.Carry()
	return c
}

// snapshot is the task without its saga.
func (t *agentTask) snapshot() Carry {
	c := Carry{
		Began: t.began, Phase: t.phase, Cause: t.cause,
		Outputs: map[string]map[string]any{}, Steps: map[string]CarriedStep{}, Redoes: map[string]string{},
		Size: t.size, Done: t.done, Kept: t.kept, Pivot: t.pivot, Rewound: t.rewound, Unknown: t.unknown, Redoable: t.redoable,
		Ignored: t.ignored, More: t.more, Notes: t.notes,
	}
	c.Past = append(c.Past, t.past...)
	if t.phase == Forward {
		for _, f := range t.failed {
			if f.step.failure != f {
				continue // it was put back to its start with another one
			}
			c.Failed = append(c.Failed, CarriedFailure{Step: f.step.step.ID, Cause: f.cause, Begun: f.begun, From: f.from})
		}
	}
	c.Compiled = t.compiled
	c.Compiled.Steps = nil
	again := t.savepoint()
	for _, s := range t.steps {
		if t.phase == Forward && (!s.ended() || s.seq >= again) {
			c.Compiled.Steps = append(c.Compiled.Steps, s.step)
			t.carryStep(&c, s)
		} else if view, tells := s.toTell(); tells {
			c.Past = append(c.Past, view)
		}
	}
	return c
}

// ended says that the step will not run any more, unless it is unwound to a savepoint before it.
func (s *stepRun) ended() bool {
	if s.failure != nil {
		return false
	}
	switch s.view.State {
	case NotStarted, Planning, AtGate, Running, Canceled:
		return false
	case Done, StepFailed, RolledBack, LeftOut:
	}
	return true
}

// toTell is what a report must say of a step that has ended.
func (s *stepRun) toTell() (StepView, bool) {
	return s.view, s.view.State != NotStarted && (s.view.State != Done || len(s.view.Notes) > 0)
}

// savepoint is the lowest place in the ledger that the task may still unwind to, to go on from there.
func (t *agentTask) savepoint() int {
	places, lowest := t.savepoints(), math.MaxInt
	for _, f := range t.failed {
		lowest = min(lowest, f.from)
	}
	for lower := true; lower; { // a step that is done again may unwind further
		lower = false
		for _, s := range t.steps {
			from, known := places[s.step.OnFailure.To]
			if known && from < lowest && (!s.ended() || s.seq >= lowest) {
				lowest, lower = from, true
			}
		}
	}
	return lowest
}

func (t *agentTask) carryStep(c *Carry, s *stepRun) {
	for _, of := range s.step.References() {
		if outputs, known := t.outputs[of]; known {
			c.Outputs[of] = outputs
		}
	}
	if outputs, known := t.outputs[s.step.ID]; known {
		c.Outputs[s.step.ID] = outputs
	}
	if token, redoes := t.redoes[s.step.ID]; redoes {
		c.Redoes[s.step.ID] = token
	}
	carried := CarriedStep{
		Generation: s.generation, Seq: s.seq, Openings: s.openings, Want: s.want, Notes: s.view.Notes, Error: s.view.Error,
	}
	if s.ended() {
		carried.State = s.view.State
	}
	if s.gate != nil {
		carried.Gate = &CarriedGate{View: s.gate.view, Decision: s.gate.decision, Approved: s.gate.approved}
	}
	if carried.State != "" || s.generation > 1 || s.seq > 0 || s.failure != nil {
		c.Steps[s.step.ID] = carried
	}
}

// resume takes up what the run before has carried over. A worker that does not know its format fails the workflow task, which
// waits for one that does: the ledger is in there.
func (t *agentTask) resume(ctx workflow.Context, c Carry) {
	if c.Version > CarryVersion {
		panic(fmt.Sprintf("%s: the run before carries format %d over; this worker knows %d: upgrade it", activities.UnknownFormat, c.Version, CarryVersion))
	}
	t.began, t.phase, t.cause, t.compiled = c.Began, c.Phase, c.Cause, c.Compiled
	t.past, t.size, t.done, t.kept, t.pivot, t.unknown, t.redoable = c.Past, c.Size, c.Done, c.Kept, c.Pivot, c.Unknown, c.Redoable
	t.ignored, t.more, t.notes, t.redoes = c.Ignored, c.More, c.Notes, c.Redoes
	if c.Rewound != nil {
		t.rewound = c.Rewound
	}
	if c.Outputs != nil {
		t.outputs = c.Outputs
	}
	t.saga = compensations.Resume(ctx, compensations.Options{}, c.Saga)
	t.configure(ctx)
	for _, step := range c.Compiled.Steps {
		s := t.add(step)
		carried, ok := c.Steps[step.ID]
		if !ok {
			continue
		}
		s.generation, s.seq, s.openings, s.want = carried.Generation, carried.Seq, carried.Openings, carried.Want
		s.view.Notes, s.view.Error = carried.Notes, carried.Error
		if carried.State != "" {
			s.view.State = carried.State
		}
		if g := carried.Gate; g != nil {
			s.gate = &gate{view: g.View, decision: g.Decision, approved: g.Approved}
		}
	}
	for _, f := range c.Failed {
		s := t.byID[f.Step]
		s.view.State, s.failure = StepFailed, &failure{step: s, cause: f.Cause, begun: f.Begun, from: f.From}
		t.failed = append(t.failed, s.failure)
	}
	t.room = room{packed: c.size}
	t.arrange()
}
