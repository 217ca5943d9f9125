package activities

import (
	"context"
	"encoding/json"
	"time"
)

// Action changes one kind of resource and can undo the change.
//
// The engine calls Apply at least once for a step, Plan before it if there is a gate, and Undo at
// least once if the task unwinds, even if Apply never ran, ran in part, ran twice, reported an
// error after acting, or still runs somewhere. Every method may be called again with the same
// arguments, by another process, while an earlier call still runs or sleeps; an action makes that
// harmless. Errors that a retry cannot cure are an [*Error] of a final type; all others are
// retried, a forward within the step's retry policy, an undo for as long as its budget lasts.
type Action interface {
	// Spec is pure data. It never changes while a worker runs.
	Spec() Spec

	// Plan says what Apply would do, without changing the target. What it leaves in the journal
	// (staged content, a plan file) is under e's token, so that Undo removes it. Checks with When
	// [Staged] run here when a gate follows.
	Plan(ctx context.Context, e Entry, s Step) (Change, error)

	// Apply makes the change once per token. It makes the undo record durable, with want and the
	// target's fingerprint in it, before the first byte of the change. Called again it finishes or
	// confirms, with the same Result.
	//
	// If there is no record yet, it calls [Judge] with what it is about to do, and has touched nothing
	// if that refuses.
	//
	// If want is set and there is no record yet, it refuses with StaleApproval unless the change still
	// has that digest; if there is a record it never judges again. If the token's fate is decided
	// (undone, released) it refuses with Fenced.
	Apply(ctx context.Context, e Entry, s Step, want Digest) (Result, error)

	// Undo reverses whatever Apply did under e's token, and fences the token so that no late Apply and
	// no other Undo can act. Its outcome is kept in the journal and returned again. It observes first:
	// if the resource is not as the step left it, Undo returns Drifted and does not touch it, unless d
	// forces exactly that drift.
	Undo(ctx context.Context, e Entry, d Decision) (Undone, error)

	// Observe compares the resource with what the step left and with its pre-image, and says which it
	// equals.
	Observe(ctx context.Context, e Entry) (Observation, error)

	// Release drops the pre-image when the rollback window has closed, and what a rolled-back token
	// kept for a redo. The token's tombstone and its outcome stay. For a token that was only planned
	// it clears what Plan left in the journal, and touches nothing outside it.
	Release(ctx context.Context, e Entry) error
}

// Resetter is an Action that can put its resource back to a known start when its undo is beyond
// repair: a container as its image made it. A person asks for it with resolve --do reset. Its Spec
// says in Reset what that loses.
type Resetter interface {
	// Reset fences the token like Undo, puts the resource back to its start, and keeps the outcome:
	// Residue with the losses.
	Reset(ctx context.Context, e Entry, d Decision) (Undone, error)
}

// Committer is an Action whose changes outlive a restart of their resource only once it has been
// told that their task has committed. Its Spec says so in Commits. An action without it is durable
// from the moment when Apply returns.
type Committer interface {
	// Commit makes durable the present result of the steps with these tokens, done or undone, all of
	// one place. It is called when the steps of a task are done, at a pivot, and after an unwinding,
	// and repeated, even while an earlier call still runs, until one succeeds. An undo works before,
	// during and after it. A token that has left nothing, or is no longer known, is not an error.
	Commit(ctx context.Context, c Commitment) (Committed, error)
}

// Commitment names what to make durable.
type Commitment struct {
	Place  Place    `json:"place"`
	Tokens []string `json:"tokens"`
}

// Committed is the result of a Commit.
type Committed struct {
	// Notes say what becomes durable later, and when.
	Notes []string `json:"notes,omitempty"`
}

// Step is what a forward gets in addition to its Entry.
type Step struct {
	// ID is the step's id in its task.
	ID string `json:"id"`
	// Name is the step's title for people.
	Name string `json:"name,omitempty"`
	// With holds the action's parameters, matching Spec.Params; expressions are resolved. Secrets are
	// still references in a payload; the wrapper puts their values in before the action sees them.
	With json.RawMessage `json:"with,omitempty"`
	// Checks are the step's conditions, on the staged content and on the live target.
	Checks []Check `json:"check,omitempty"`
}

