package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/session"
)

// actionInput are the arguments of an action's tool. With is that of a task file: the session
// checks it, and what it refers to.
type actionInput struct {
	onSession
	stepOptions
	With map[string]any `json:"with,omitempty" jsonschema:"parameters of the action; a text may refer to what an earlier step has returned: ${{ steps.ID.outputs.NAME }}"`
}

// stepOptions are what an agent may say of one step beside its parameters.
type stepOptions struct {
	ID        string `json:"id,omitempty" jsonschema:"short name of the step, for rollback and references; each is used once. Defaults to s1, s2 and so on"`
	Timeout   string `json:"timeout,omitempty" jsonschema:"how long an attempt may take, as in 30s. Defaults to 5m"`
	OnFailure string `json:"on_failure,omitempty" jsonschema:"what happens if it fails: rollback_step undoes it alone, continue leaves it as it is, unwind undoes the whole session, ask undoes it and has a person decide whether to retry, correct or skip it. Defaults to what the session says"`
	Again     bool   `json:"again,omitempty" jsonschema:"do it although a step that is done has the same purpose, such as a second payment of the same amount to the same customer"`
	Gate      string `json:"gate,omitempty" jsonschema:"ask has a person approve the step, also where its risk does not demand it"`
}

// step is a step as in a task file.
func (o stepOptions) step(uses string, with map[string]any) map[string]any {
	step := map[string]any{"id": o.ID, "timeout": o.Timeout, "on_failure": o.OnFailure, "gate": o.Gate, "uses": uses}
	dropEmpty(step)
	if o.Again {
		step["again"] = true
	}
	if with != nil {
		step["with"] = with
	}
	return step
}

type stepsInput struct {
	onSession
	Steps []map[string]any `json:"steps" jsonschema:"steps as in a task file: uses and with, and if need be id, name, needs, check, timeout, retry, on, on_failure, savepoint, again, and gate: ask"`
}

// addActions adds a tool for each action of the catalog, and one for several steps at once.
func (s *Server) addActions() error {
	for _, spec := range s.Specs {
		tool, err := toolOf(spec)
		if err != nil {
			return err
		}
		if s.tools.has(tool.Name) {
			return fmt.Errorf("action %s: there is another tool %s already; rename the action", spec.Name, tool.Name)
		}
		addTool(s, tool, func(ctx context.Context, call *sdk.CallToolRequest, in actionInput) (Outcome, error) {
			return s.run(ctx, call, in.onSession, in.step(spec.Name, in.With))
		})
	}
	addTool(s, &sdk.Tool{
		Name: "steps", Title: "Run several steps",
		Description: "Runs up to 100 steps, as in a task file: [{uses: file.write, with: {...}}, ...]. A step follows " +
			"those above it unless it has needs: a list of ids. " +
			"If one fails, it is undone alone and those that need it are left out. Actions: " +
			strings.Join(s.actionNames(), ", ") + ".",
		Annotations: changes(destructive, notIdempotent),
	}, func(ctx context.Context, call *sdk.CallToolRequest, in stepsInput) (Outcome, error) {
		return s.run(ctx, call, in.onSession, in.Steps...)
	})
	return nil
}

func (s *Server) actionNames() []string {
	var all []string
	for _, spec := range s.Specs {
		all = append(all, spec.Name)
	}
	return all
}

// run adds steps to a session.
func (s *Server) run(ctx context.Context, call *sdk.CallToolRequest, on onSession, steps ...map[string]any) (Outcome,
	error) {
	var raw []json.RawMessage
	for i, step := range steps {
		text, err := json.Marshal(step)
		if err != nil {
			return Outcome{}, Problem{BadParameter, fmt.Sprintf("%s: %v", stepField(i, step), err)}
		}
		raw = append(raw, text)
	}
	return s.ask(ctx, call, on, s.stepsInTurn(raw...))
}

// stepField is what a step is called in a message, as in those about a task file: steps.configure,
// or steps[2] where it has no id.
func stepField(i int, step map[string]any) string {
	if id, _ := step["id"].(string); id != "" {
		return "steps." + id
	}
	return fmt.Sprintf("steps[%d]", i)
}

// stepsInTurn adds steps to a session when there is room for another request: an agent may make
// many calls at once.
func (s *Server) stepsInTurn(steps ...json.RawMessage) request {
	return func(ctx context.Context, of session.Session, id string) (protocol.Answer, error) {
		release, err := s.stepping.Take(ctx, of.ID())
		if err != nil {
			return protocol.Answer{}, errNotSent
		}
		defer release()
		return of.Step(ctx, id, steps...)
	}
}

