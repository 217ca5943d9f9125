package task

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// Compiled is a task that was checked against a catalog: all that the workflow needs to run it, as
// data. It is the result of the activity task.compile, so determinism never depends on a catalog
// that is built into a workflow.
type Compiled struct {
	Name  string `json:"name"`
	Agent string `json:"agent,omitempty"`
	// Deadline bounds the task's forward work, as a workflow timer; zero: none. At the deadline the
	// task unwinds.
	Deadline time.Duration `json:"deadline,omitempty"`
	// Unwind says in which order the task is undone.
	Unwind UnwindMode `json:"unwind,omitempty"`
	// Keep is the rollback window: for how long after it has committed the task can be rolled back.
	// Zero is activities.DefaultKeep.
	Keep time.Duration `json:"keep,omitempty"`
	// Pinned keeps what a rollback needs for all of that time, whatever the retention limits say.
	Pinned bool `json:"pinned,omitempty"`
	// Session is nil for a task whose steps are all in its file.
	Session *Session `json:"session,omitempty"`
	// Steps are in file order.
	Steps []Step `json:"steps"`
	// Touched names what steps touch that are added to a task, as far as the compiler's own host runs
	// them; Unnamed are those whose hosts are to be asked.
	Touched []activities.Touched `json:"touched,omitempty"`
	Unnamed []string             `json:"unnamed,omitempty"`
}

// Session is how a task behaves that takes steps while it runs.
type Session struct {
	// Idle is how long its agent may be silent while no step runs and no gate is open.
	Idle time.Duration `json:"idle"`
	// Gone says what happens then.
	Gone GoneMode `json:"gone"`
	// AgentDecides lets the agent, beside a person, decide about a step that is parked after a
	// failure.
	AgentDecides bool `json:"agentDecides,omitempty"`
	// Environment is the one of which each savepoint is a checkpoint; empty: none. Host has it; the
	// worker that compiles the session fills it in.
	Environment string `json:"environment,omitempty"`
	Host        string `json:"host,omitempty"`
	// AgentRestores lets the environment be put back without a person.
	AgentRestores bool `json:"agentRestores,omitempty"`
}

// Decider says who may decide about a step that is parked after a failure.
type Decider string

// The deciders.
const (
	PersonDecides Decider = "person"
	AgentDecides  Decider = "agent" // and a person
)

// GoneMode says what becomes of a session whose agent is gone.
type GoneMode string

// The modes.
const (
	GoneAsk    GoneMode = "ask"    // a person is alerted, and it waits
	GoneUnwind GoneMode = "unwind" // it unwinds
)

// Step is a compiled step.
type Step struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	// Uses is the action's name.
	Uses string `json:"uses"`
	// With holds the parameters with vars resolved. References to outputs and to secrets are still
	// expressions.
	With json.RawMessage `json:"with,omitempty"`
	// Check holds the step's checks.
	Check []activities.Check `json:"check,omitempty"`
	// Needs are the ids of all steps that must be done first: those written, those implied by the
	// order, those whose outputs are referred to, those whose keys overlap. Sorted by file order,
	// without what follows from the others.
	Needs []string `json:"needs,omitempty"`
	// Follows is set for a step that was added to a session and needs all that the session has done
	// before, through no step that was added with it.
	Follows bool `json:"follows,omitempty"`
	// Keys are the resource keys; nil where they cannot be named before the step's references are
	// known.
	Keys []string `json:"keys,omitzero"`
	// Changes and Reads are the canonical names that the step's host has given what it touches,
	// without those that are among Keys.
	Changes []string `json:"changes,omitempty"`
	Reads   []string `json:"reads,omitempty"`
	// NamedLate says that what the step touches depends on what earlier steps return: its host names
	// it when it is about to run.
	NamedLate bool `json:"namedLate,omitempty"`
	Gate      Gate `json:"gate"`
	// Retry bounds the attempts of the forward.
	Retry Retry `json:"retry"`
	// Timeout bounds one attempt of the forward (StartToClose).
	Timeout time.Duration `json:"timeout"`
	// Heartbeat is how long an attempt may show no sign of life before it counts as dead.
	Heartbeat time.Duration `json:"heartbeat"`
	// Place is where the step, its plan and its undo run. Journal is filled in once the host's worker
	// has answered.
	Place activities.Place `json:"place"`
	// UndoParams and Digested come from the Spec: the part of With that goes into the Entry.
	UndoParams []string `json:"undoParams,omitempty"`
	Digested   []string `json:"digested,omitempty"`
	// Intent comes from the Spec: the parameters that say what the step is for. Again says that it may
	// be for the same as another.
	Intent []string `json:"intent,omitempty"`
	Again  bool     `json:"again,omitempty"`
	// Reserved is something that the file of a session says of the step and that only a person may
	// say, as in "gate: none".
	Reserved string `json:"reserved,omitempty"`
	// UndoOutputs come from the Spec: the outputs that the undo is given.
	UndoOutputs []string `json:"undoOutputs,omitempty"`
	// ReadOnly steps get no undo.
	ReadOnly bool `json:"readOnly,omitempty"`
	// MayChange are the prefixes of keys of resources that the step may make or change besides those
	// in Keys; "" is anything.
	MayChange []string `json:"mayChange,omitempty"`
	// Preflights says that the action looks at the step before the task's first step acts: see
	// activities.Preflighter.
	Preflights bool `json:"preflights,omitempty"`
	// Commits says that the action is told when the task has committed: see activities.Committer.
	Commits bool `json:"commits,omitempty"`
	// Undo bounds the undo; fields at their default are zero (UndoPolicy.Compact).
	Undo activities.UndoPolicy `json:"undo,omitzero"`
	// OnFailure says what happens when the step has failed.
	OnFailure OnFailure `json:"onFailure,omitzero"`
	// Savepoint names the place in the ledger just before this step.
	Savepoint string `json:"savepoint,omitempty"`
	// Marks names the place just after it, once it is done: a savepoint of a session that has an
	// environment.
	Marks string `json:"marks,omitempty"`
	// Pivot says that once the step is done the task no longer unwinds past it.
	Pivot bool `json:"pivot,omitempty"`
}

