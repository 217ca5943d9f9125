package mcp

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// Outcome is the structured result of every tool.
type Outcome struct {
	Session string `json:"session,omitempty" jsonschema:"handle of the session that was opened; every other tool takes it"`
	Request string `json:"request,omitempty" jsonschema:"id of this request: the same id again is the same request"`
	Pending bool   `json:"pending,omitempty" jsonschema:"it is not over: ask status with this request"`
	Next    string `json:"next,omitempty" jsonschema:"what to do now"`
	Phase   string `json:"phase,omitempty" jsonschema:"of the session: compiling, forward, unwinding or closed"`
	Cause   string `json:"cause,omitempty" jsonschema:"why the session goes no further"`
	// Steps are those of the request; for status and diff, those of the session.
	Steps      []Step   `json:"steps,omitempty"`
	Undone     []Undone `json:"undone,omitempty" jsonschema:"what became of the steps that were undone"`
	Waiting    []Undone `json:"waiting,omitempty" jsonschema:"undos that wait for a person"`
	Savepoints []string `json:"savepoints,omitempty" jsonschema:"where rollback can go back to"`
	Branches   []Branch `json:"branches,omitempty" jsonschema:"attempts that were put aside by a rollback with a branch, the oldest first"`
	Report     *Report  `json:"report,omitempty" jsonschema:"what became of the session at its end"`
	Forgotten  bool     `json:"forgotten,omitempty" jsonschema:"the request was carried out so long ago that its answer is no longer kept"`
	Omitted    []string `json:"omitted,omitempty" jsonschema:"what is left out, for it would be too long"`
	Error      *Problem `json:"error,omitempty" jsonschema:"the call was refused and nothing was touched"`
	Shell      *Shell   `json:"shell,omitempty" jsonschema:"what the command did"`
	Context    *Context `json:"context,omitempty" jsonschema:"what you have given to the session, or had given at the savepoint that it went back to"`

	notDone bool // something that was asked for was not done
	// sent in place of the outcome: a question, a task, or a wrapped server's own result; nil for none
	instead *sdk.CallToolResult
}

// Step is a step of a session.
type Step struct {
	ID      string         `json:"id"`
	Action  string         `json:"action,omitempty"`
	State   string         `json:"state" jsonschema:"done, failed, rolled-back (it failed and was undone, or a rollback undid it), at-gate, parked, running, canceled, left-out or not-started"`
	Try     int            `json:"try,omitempty" jsonschema:"which try of the step this is, where it is not the first"`
	Summary string         `json:"summary,omitempty" jsonschema:"what it did"`
	Error   string         `json:"error,omitempty" jsonschema:"why it failed"`
	Outputs map[string]any `json:"outputs,omitempty"`
	Notes   []string       `json:"notes,omitempty"`
	Seconds float64        `json:"seconds,omitempty" jsonschema:"how long it took"`
	Gate    *Gate          `json:"gate,omitempty" jsonschema:"where it waits for a person"`
	Park    *Park          `json:"park,omitempty" jsonschema:"it failed, was undone, and waits for a decision: yours if it has a digest, else a person's"`
	Undone  *Undone        `json:"undone,omitempty" jsonschema:"what its undo has brought back"`
	Plan    *Change        `json:"plan,omitempty" jsonschema:"what it would do, or what a person was shown before it did"`
}

// Gate is where a step waits for a person.
type Gate struct {
	Why    string `json:"why" jsonschema:"why a person is asked"`
	Waits  string `json:"waits,omitempty" jsonschema:"whose approvals are still missing, where several persons must approve"`
	Until  string `json:"until" jsonschema:"then it counts as rejected"`
	Change Change `json:"change"`
}

// Park is where a step that has failed waits for a person.
type Park struct {
	Reason string          `json:"reason" jsonschema:"how it failed"`
	Try    int             `json:"try" jsonschema:"how often it was tried"`
	With   json.RawMessage `json:"with,omitempty" jsonschema:"the parameters of that try"`
	Ways   []string        `json:"ways" jsonschema:"what can be decided"`
	// Digest is left out where a person alone decides.
	Digest activities.Digest `json:"digest,omitempty" jsonschema:"you may decide: resolve takes it"`
}

// Change is what a step would do.
type Change struct {
	Summary string             `json:"summary,omitempty"`
	Diff    string             `json:"diff,omitempty"`
	Risk    string             `json:"risk,omitempty"`
	Facts   []string           `json:"facts,omitempty" jsonschema:"reasons of the risk"`
	Counts  []activities.Count `json:"counts,omitempty" jsonschema:"what it does to each table or other set"`
	Schema  []string           `json:"schema,omitempty" jsonschema:"what it changes in a database's schema"`
	Undo    string             `json:"undo,omitempty" jsonschema:"how it would be undone"`
	Losses  []string           `json:"losses,omitempty" jsonschema:"what an undo would not bring back"`
	Asks    string             `json:"asks,omitempty" jsonschema:"why a person would be asked"`
	Refused string             `json:"refused,omitempty" jsonschema:"why it would be refused"`
	Unknown string             `json:"unknown,omitempty" jsonschema:"why it cannot be known yet"`
}

