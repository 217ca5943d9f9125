package compensations

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// CauseKind is the kind of event that made a task unwind.
type CauseKind string

// The causes.
const (
	Failure  CauseKind = "failed"
	Rejected CauseKind = "rejected"
	Canceled CauseKind = "canceled"
	Deadline CauseKind = "deadline"
	WasReset CauseKind = "reset"
	// Ended, RolledBack and Late are the causes of a workflow that unwinds another one: a run that
	// ended without unwinding, a committed task, an undo whose effect was not certain.
	Ended      CauseKind = "ended"
	RolledBack CauseKind = "rolled-back"
	Late       CauseKind = "late"
)

// Cause is why a task unwinds.
type Cause struct {
	Kind CauseKind `json:"kind"`
	// Step is the step that failed or was rejected.
	Step string `json:"step,omitempty"`
	Text string `json:"text"`
}

// String is the cause in a sentence: where its text says the kind, that is not said twice.
func (c Cause) String() string {
	where := ""
	if c.Step != "" {
		where = " at step " + c.Step
	}
	switch {
	case c.Text == "":
		return string(c.Kind) + where
	case c.Kind == RolledBack && where != "":
		return "step " + c.Step + " " + c.Text
	case c.Kind != Failure && c.Kind != Rejected && where == "":
		return c.Text
	}
	return string(c.Kind) + where + ": " + c.Text
}

// Status is the status of a task; it is also the search attribute UnwindStatus.
type Status string

// The statuses. Open is set when the task starts and changed when it closes.
const (
	Open      Status = "open"
	Committed Status = "committed"
	Unwound   Status = "unwound"              // every step is as before, or compensated as its report says
	Remains   Status = "unwound-with-remains" // the report names what is not
	Redone    Status = "redone"               // what a rollback had undone is in place again
	// Partly is that of a task that went on without the steps that the report names, or ended past
	// its pivot.
	Partly Status = "partly-committed"
)

// Report is what became of a task, by what was observed.
type Report struct {
	Task   string `json:"task,omitempty"`
	Status Status `json:"status"`
	Cause  *Cause `json:"cause,omitempty"`
	// Steps are in the order of the task file as far as it is known, else in that of starting. Past
	// MaxReported, the clean ones are only counted.
	Steps []StepReport `json:"steps"`
	// Outcomes counts the steps by outcome.
	Outcomes map[string]int `json:"outcomes,omitempty"`
	// Notes are what else people should know: gates that the task file turned off, signals that
	// decided nothing.
	Notes []string `json:"notes,omitempty"`
	// Lasted is the time from its start to its end, also what it waited for people.
	Lasted time.Duration `json:"lasted,omitempty"`
}

// MaxReported is how many steps a report lists in full.
const MaxReported = 200

// StepReport is what became of one step.
type StepReport struct {
	Step   string `json:"step"`
	Action string `json:"action,omitempty"`
	// Try says which try of the step the row is about, from 1, where there was more than one.
	Try int `json:"try,omitempty"`
	// State is the step's own state, such as done or failed, or an UndoState while it unwinds.
	State string `json:"state"`
	// Summary says what the forward did.
	Summary string `json:"summary,omitempty"`
	// Outcome, Observed, Losses and Drift describe the undo. Once drift was forced, Drift keeps it.
	Outcome  activities.Outcome `json:"outcome,omitempty"`
	Observed string             `json:"observed,omitempty"`
	Losses   []string           `json:"losses,omitempty"`
	Drift    *activities.Drift  `json:"drift,omitempty"`
	// Reason says why the undo waits, is parked, or has failed last; Digest is what a resolution must
	// carry.
	Reason string            `json:"reason,omitempty"`
	Digest activities.Digest `json:"digest,omitempty"`
	// Signed means that only signed resolutions count, and Token is a part of what is signed: see
	// Statement.
	Signed bool          `json:"signed,omitempty"`
	Token  string        `json:"token,omitempty"`
	Notes  []string      `json:"notes,omitempty"`
	Took   time.Duration `json:"took,omitempty"`
}

// maxNotes is how many notes a report keeps that is too long.
const maxNotes = 100

