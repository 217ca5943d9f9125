package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/starter/apps"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/workflows/environment"
)

// ofApp is the argument that names an environment: an application and what belongs to it.
type ofApp struct {
	App string `json:"app_id" jsonschema:"the name of the environment"`
}

type ofCheckpoint struct {
	ofApp
	Checkpoint string `json:"checkpoint_id" jsonschema:"the id of a checkpoint, as list_checkpoints has it"`
}

type createCheckpointInput struct {
	ofApp
	Notes   string `json:"notes,omitempty" jsonschema:"what people should know about it, at most 500 bytes"`
	Pinned  bool   `json:"pinned,omitempty" jsonschema:"true: it is kept until it is unpinned, whatever the retention says"`
	Request string `json:"request,omitempty" jsonschema:"id of your own for this call. Repeat a call whose answer you missed with the same id: it is carried out once"`
}

type rollbackAppInput struct {
	ofCheckpoint
	Request string `json:"request,omitempty" jsonschema:"id of your own for this call. Repeat a call whose answer you missed with the same id: it is carried out once"`
}

// DeletedCheckpoint is what delete_checkpoint answers.
type DeletedCheckpoint struct {
	Deleted    bool   `json:"deleted"`
	Checkpoint string `json:"checkpoint_id"`
}

// addEnvironments adds the tools for the environments that the agent may use, if there are any.
func (s *Server) addEnvironments() {
	if len(s.Environments) == 0 {
		return
	}
	which := "Environments: " + strings.Join(s.Environments, ", ") + "."
	addEnvironmentTool(s, &sdk.Tool{
		Name: "create_checkpoint", Title: "Take a checkpoint of an environment",
		Description: "Keeps code, files, containers and databases of an environment together, at one moment, before " +
			"something risky. What uses them is stopped for that moment. " + which,
		Annotations: changes(additive, idempotent),
	}, s.createCheckpoint)
	addEnvironmentTool(s, &sdk.Tool{
		Name: "list_checkpoints", Title: "List the checkpoints of an environment",
		Description: "Lists the checkpoints of an environment, the newest first, with what they take and which are kept. " +
			which,
		Annotations: reads(),
	}, s.listCheckpoints)
	addEnvironmentTool(s, &sdk.Tool{
		Name: "rollback_app", Title: "Put an environment back to a checkpoint",
		Description: "Puts all parts of an environment back to a checkpoint, exactly, and takes a safety checkpoint of " +
			"what was there before: roll back to that one to go forward again. If a stage fails, everything is as " +
			"before. " + which,
		Annotations: changes(destructive, idempotent),
	}, s.rollbackApp)
	addEnvironmentTool(s, &sdk.Tool{
		Name: "pin_checkpoint", Title: "Keep a checkpoint",
		Description: "Keeps a checkpoint whatever the retention says, until a person unpins it. " + which,
		Annotations: changes(additive, idempotent),
	}, s.pinCheckpoint)
	addEnvironmentTool(s, &sdk.Tool{
		Name: "delete_checkpoint", Title: "Delete a checkpoint",
		Description: "Deletes a checkpoint for good. One that is pinned is refused. " + which,
		Annotations: changes(destructive, idempotent),
	}, s.deleteCheckpoint)
}

// appCall is a call of a tool about an environment.
type appCall struct {
	*tasks.Client

	// tell tells the agent how far it has come, if it has asked for that.
	tell func(done int, text string)
}

// addEnvironmentTool adds a tool with a result of its own.
func addEnvironmentTool[In, Out any](s *Server, t *sdk.Tool, do func(context.Context, appCall, In) (Out, error)) {
	schema := schemaOf[In]()
	checked, err := schema.Resolve(nil)
	if err != nil {
		panic(fmt.Sprintf("arguments of tool %s: %v", t.Name, err)) // a mistake in the source, found by any test
	}
	t.InputSchema, t.OutputSchema = schema, resultSchema[Out]()
	s.tools.set(t.Name, true)
	s.server.AddTool(t, func(ctx context.Context, call *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		in, err := readArguments[In](checked, call.Params.Arguments)
		if err != nil {
			return failed(err), nil
		}
		client, err := s.connection(ctx)
		if err != nil {
			return failed(err), nil
		}
		out, err := do(ctx, appCall{client, func(done int, text string) {
			if token := call.Params.GetProgressToken(); token != nil {
				_ = call.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ // a client that is gone ends ctx
					ProgressToken: token, Progress: float64(done), Message: text})
			}
		}}, in)
		if err != nil {
			return failed(err), nil
		}
		text, err := json.Marshal(out)
		if err != nil {
			return failed(fmt.Errorf("result: %w", err)), nil
		}
		return &sdk.CallToolResult{
			Content: []sdk.Content{&sdk.TextContent{Text: activities.Visible(string(text))}}, StructuredContent: out,
		}, nil
	})
}