// Change is what a step would do.
type Change struct {
	// Summary is one line: "replace /srv/app/app.yml (214 -> 230 bytes)".
	Summary string `json:"summary"`
	// Diff is what a person reads before approving: a unified diff, a Terraform plan, a request. At
	// most MaxDiff bytes.
	Diff string `json:"diff,omitempty"`
	// Strategy is how the change would be undone.
	Strategy Strategy `json:"strategy"`
	// Undo says in one sentence how the change would be undone.
	Undo string `json:"undo"`
	// Horizon is for how long after the end of its task the change can be undone, at most; 0 if it
	// cannot be undone then. The wrapper sets it.
	Horizon time.Duration `json:"horizon,omitempty"`
	// Losses names what an undo would not bring back.
	Losses []string `json:"losses,omitempty"`
	// Risk is the lowest possible risk of this change; Facts are the reasons.
	Risk  Risk     `json:"risk"`
	Facts []string `json:"facts,omitempty"`
	// Counts are what the change does to each table or other set, as data for who decides by rules. At
	// most MaxItems.
	Counts []Count `json:"counts,omitempty"`
	// Schema are the changes of a database's schema, a line each.
	Schema []string `json:"schema,omitempty"`
	// Ask means that this change must be approved whatever the task file says (a Terraform plan that
	// destroys).
	Ask bool `json:"ask,omitempty"`
	// Floor says that the worker's config has a person approve this change, whatever the task file
	// says. The wrapper sets it.
	Floor string `json:"floor,omitempty"`
	// Repeats names the step of another task that the same agent has done for the same purpose, and
	// that stands: the change must be approved whatever the task file says. The wrapper sets it.
	Repeats string `json:"repeats,omitempty"`
	// Policy is what the worker's rules have decided; nil if none of them matches. The wrapper sets
	// it.
	Policy *Ruling `json:"policy,omitempty"`
	// Standing are standing approvals that cover the change, as many as it needs. The wrapper sets it.
	Standing []Assent `json:"standing,omitempty"`
	// Unchanged means that the step has nothing to do: nobody is asked, unless the task file or a rule
	// asks, or Ask, Floor or Repeats is set.
	Unchanged bool `json:"unchanged,omitempty"`
	// Keys are the resources that the change touches.
	Keys []string `json:"keys,omitempty"`
	// Digest covers the change and the fingerprint of its target: it differs if either does.
	Digest Digest `json:"digest"`
}

// Result is what a forward did.
type Result struct {
	// Summary is one line.
	Summary string `json:"summary,omitempty"`
	// Outputs are what later steps may refer to as ${{ steps.ID.outputs.NAME }}: at most MaxOutputs
	// bytes as JSON. The wrapper cuts longer ones and names them in Notes.
	Outputs map[string]any `json:"outputs,omitempty"`
	// After is the fingerprint of the resource as the step left it.
	After Digest `json:"after,omitempty"`
	// Notes are what a reader of the report should know: it ran twice, its result was recovered from
	// the journal.
	Notes []string `json:"notes,omitempty"`
}

type plainResult Result

// UnmarshalJSON keeps numbers in the outputs as they are written: a float64 would round a long id.
func (r *Result) UnmarshalJSON(raw []byte) error { return decodeExactly(raw, (*plainResult)(r)) }

// Undone is what an undo did, by what was observed afterwards.
type Undone struct {
	Outcome Outcome `json:"outcome"`
	// Observed is one sentence about the state of the world.
	Observed string `json:"observed,omitempty"`
	// Losses names what was not restored, for Compensated and Residue.
	Losses []string `json:"losses,omitempty"`
	// Drift is set for Drifted.
	Drift *Drift `json:"drift,omitempty"`
	// Heals are the tokens of later steps that had been undone with a Residue which this undo has
	// removed.
	Heals []string `json:"heals,omitempty"`
	// Took is the duration of the undo that settled the step.
	Took time.Duration `json:"took,omitempty"`
	// LookAgain is set if an effect was absent but a request could still be on its way: after that
	// long a late sweep calls Undo once more, which then observes again, whatever it answered before.
	LookAgain time.Duration `json:"lookAgain,omitempty"`
}

// Drift is a difference between what a step left and the present state.
type Drift struct {
	// Digest covers the resource's present state: a force names it, and overwrites nothing else.
	Digest Digest `json:"digest"`
	// Diff is what a person reads: at most MaxDiff bytes.
	Diff string `json:"diff"`
}

// Decision is what an undo gets in addition to its entry: what a person, or the step's own policy,
// decided about drift that was shown, and what the history knows.
type Decision struct {
	// Force is the digest of the drift that may be overwritten; empty for none.
	Force Digest `json:"force,omitempty"`
	// Redoable asks for an undo that can be reversed: what it removes is kept until Release, for a
	// forward whose entry has Redoes. A rollback after the task's end sets it; a task that unwinds by
	// itself never does.
	Redoable bool `json:"redoable,omitempty"`
	// Done means that the history knows that the forward succeeded: a missing record is then lost, and
	// not one that never was.
	Done bool `json:"done,omitempty"`
	// Result is what the history knows of the result of a forward that succeeded: the fingerprint, and
	// the outputs that Spec.UndoOutputs names. It is nil for a forward that is not known to have
	// succeeded, and for an action without UndoOutputs.
	Result *Result `json:"result,omitempty"`
	// Orphan means that no task is left in which a person could take the world as it is: where nothing
	// can be put back, because what the step acted on is gone for good, the undo says so and settles.
	Orphan bool `json:"orphan,omitempty"`
	// Who and Why are kept with the outcome. Signing proves them; nil for a claim.
	Who     string   `json:"who,omitempty"`
	Why     string   `json:"why,omitempty"`
	Signing *Signing `json:"signing,omitempty"`
}

// State is how a resource compares with what a step left and with its pre-image.
type State string

// The states an Observation can report.
const (
	AsBefore State = "as-before" // equals the pre-image
	AsLeft   State = "as-left"   // equals what the step left
	Elsewise State = "drifted"   // equals neither
	Unseen   State = "unknown"   // cannot be observed
)

// Observation is what was observed of a resource.
type Observation struct {
	State  State  `json:"state"`
	Detail string `json:"detail,omitempty"`
	Drift  *Drift `json:"drift,omitempty"`
}
