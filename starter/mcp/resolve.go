package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/session"
)

// resolveInput is the agent's decision about a step that has failed.
type resolveInput struct {
	onSession
	Step   string            `json:"step" jsonschema:"id of the step that has failed"`
	Digest activities.Digest `json:"digest" jsonschema:"digest of its park, as you were shown it: a later failure has another"`
	Do     string            `json:"do" jsonschema:"retry runs it again, skip leaves it out with what needs it, unwind undoes the whole session"`
	With   map[string]any    `json:"with,omitempty" jsonschema:"all parameters of the step, instead of those it had; for retry"`
	Why    string            `json:"why,omitempty" jsonschema:"reason, kept in the report"`
}

func resolveTool() *sdk.Tool {
	return &sdk.Tool{
		Name: "resolve", Title: "Decide about a step that has failed",
		Description: "Decides about a step with on_failure: ask that has failed, was undone and waits: retry, skip or " +
			"unwind. You may decide if park of the step " +
			"has a digest. Approvals, and undos that wait, are always for a person to decide.",
		Annotations: changes(destructive, notIdempotent),
	}
}

func (s *Server) resolve(ctx context.Context, call *sdk.CallToolRequest, in resolveInput) (Outcome, error) {
	r := protocol.StepResolution{Step: in.Step, Digest: in.Digest, Do: compensations.Do(in.Do), Why: in.Why}
	if in.With != nil {
		with, err := json.Marshal(in.With)
		if err != nil {
			return Outcome{}, Problem{BadParameter, "with: " + err.Error()}
		}
		r.With = with
	}
	o, err := s.ask(ctx, call, in.onSession,
		func(ctx context.Context, of session.Session, request string) (protocol.Answer, error) {
			return of.Resolve(ctx, request, r)
		})
	if r.Do != compensations.Retry {
		o.notDone = false // it was asked to leave the step undone
	}
	return o, err
}

// resolveCallInput is that of a proxy, whose steps are calls.
type resolveCallInput struct {
	onSession
	Step      string            `json:"step" jsonschema:"id of the call that has failed"`
	Digest    activities.Digest `json:"digest" jsonschema:"digest of its park, as you were shown it: a later failure has another"`
	Do        string            `json:"do" jsonschema:"retry makes it again, skip leaves it out, unwind undoes the whole session"`
	Arguments map[string]any    `json:"arguments,omitempty" jsonschema:"all arguments of the call, instead of those it had; for retry"`
	Why       string            `json:"why,omitempty" jsonschema:"reason, kept in the report"`
}

// resolveCall decides about a call that has failed.
func (p *Proxy) resolveCall(ctx context.Context, call *sdk.CallToolRequest, in resolveCallInput) (Outcome, error) {
	r := resolveInput{onSession: in.onSession, Step: in.Step, Digest: in.Digest, Do: in.Do, Why: in.Why}
	if in.Arguments == nil {
		return p.resolve(ctx, call, r)
	}
	tool, err := p.toolOf(ctx, in.Session, in.Step)
	if err != nil {
		return Outcome{}, err
	}
	var sent struct{ Arguments json.RawMessage } // in has read its numbers, and may have rounded them
	if err := json.Unmarshal(call.Params.Arguments, &sent); err != nil {
		return Outcome{}, err
	}
	if r.With, err = p.stepParams(tool, sent.Arguments); err != nil {
		return Outcome{}, err
	}
	return p.resolve(ctx, call, r)
}

// toolOf returns the tool that a step which has failed has called; of any other nothing, and the
// session refuses to resolve it.
func (p *Proxy) toolOf(ctx context.Context, handle, step string) (string, error) {
	o, err := p.status(ctx, nil, statusInput{ofSession: ofSession{handle}})
	if err != nil {
		return "", err
	}
	var with struct{ Tool string }
	for _, s := range o.Steps {
		if s.ID == step && s.Park != nil {
			err := json.Unmarshal(s.Park.With, &with)
			return with.Tool, err
		}
	}
	return "", nil
}

// toResolve returns the step that the agent may decide about; nil if there is none.
func toResolve(steps []Step) *Step {
	for i := range steps {
		if steps[i].Park != nil && steps[i].Park.Digest != "" {
			return &steps[i]
		}
	}
	return nil
}

// adviseAgent says what the agent may decide itself where a request waits; empty if that is for a
// person.
func (s *Server) adviseAgent(ctx context.Context, of session.Session, pending protocol.Answer) string {
	step := toResolve(outcomeOf(pending).Steps)
	if step == nil && len(pending.WaitsFor) > 0 {
		if state, err := of.State(ctx); err == nil {
			step = toResolve(s.outcomeOfState(state).Steps)
		}
	}
	if step == nil {
		return ""
	}
	return s.adviseResolve(step)
}

// adviseResolve says how to decide about a step.
func (s *Server) adviseResolve(step *Step) string {
	return fmt.Sprintf("step %s has failed, and you may decide: call %s with its digest, %s, and do: %s", step.ID,
		s.prefix+"resolve", step.Park.Digest,
		strings.Join(step.Park.Ways, " or "))
}