// resultSchema is the schema of a result, or of the problem in its place.
func resultSchema[Out any]() *jsonschema.Schema {
	s := schemaOf[Out]()
	s.Required, s.AdditionalProperties = nil, nil
	return s
}

// checkApp refuses an environment that the agent was not given.
func (s *Server) checkApp(name string) error {
	if !slices.Contains(s.Environments, name) {
		return Problem{BadParameter, fmt.Sprintf("app_id: there is no environment %q for you; you may use %s", name,
			strings.Join(s.Environments, ", "))}
	}
	return nil
}

func (s *Server) createCheckpoint(ctx context.Context, c appCall, in createCheckpointInput) (apps.Checkpoint,
	error) {
	if err := s.checkApp(in.App); err != nil {
		return apps.Checkpoint{}, err
	}
	var taken environment.Checkpoint
	err := c.AskEnvironment(ctx, in.App, environment.UpdateCheckpoint, &taken, environment.CheckpointRequest{
		ID: apps.CheckpointID(in.App, "", in.Request), Trigger: environment.Agent, Notes: in.Notes, Pinned: in.Pinned,
		Who: agentName,
	})
	a := apps.CheckpointOf(taken)
	a.Next = fmt.Sprintf("rollback_app(app_id=%q, checkpoint_id=%q) restores this state, and keeps the one before it",
		in.App, taken.ID)
	return a, err
}

// agentName stands for whoever uses these tools.
const agentName = "an agent, over MCP"

func (s *Server) listCheckpoints(ctx context.Context, c appCall, in ofApp) (apps.Checkpoints, error) {
	if err := s.checkApp(in.App); err != nil {
		return apps.Checkpoints{}, err
	}
	v, err := c.Environment(ctx, in.App)
	return apps.CheckpointsOf(v), err
}

func (s *Server) rollbackApp(ctx context.Context, c appCall, in rollbackAppInput) (apps.RolledBack, error) {
	if err := s.checkApp(in.App); err != nil {
		return apps.RolledBack{}, err
	}
	stages := 0
	done, err := c.RollBackEnvironment(ctx, in.App, environment.RollbackRequest{
		To: in.Checkpoint, Safety: apps.CheckpointID(in.App, in.Checkpoint, in.Request), Who: agentName,
	}, func(p environment.Passed) {
		stages++
		c.tell(stages, activities.Visible(fmt.Sprintf("%s: %s", p.Stage, p.Notes)))
	})
	back := apps.RolledBackOf(done)
	back.Next = fmt.Sprintf("rollback_app(app_id=%q, checkpoint_id=%q) goes forward again", in.App, done.Safety.ID)
	return back, err
}

func (s *Server) pinCheckpoint(ctx context.Context, c appCall, in ofCheckpoint) (apps.Checkpoint, error) {
	if err := s.checkApp(in.App); err != nil {
		return apps.Checkpoint{}, err
	}
	var pinned environment.Checkpoint
	err := c.AskEnvironment(ctx, in.App, environment.UpdatePin, &pinned,
		environment.PinRequest{ID: in.Checkpoint, Pinned: true})
	return apps.CheckpointOf(pinned), err
}

func (s *Server) deleteCheckpoint(ctx context.Context, c appCall, in ofCheckpoint) (DeletedCheckpoint, error) {
	if err := s.checkApp(in.App); err != nil {
		return DeletedCheckpoint{}, err
	}
	err := c.AskEnvironment(ctx, in.App, environment.UpdateDelete, nil, in.Checkpoint)
	return DeletedCheckpoint{err == nil, in.Checkpoint}, err
}
