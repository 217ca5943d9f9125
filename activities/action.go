package activities

import (
	"context"
	"encoding/json"
	"time"
)

// Action changes one kind of resource and can take the change back.
//
// The engine calls Apply at least once for a step, Plan before it where a gate stands, and Undo at least once if the task
// unwinds: also when Apply never ran, ran half, ran twice, reported an error after acting, or still runs somewhere.
// Every method may be called again with the same arguments, by another process, while an earlier call still runs or
// sleeps; an action makes that harmless. Errors that retrying cannot mend are an [*Error] of a final type; all others
// are retried, a forward within the step's retry policy, an undo for as long as its budget lasts.
type Action interface {
	// Spec is pure data. It never changes while a worker runs.
	Spec() Spec

	// Plan says what Apply would do, without changing the target. What it leaves in the journal (staged content, a plan
	// file) is under e's token, so that Undo clears it away. Checks with When [Staged] run here when a gate follows.
	Plan(ctx context.Context, e Entry, s Step) (Change, error)

	// Apply does the change once per token. It makes the undo record durable, with want and the target's fingerprint in
	// it, before the first byte of the change. Called again it finishes or confirms, with the same Result.
	//
	// With want set and no record yet, it refuses with StaleApproval unless the change still has that digest; with a
	// record it never judges again. With the token's fate decided (undone, released) it refuses with Fenced.
	Apply(ctx context.Context, e Entry, s Step, want Digest) (Result, error)

	// Undo takes back whatever Apply did under e's token, and fences the token so that no late Apply and no other Undo
	// can act. Its outcome is kept in the journal and returned again. It observes first: a resource that is not as the
	// step left it is returned as Drifted, untouched, unless d forces exactly that drift.
	Undo(ctx context.Context, e Entry, d Decision) (Undone, error)

	// Observe compares the resource with what the step left and with its pre-image, and says which it equals.
	Observe(ctx context.Context, e Entry) (Observation, error)

	// Release drops the pre-image when the rollback window has closed, and of a token that was rolled back what was kept
	// for a redo. The token's tombstone and its outcome stay. For a token that was only planned it clears what Plan left
	// in the journal, and touches nothing outside it.
	Release(ctx context.Context, e Entry) error
}

// Resetter is an Action that can put its resource back to a known start when its undo is beyond repair: a container as
// its image made it. A person asks for it with resolve --do reset. Its Spec says in Reset what is lost thereby.
type Resetter interface {
	// Reset fences the token like Undo, puts the resource back to its start, and keeps the outcome: Residue with the losses.
	Reset(ctx context.Context, e Entry, d Decision) (Undone, error)
}

// Committer is an Action whose changes outlive a restart of their resource only once it has been told that their task has
// committed. Its Spec says so in Commits. An action without it is durable from the moment when Apply returns.
type Committer interface {
	// Commit makes durable what stands of the steps with these tokens, done or undone, all of one place. It is called when the
	// steps of a task are done, at a pivot, and after an unwinding; again, also while an earlier call still runs, until one
	// has succeeded. An undo works before it, while it runs and after it. A token that has left nothing, or is not known any
	// more, is no error.
	Commit(ctx context.Context, c Commitment) (Committed, error)
}

// Commitment says what is to be made durable.
type Commitment struct {
	Place  Place    `json:"place"`
	Tokens []string `json:"tokens"`
}

// Committed is what a Commit has come to.
type Committed struct {
	// Notes say what is durable later only, and when.
	Notes []string `json:"notes,omitempty"`
}

// Step is what a forward gets beside its Entry.
type Step struct {
	// ID is the step's id in its task.
	ID string `json:"id"`
	// Name is the step's title for people.
	Name string `json:"name,omitempty"`
	// With holds the action's parameters, matching Spec.Params; expressions are resolved. Secrets are still references
	// in a payload; the wrapper puts their values in before the action sees them.
	With json.RawMessage `json:"with,omitempty"`
	// Checks are the step's conditions, on the staged content and on the live target.
	Checks []Check `json:"check,omitempty"`
}