// Fit shortens a report until its JSON has at most limit bytes: it cuts surplus notes, then diffs,
// notes and texts of steps, then steps, first the clean ones and then the last. Notes say what was
// cut.
func (r *Report) Fit(limit int) {
	if more := len(r.Notes) - maxNotes; more > 0 && r.size() > limit {
		r.Notes = append(slices.Clip(r.Notes[:maxNotes]), "and "+activities.CountOf(more, "more note"))
		for i := range r.Notes {
			r.Notes[i] = clip(r.Notes[i], maxWhy)
		}
	}
	for _, cut := range []struct {
		what string
		from func(*StepReport)
	}{
		{"diffs of drift", func(s *StepReport) {
			if s.Drift = headOf(s.Drift); UndoState(s.State) != Settled { // only of a settled one it may be all that is left
				s.Drift = nil
			}
		}},
		{"notes of steps", func(s *StepReport) { s.Notes = nil }},
		{"texts of steps", func(s *StepReport) {
			s.Drift = nil
			s.Losses, s.Summary, s.Observed, s.Reason = nil, clip(s.Summary, maxName), clip(s.Observed, maxName), clip(s.Reason,
				maxName)
		}},
	} {
		if r.size() <= limit {
			return
		}
		for i := range r.Steps {
			cut.from(&r.Steps[i])
		}
		r.Notes = append(r.Notes, "left out, for they are too long: "+cut.what)
	}
	dropped := len(r.Steps)
	for n := dropped; r.size() > limit && n > 0; n = len(r.Steps) * 3 / 4 {
		r.Steps = dropSteps(r.Steps, n)
	}
	dropped -= len(r.Steps)
	if dropped > 0 {
		r.Notes = append(r.Notes,
			fmt.Sprintf("left out, for they are too many: %s; the counts hold them", activities.CountOf(dropped, "step")))
	}
}

func (r *Report) size() int {
	raw, _ := json.Marshal(r) // plain data
	return len(raw)
}

// Clean reports whether there is nothing to tell a person about the step.
func (s StepReport) Clean() bool {
	return s.Outcome.Clean() && UndoState(s.State) == Settled
}

// isPlain reports whether a report may leave the step out, and only count it.
func (s StepReport) isPlain() bool { return s.Clean() && s.Drift == nil }

func (it *item) report() StepReport {
	r := StepReport{
		Step: it.entry.Step, Action: it.entry.Action, Try: it.entry.Generation, State: string(it.state),
		Outcome: it.Undone.Outcome, Observed: it.Undone.Observed, Losses: it.Undone.Losses, Drift: it.Undone.Drift,
		Notes: it.Notes, Took: it.Undone.Took,
	}
	switch it.state {
	case Parked, Waiting:
		r.Reason, r.Digest = it.Reason, it.parkDigest()
		r.Signed, r.Token = it.Signed || it.entry.Place.Signed, it.entry.Token
	case Accepted, Skipped:
		if r.Outcome == "" {
			r.Outcome = activities.Failed
		}
		r.Reason = it.Reason
		r.Drift = headOf(r.Drift) // it was shown in full for the decision
	case Running:
		r.Reason, r.Drift = it.Reason, nil
	case Registered, Pending, Settled:
		r.Drift = nil
	}
	if r.Drift == nil {
		r.Drift = it.ForcedDrift
	}
	return r
}

// report describes the unwinding so far, together with what was undone before it.
func (p *plan) report(before Past, cause Cause) Report {
	r := Report{Status: Unwound, Cause: &cause, Outcomes: maps.Clone(before.Outcomes)}
	if r.Outcomes == nil {
		r.Outcomes = map[string]int{}
	}
	for outcome := range before.Outcomes {
		if !activities.Outcome(outcome).Clean() { // its step may have been dropped
			r.Status = Remains
		}
	}
	all := before.Count+len(p.items) <= MaxReported
	list := func(s StepReport) {
		if !s.Clean() {
			r.Status = Remains
		}
		if all || !s.isPlain() {
			r.Steps = append(r.Steps, s)
		}
	}
	for _, s := range before.Steps {
		list(s)
	}
	for _, it := range p.items {
		s := it.report()
		if s.Outcome != "" {
			r.Outcomes[string(s.Outcome)]++
		}
		list(s)
	}
	if !p.isDone() {
		r.Status = Open
	}
	return r
}