// UnwindMode says in which order a task is undone.
type UnwindMode string

// The modes. UnwindLIFO, the default, takes no room in a history.
const (
	UnwindLIFO     UnwindMode = ""         // one after the other, strictly the last one first; "lifo" in the file
	UnwindParallel UnwindMode = "parallel" // branches that do not build on each other at once
)

// FailureMode says what happens when a step fails.
type FailureMode string

// The modes. FailUnwind, the default, takes no room in a history.
const (
	// FailUnwind unwinds the task, back to the last pivot that is done; "unwind" in the file.
	FailUnwind FailureMode = ""
	// FailRollbackStep undoes the step; what needs it is not run, independent work goes on.
	FailRollbackStep FailureMode = "rollback_step"
	// FailContinue notes it; what the step did stays on the ledger, and what needs it runs.
	FailContinue FailureMode = "continue"
	// FailAsk undoes and parks the step: a person has it run again, skips it, or unwinds the task.
	FailAsk      FailureMode = "ask"
	FailUnwindTo FailureMode = "unwind_to" // all from a savepoint on is undone and done again
)

// OnFailure is what happens when a step has failed, its retries used up.
type OnFailure struct {
	Do FailureMode `json:"do,omitempty"`
	// To is the savepoint of FailUnwindTo: on this step or one above it, with no pivot from there up
	// to this step.
	To string `json:"to,omitempty"`
	// With are the steps that FailRollbackStep undoes along with this one: those above it for the same
	// target of a group.
	With []string `json:"with,omitempty"`
	// Times is how often FailUnwindTo does that; then the task unwinds. At least 1 there, else zero.
	Times int `json:"times,omitempty"`
}

// GateMode says when a step waits for a person.
type GateMode string

// The modes. GateOpen and GateNone are one activity, unless that turns out to ask.
const (
	GateOpen GateMode = "open" // asks where the change's risk is high
	// GateNone, written out in the task file, asks only where the change or the worker's config
	// always asks.
	GateNone GateMode = "none"
	GateAuto GateMode = "auto" // plans; asks where the change's risk is medium or high
	GateAsk  GateMode = "ask"  // plans and asks
)

// Gate is a point where a person must approve.
type Gate struct {
	Mode GateMode `json:"mode"`
	// Limit is how long it waits; a timeout is a rejection. It may be zero for a mode that does not
	// plan: see Patience.
	Limit time.Duration `json:"limit,omitempty"`
	// Why says where the gate comes from: "the task file asks", "stripe.refund is risky".
	Why string `json:"why,omitempty"`
	// Risky is set where the gate stands only because the action is risky: a change that does nothing
	// is not asked.
	Risky bool `json:"risky,omitempty"`
}

// Plans reports whether the step is planned before it runs.
func (g Gate) Plans() bool { return g.Mode == GateAsk || g.Mode == GateAuto }

// Patience is how long the gate waits.
func (g Gate) Patience() time.Duration { return cmp.Or(g.Limit, defaultGateLimit) }

// Consent is what the task file has let happen without a person.
func (g Gate) Consent() activities.Consent {
	if g.Mode == GateNone {
		return activities.Waived
	}
	return activities.Unasked
}

// Retry bounds the attempts of a forward.
type Retry struct {
	Attempts int           `json:"attempts"`
	Backoff  time.Duration `json:"backoff"`
	Max      time.Duration `json:"max"`
}