// Undone is what became of an undo, by what was observed.
type Undone struct {
	Step     string   `json:"step"`
	Outcome  string   `json:"outcome,omitempty" jsonschema:"restored, compensated, nothing-to-undo, drifted, residue, unknown, irreversible or failed"`
	Observed string   `json:"observed,omitempty"`
	Losses   []string `json:"losses,omitempty" jsonschema:"what did not come back"`
	Drift    string   `json:"drift,omitempty" jsonschema:"what somebody else has changed since"`
	Reason   string   `json:"reason,omitempty" jsonschema:"why it waits"`
}

// Report is what became of a session.
type Report struct {
	Status   string         `json:"status" jsonschema:"committed, unwound, unwound-with-remains or partly-committed"`
	Cause    string         `json:"cause,omitempty"`
	Outcomes map[string]int `json:"outcomes,omitempty" jsonschema:"how many steps ended in which way"`
	Undone   []Undone       `json:"undone,omitempty"`
	Notes    []string       `json:"notes,omitempty"`
}

// outcomeSchema is the schema of every tool's result. What is below its fields is in the manual: a
// list of tools repeats the schema for each.
var outcomeSchema = func() *jsonschema.Schema {
	s := schemaOf[Outcome]()
	for _, field := range s.Properties {
		field.Properties, field.Required, field.AdditionalProperties = nil, nil, nil
		if field.Items != nil && len(field.Items.Properties) > 0 {
			field.Items = &jsonschema.Schema{Type: "object"}
		}
	}
	return s
}()

// outcomeOf describes to an agent what has become of a request.
func outcomeOf(a protocol.Answer) Outcome {
	o := Outcome{
		Request: a.Request, Pending: a.Pending, Phase: string(a.Phase), Cause: causeOf(a.Cause), Undone: undoneOf(a.Undone),
		Waiting: undoneOf(a.Waiting), Forgotten: a.Forgotten, Report: reportOf(a.Report), Context: contextOf(a.Context),
	}
	o.Omitted = a.Omitted
	if a.Stuck != "" {
		o.Cause = a.Stuck
	}
	for _, state := range slices.Sorted(maps.Keys(a.More)) {
		o.Omitted = append(slices.Clip(o.Omitted), fmt.Sprintf("%s: %s", activities.CountOf(a.More[state], "row"), state))
	}
	if a.Savepoint != "" {
		o.Savepoints = []string{a.Savepoint}
	}
	for _, s := range a.Steps {
		step := Step{
			ID: s.ID, Action: s.Uses, State: string(s.State), Try: s.Try, Summary: s.Summary, Error: s.Error, Outputs: s.Outputs,
			Notes:   s.Notes,
			Seconds: s.Took.Seconds(), Gate: gateOf(s.Gate), Park: parkOf(s.Park),
		}
		if s.Undone != nil {
			step.Undone = &undoneOf([]compensations.StepReport{*s.Undone})[0]
		}
		o.Steps = append(o.Steps, step)
	}
	return o
}

func causeOf(c *compensations.Cause) string {
	if c == nil {
		return ""
	}
	return c.Text
}

func gateOf(g *protocol.GateView) *Gate {
	if g == nil {
		return nil
	}
	return &Gate{Why: g.Why, Waits: g.Waits, Until: g.Until.UTC().Format(time.RFC3339), Change: changeOf(g.Change)}
}

func parkOf(p *protocol.ParkView) *Park {
	if p == nil {
		return nil
	}
	park := &Park{Reason: p.Reason, Try: p.Try, With: p.With}
	if p.AgentDecides {
		park.Digest = p.Digest
	}
	for _, way := range p.Ways {
		park.Ways = append(park.Ways, string(way))
	}
	return park
}

func changeOf(c activities.Change) Change {
	return Change{Summary: c.Summary, Diff: c.Diff, Risk: string(c.Risk), Facts: c.Facts, Counts: c.Counts,
		Schema: c.Schema, Undo: c.Undo, Losses: c.Losses}
}

func undoneOf(reports []compensations.StepReport) []Undone {
	var all []Undone
	for _, r := range reports {
		u := Undone{Step: r.Step, Outcome: string(r.Outcome), Observed: r.Observed, Losses: r.Losses, Reason: r.Reason}
		if r.Drift != nil {
			u.Drift = r.Drift.Diff
		}
		all = append(all, u)
	}
	return all
}

func reportOf(r *compensations.Report) *Report {
	if r == nil {
		return nil
	}
	var undone []compensations.StepReport
	for _, s := range r.Steps {
		if s.Outcome != "" {
			undone = append(undone, s)
		}
	}
	return &Report{Status: string(r.Status), Cause: causeOf(r.Cause), Outcomes: r.Outcomes, Undone: undoneOf(undone),
		Notes: r.Notes}
}

// hasFailed reports whether a step was not done.
func (o Outcome) hasFailed() bool {
	for _, s := range o.Steps {
		switch protocol.StepState(s.State) {
		case protocol.StepFailed, protocol.RolledBack, protocol.LeftOut, protocol.Canceled:
			return true
		}
	}
	return false
}

// result is the outcome as the protocol wants it. A client that shows no structured content shows
// the text.
func (o Outcome) result() *sdk.CallToolResult {
	if o.instead != nil {
		return o.instead
	}
	text, err := json.Marshal(o)
	if err != nil {
		return failed(fmt.Errorf("result: %w", err))
	}
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: activities.Visible(string(text))}},
		StructuredContent: o, IsError: o.notDone}
}