// errNotSent is the error of a call that its client cancelled before it was carried out.
var errNotSent = Problem{Interrupted, "the call was cancelled before it was carried out: nothing was touched"}

// toolOf describes an action as a tool.
func toolOf(spec activities.Spec) (*sdk.Tool, error) {
	params := &jsonschema.Schema{Type: "object"}
	if len(spec.Params) > 0 {
		if err := json.Unmarshal(spec.Params, params); err != nil {
			return nil, fmt.Errorf("parameters of %s: %w", spec.Name, err)
		}
	}
	input := schemaOf[actionInput]()
	params.Description = input.Properties["with"].Description
	input.Properties["with"] = params
	annotations := changes(destructive, notIdempotent)
	switch {
	case spec.ReadOnly:
		annotations = reads()
	case spec.Keys != nil && len(spec.Keys) == 0: // it makes something new
		annotations = changes(additive, notIdempotent)
	}
	return &sdk.Tool{
		Name: toolName(spec.Name), Title: spec.Name, Description: describe(spec), InputSchema: input,
		Annotations: annotations,
		Meta:        sdk.Meta{recoveryMeta: recoveryOf(spec, "")},
	}, nil
}

// recoveryMeta is where a tool says it.
const recoveryMeta = "unwind/recovery"

// recovery says to a program what describe says to an agent.
type recovery struct {
	// Reversible is restored (put back, but for what Undo names), compensated (offset by another
	// operation), none or read-only.
	Reversible string `json:"reversible"`
	// Tool undoes a step, and Handle names the argument that says which.
	Tool   string `json:"tool,omitempty"`
	Handle string `json:"handle,omitempty"`
	// Undo says how, and what does not come back.
	Undo string `json:"undo,omitempty"`
}

// recoveryOf describes an action; prefix is that of our own tools' names.
func recoveryOf(spec activities.Spec, prefix string) recovery {
	r := recovery{Reversible: "restored", Tool: prefix + "rollback", Handle: "step", Undo: spec.Undo}
	switch spec.Strategy {
	case activities.Compensation:
		r.Reversible = "compensated"
	case activities.Irreversible:
		r.Reversible, r.Tool, r.Handle = "none", "", ""
	case activities.NoUndo:
		r.Reversible, r.Tool, r.Handle = "read-only", "", ""
	}
	return r
}

// describe says what an action does, what undoing it brings back, and what it returns.
func describe(spec activities.Spec) string {
	var b strings.Builder
	b.WriteString(sentence(spec.Summary))
	undo := sentence(spec.Undo)
	switch {
	case spec.ReadOnly || spec.Strategy == activities.NoUndo:
		b.WriteString(" It changes nothing, so there is nothing to undo.")
	case spec.Strategy == activities.Irreversible:
		b.WriteString(" It cannot be undone: " + undo)
	case spec.Strategy == activities.Compensation:
		b.WriteString(" Undo, by another operation that offsets it: " + undo)
	default:
		b.WriteString(" Undo: " + undo)
	}
	if spec.Risk == activities.High {
		b.WriteString(" A person is asked first.")
	}
	if len(spec.Outputs) > 0 {
		b.WriteString(" Outputs:")
		for i, name := range slices.Sorted(maps.Keys(spec.Outputs)) {
			if i > 0 {
				b.WriteString(";")
			}
			b.WriteString(" " + name + ", " + spec.Outputs[name])
		}
		b.WriteString(".")
	}
	return b.String()
}

// sentence ends a text with a full stop.
func sentence(text string) string {
	text = strings.TrimSpace(text)
	if text == "" || strings.HasSuffix(text, ".") {
		return text
	}
	return text + "."
}

// schemaOf is the schema of a tool's arguments.
func schemaOf[T any]() *jsonschema.Schema {
	s, err := jsonschema.For[T](nil)
	if err != nil {
		panic(err) // a mistake in the source, found by any test
	}
	return s
}

// without is a schema that lacks some of its properties.
func without(s *jsonschema.Schema, names ...string) *jsonschema.Schema {
	for _, n := range names {
		delete(s.Properties, n)
	}
	s.Required = slices.DeleteFunc(s.Required, func(n string) bool { return slices.Contains(names, n) })
	s.PropertyOrder = slices.DeleteFunc(s.PropertyOrder, func(n string) bool { return slices.Contains(names, n) })
	return s
}