// Change is what a step would do.
type Change struct {
	// Summary is one line: "replace /srv/app/app.yml (214 -> 230 bytes)".
	Summary string `json:"summary"`
	// Diff is what a person reads before approving: a unified diff, a Terraform plan, a request. At most MaxDiff bytes.
	Diff string `json:"diff,omitempty"`
	// Strategy is how it would be undone.
	Strategy Strategy `json:"strategy"`
	// Undo says in one sentence how it would be undone.
	Undo string `json:"undo"`
	// Losses names what an undo would not bring back.
	Losses []string `json:"losses,omitempty"`
	// Risk is the least risk of this change; Facts say why.
	Risk  Risk     `json:"risk"`
	Facts []string `json:"facts,omitempty"`
	// Ask is set where this very change must be approved whatever the task file says (a Terraform plan that destroys).
	Ask bool `json:"ask,omitempty"`
	// Keys are the resources that it touches.
	Keys []string `json:"keys,omitempty"`
	// Digest covers the change and the fingerprint of its target: another content or another target, another digest.
	Digest Digest `json:"digest"`
}

// Result is what a forward did.
type Result struct {
	// Summary is one line.
	Summary string `json:"summary,omitempty"`
	// Outputs are what later steps may refer to as ${{ steps.ID.outputs.NAME }}. At most MaxOutputs bytes as JSON; what
	// is longer is cut by the wrapper and named in Notes.
	Outputs map[string]any `json:"outputs,omitempty"`
	// After is the fingerprint of what the step left.
	After Digest `json:"after,omitempty"`
	// Notes are what a reader of the report must know: ran twice, result recovered from the journal.
	Notes []string `json:"notes,omitempty"`
}

type plainResult Result

// UnmarshalJSON keeps the numbers among the outputs as they are written: a float64 would round a long id.
func (r *Result) UnmarshalJSON(raw []byte) error { return exactly(raw, (*plainResult)(r)) }

// Undone is what an undo did, by what was seen afterwards.
type Undone struct {
	Outcome Outcome `json:"outcome"`
	// Observed is one sentence: what the world was seen to be.
	Observed string `json:"observed,omitempty"`
	// Losses names what did not come back, for Compensated and Residue.
	Losses []string `json:"losses,omitempty"`
	// Drift is set for Drifted.
	Drift *Drift `json:"drift,omitempty"`
	// Took is how long the undo that settled it needed.
	Took time.Duration `json:"took,omitempty"`
	// LookAgain is set where absence was seen and is not yet proof: after so long a late sweep calls Undo once more, which
	// then looks again, whatever it has answered before.
	LookAgain time.Duration `json:"lookAgain,omitempty"`
}

// Drift is a difference between what a step left and what is there now.
type Drift struct {
	// Digest covers the resource's present state: a force names it, and overwrites nothing else.
	Digest Digest `json:"digest"`
	// Diff is what a person reads: at most MaxDiff bytes.
	Diff string `json:"diff"`
}

// Decision is a person's (or the step's own policy's) word on drift that was shown.
type Decision struct {
	// Force is the digest of the drift that may be overwritten; empty for none.
	Force Digest `json:"force,omitempty"`
	// Redoable asks for an undo that can be undone: what it takes away is kept until Release, for a forward whose entry
	// says Redoes. Set by a rollback after the end, never where a task unwinds by itself.
	Redoable bool `json:"redoable,omitempty"`
	// Who and Why are kept with the outcome.
	Who string `json:"who,omitempty"`
	Why string `json:"why,omitempty"`
}

// State says what a resource equals.
type State string

// The states an Observation can report.
const (
	AsBefore State = "as-before" // equals the pre-image
	AsLeft   State = "as-left"   // equals what the step left
	Elsewise State = "drifted"   // equals neither
	Unseen   State = "unknown"   // cannot be observed
)

// Observation is a look at a resource.
type Observation struct {
	State  State  `json:"state"`
	Detail string `json:"detail,omitempty"`
	Drift  *Drift `json:"drift,omitempty"`
}
