package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/session"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

type statusInput struct {
	ofSession
	Request string `json:"request,omitempty" jsonschema:"what became of this request, alone"`
}

type diffInput struct {
	ofSession
	Step string `json:"step,omitempty" jsonschema:"id of a step: with all its outputs"`
}

type planInput struct {
	Steps []map[string]any `json:"steps" jsonschema:"steps as in a task file: uses and with"`
}

func (s *Server) addReadingTools() {
	addTool(s, statusTool(), s.status)
	addTool(s, &sdk.Tool{
		Name: "diff", Title: "What the session has changed",
		Description: "Lists what the session has changed and not undone, the last step last, with the diff where a " +
			"person was shown one. With step: that step, with its outputs.",
		Annotations: reads(),
	}, s.diff)
	addTool(s, &sdk.Tool{
		Name: "plan", Title: "What steps would do",
		Description: "Says what steps would do to the world as it is, with diffs, how each would be undone, and whether " +
			"a person would be asked. Touches nothing. " +
			"Steps cannot refer to the outputs of steps that were done.",
		Annotations: reads(),
	}, s.plan)
}

func statusTool() *sdk.Tool {
	return &sdk.Tool{
		Name: "status", Title: "How the session stands",
		Description: "Says how the session stands: its steps, what waits for a person, its savepoints, its report once " +
			"it has ended. With request: what became of that call.",
		Annotations: reads(),
	}
}

// lookLimit is how long status waits for an earlier request: one that no person is asked about ends
// soon.
const lookLimit = 10 * time.Second

func (s *Server) status(ctx context.Context, _ *sdk.CallToolRequest, in statusInput) (Outcome, error) {
	c, id, err := s.find(ctx, in.Session)
	if err != nil {
		return Outcome{}, err
	}
	if in.Request != "" {
		o, err := s.statusOf(ctx, session.Attach(c, id), in.Request)
		refusal, isRefusal := errors.AsType[session.Refusal](err)
		hasEnded := isRefusal && refusal.Type == protocol.SessionOver || err == nil && o.Phase == string(protocol.Closed)
		if !hasEnded {
			return o, err
		}
	}
	state, err := standing(ctx, c, id)
	if err != nil {
		return Outcome{}, err
	}
	return s.outcomeOfState(state), nil
}

// statusOf tells what became of a request.
func (s *Server) statusOf(ctx context.Context, of session.Session, request string) (Outcome, error) {
	limited, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	answer, err := of.Await(limited, request)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		state, err := of.State(ctx)
		if err != nil {
			return Outcome{}, err
		}
		o := s.outcomeOfState(state)
		o.Request, o.Pending = request, true
		return o, nil
	}
	return outcomeOf(answer), err
}

// standing reads the state of a session, also of one that has ended.
func standing(ctx context.Context, c *tasks.Client, id string) (protocol.State, error) {
	run, err := c.Describe(ctx, id)
	if err != nil {
		return protocol.State{}, err
	}
	state, _, _, err := c.CurrentState(ctx, run)
	return state, err
}

func (s *Server) outcomeOfState(state protocol.State) Outcome {
	o := Outcome{Phase: string(state.Phase), Cause: causeOf(state.Cause), Omitted: state.Omitted}
	gates := map[string]*Gate{}
	for _, g := range state.Gates {
		gates[g.Step] = gateOf(&g)
	}
	parks := map[string]*Park{}
	for _, p := range state.Parks {
		parks[p.Step] = parkOf(&p)
	}
	for _, v := range state.Steps {
		step := Step{
			ID: v.ID, Action: v.Uses, State: string(v.State), Summary: v.Summary, Error: v.Error, Notes: v.AllNotes(),
			Gate: gates[v.ID], Park: parks[v.ID],
		}
		if !v.Ended.IsZero() {
			step.Seconds = v.Took(v.Ended).Seconds()
		}
		if v.Waiting != "" {
			step.Notes = append(step.Notes, v.Waiting)
		}
		o.Steps = append(o.Steps, step)
	}
	if state.Session != nil {
		o.Savepoints, o.Branches = state.Session.Savepoints, branchesOf(state.Session)
	}
	if state.Report != nil {
		o.Report = reportOf(state.Report)
	}
	if step := toResolve(o.Steps); step != nil {
		o.Next = s.adviseResolve(step)
	} else if len(gates) > 0 {
		o.Next = "a step waits for a person"
	}
	return o
}

// diff lists what stands.
func (s *Server) diff(ctx context.Context, _ *sdk.CallToolRequest, in diffInput) (Outcome, error) {
	c, id, err := s.find(ctx, in.Session)
	if err != nil {
		return Outcome{}, err
	}
	run, err := c.Describe(ctx, id)
	if err != nil {
		return Outcome{}, err
	}
	changes, err := c.Changes(ctx, run)
	if err != nil {
		return Outcome{}, err
	}
	var o Outcome
	known := []string{}
	for _, change := range changes {
		known = append(known, change.ID)
		step := Step{ID: change.ID, Action: change.Uses, State: string(change.State), Summary: change.Summary,
			Error: change.Error, Notes: change.AllNotes()}
		if change.Planned != nil {
			step.Plan = new(changeOf(*change.Planned))
		}
		switch {
		case in.Step == change.ID:
			step.Outputs = change.Outputs
			return Outcome{Steps: []Step{step}}, nil
		case in.Step == "" && change.Stands():
			o.Steps = append(o.Steps, step)
		}
	}
	if in.Step != "" {
		return o, Problem{BadParameter, fmt.Sprintf("step: the session has had no step %q; it has had %v", in.Step, known)}
	}
	return o, nil
}

// plan has the workers plan steps against the world as it is.
func (s *Server) plan(ctx context.Context, _ *sdk.CallToolRequest, in planInput) (Outcome, error) {
	c, err := s.connection(ctx)
	if err != nil {
		return Outcome{}, err
	}
	for i, step := range in.Steps {
		if step["id"] == nil {
			step["id"] = fmt.Sprintf("s%d", i+1)
		}
	}
	document, err := planDocument(in.Steps)
	if err != nil {
		return Outcome{}, Problem{BadParameter, err.Error()}
	}
	file, err := s.Check(document)
	if err != nil {
		return Outcome{}, err
	}
	if !c.HasWorker(ctx, s.Queue) {
		return Outcome{}, noWorker(s.Queue)
	}
	planned, err := c.Plan(ctx, file, s.Queue, io.Discard)
	if err != nil {
		return Outcome{}, err
	}
	var o Outcome
	for _, p := range planned.Steps {
		o.Steps = append(o.Steps, plannedStep(p))
	}
	return o, nil
}

// planDocument is the task of steps that an agent asks about. What a session refuses of an agent's
// steps is refused here, too.
func planDocument(steps []map[string]any) (json.RawMessage, error) {
	const name = "plan of an agent"
	raw, err := json.Marshal(steps)
	if err != nil {
		return nil, err
	}
	session, err := json.Marshal(map[string]any{"name": name, "session": map[string]any{}, "steps": []any{}})
	if err != nil {
		return nil, err
	}
	if _, err := (task.Addition{Session: session, Steps: raw}).Parse(); err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{"name": name, "steps": steps})
}

func plannedStep(p protocol.PlannedStep) Step {
	var change Change
	if p.Change != nil {
		change = changeOf(*p.Change)
	}
	change.Asks, change.Refused, change.Unknown = p.Asks, p.Refused, p.Unknown
	return Step{ID: p.ID, Action: p.Uses, State: string(protocol.NotStarted), Plan: &change}
}
