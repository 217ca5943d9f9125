package mcp

import (
	"context"
	"crypto/hmac"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/session"
)

// tasksExtension lets a server answer a call with a handle, which the client polls. See
// https://modelcontextprotocol.io/seps/2663-tasks-extension. The SDK does not have it.
const tasksExtension = "io.modelcontextprotocol/tasks"

// pollEvery is how often a client should ask how a task stands.
const pollEvery = 5 * time.Second

// polledCall is a call that waits for a person, and whose client polls. The handle that the client
// gets, the id of a task of the extension, says all of it, so that any server with the same key can
// tell what has become of it.
type polledCall struct {
	Session string    `json:"session"` // id of its workflow
	Request string    `json:"request"`
	Tool    string    `json:"tool"`
	Made    time.Time `json:"made"`
	// Asked is the digest of a gate about which the client's user was asked before, and has decided
	// nothing.
	Asked activities.Digest `json:"asked,omitempty"`
}

func (p polledCall) handle(key Key, namespace string) string {
	raw, _ := json.Marshal(p) // plain data
	text := base64.RawURLEncoding.EncodeToString(raw)
	return text + "." + key.sign("task", namespace, text)
}

func readPolledCall(key Key, namespace, handle string) (p polledCall, err error) {
	text, seal, _ := strings.Cut(handle, ".")
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || !hmac.Equal([]byte(seal), []byte(key.sign("task", namespace, text))) ||
		json.Unmarshal(raw, &p) != nil {
		return p, Problem{BadHandle,
			"taskId: this server has made no such task; give the one that it returned, whole and unchanged"}
	}
	return p, nil
}

// taskState is the extension's Task, with what its status adds to it.
type taskState struct {
	sdk.ResultBase

	ResultType    string              `json:"resultType"`
	TaskID        string              `json:"taskId"`
	Status        string              `json:"status"`
	StatusMessage string              `json:"statusMessage,omitempty"`
	CreatedAt     time.Time           `json:"createdAt"`
	LastUpdatedAt time.Time           `json:"lastUpdatedAt"`
	TTL           *int64              `json:"ttlMs"` // none: it lasts as long as its session is known
	PollInterval  int64               `json:"pollIntervalMs,omitempty"`
	InputRequests sdk.InputRequestMap `json:"inputRequests,omitempty"`
	Result        any                 `json:"result,omitempty"`
	Error         *jsonrpc.Error      `json:"error,omitempty"`
}

// Values of taskState.Status.
const (
	taskWorking       = "working"
	taskInputRequired = "input_required"
	taskCompleted     = "completed"
	taskFailed        = "failed"
)

type (
	taskParams struct {
		sdk.ParamsBase

		TaskID string `json:"taskId"`
	}
	taskUpdateParams struct {
		taskParams

		InputResponses sdk.InputResponseMap `json:"inputResponses"`
	}
	taskAcknowledged struct {
		sdk.ResultBase

		ResultType string `json:"resultType"`
	}
)

// serveTasks answers what clients ask about their tasks. It is called last: what other middleware
// makes of a result, it leaves.
func (s *Server) serveTasks() error {
	for _, err := range []error{
		sdk.AddReceivingCustomMethod(s.server, "tasks/get", s.getTask),
		sdk.AddReceivingCustomMethod(s.server, "tasks/update", s.updateTask),
		sdk.AddReceivingCustomMethod(s.server, "tasks/cancel", s.cancelTask),
	} {
		if err != nil {
			return err
		}
	}
	s.server.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, r sdk.Request) (sdk.Result, error) {
			result, err := next(ctx, method, r)
			if made, is := result.(*sdk.CallToolResult); is && err == nil {
				if task, is := made.StructuredContent.(*taskState); is {
					return task, nil
				}
			}
			return result, err
		}
	})
	return nil
}

// offerTasks is what a server says of itself for the extension.
func offerTasks(c *sdk.ServerCapabilities) *sdk.ServerCapabilities {
	c.AddExtension(tasksExtension, nil)
	return c
}

// takesTasks reports whether the client of a request can be answered with a task. It says so in
// each request: what it has said when it connected does not count.
func takesTasks(meta sdk.Meta) bool {
	can, _ := meta[sdk.MetaKeyClientCapabilities].(map[string]any)
	extensions, _ := can["extensions"].(map[string]any)
	_, takes := extensions[tasksExtension]
	return takes
}

// answerLater answers a call that waits for a person with a task.
func (s *Server) answerLater(c *tasks.Client, p polledCall, pending protocol.Answer) Outcome {
	p.Request, p.Made = pending.Request, time.Now().UTC().Truncate(time.Millisecond)
	task := s.taskOf(p.handle(s.Key, c.Namespace), p)
	task.ResultType, task.StatusMessage = "task", whatWaits(pending)
	return Outcome{instead: &sdk.CallToolResult{StructuredContent: task}}
}

// taskOf is a task that goes on.
func (s *Server) taskOf(handle string, p polledCall) *taskState {
	return &taskState{
		ResultType: "complete", TaskID: handle, Status: taskWorking, CreatedAt: p.Made, LastUpdatedAt: p.Made,
		PollInterval: pollEvery.Milliseconds(),
	}
}

// findTask returns what a client's request is about.
func (s *Server) findTask(ctx context.Context, about *taskParams) (c *tasks.Client, p polledCall, err error) {
	if !takesTasks(about.Meta) {
		return nil, p, &jsonrpc.Error{
			Code:    sdk.CodeMissingRequiredClientCapabilities,
			Message: "declare the extension " + tasksExtension + " in the capabilities of this request",
			// The SDK's type would ask for roots, too.
			Data: json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + tasksExtension + `":{}}}}`),
		}
	}
	if c, err = s.connection(ctx); err == nil {
		p, err = readPolledCall(s.Key, c.Namespace, about.TaskID)
	}
	return c, p, asRPCError(err)
}

// asRPCError is a problem where no tool's result can say it.
func asRPCError(err error) error {
	if err == nil {
		return nil
	}
	p := explain(err)
	code := int64(jsonrpc.CodeInternalError)
	if p.Type == BadHandle {
		code = jsonrpc.CodeInvalidParams
	}
	return &jsonrpc.Error{Code: code, Message: p.Error()}
}

// getTask tells how a task stands.
func (s *Server) getTask(ctx context.Context, client *sdk.ServerSession, about *taskParams) (*taskState, error) {
	c, p, err := s.findTask(ctx, about)
	if err != nil {
		return nil, err
	}
	of := session.Attach(c, p.Session)
	answer, err := of.Answer(ctx, p.Request)
	if err != nil {
		return nil, asRPCError(err)
	}
	task := s.taskOf(about.TaskID, p)
	outcome, isOver, err := s.endOf(ctx, p, of, answer)
	switch failure, isRPC := err.(*jsonrpc.Error); { //nolint:errorlint // nobody wraps it: a wrapped server has sent it
	case isRPC:
		task.Status, task.Error = taskFailed, failure
	case err != nil:
		return nil, asRPCError(err)
	case isOver:
		task.Status, task.Result = taskCompleted, resultIn(outcome)
	default:
		task.StatusMessage = whatWaits(answer)
		if task.InputRequests = s.questionsOf(p, callOf(client, about.Meta), answer); len(task.InputRequests) > 0 {
			task.Status = taskInputRequired
		}
		return task, nil
	}
	task.PollInterval = 0
	task.LastUpdatedAt = lastChange(ctx, of, p, answer)
	return task, nil
}

// endOfOwn is the end of a call of one of our own tools; isOver is false while a person must decide
// about it.
func (s *Server) endOfOwn(ctx context.Context, p polledCall, of session.Session, a protocol.Answer) (o Outcome,
	isOver bool, err error) {
	o = outcomeOfRequest(a)
	if a.Pending {
		o.Next = s.adviseAgent(ctx, of, a)
	}
	if p.Tool == shellTool {
		o.tellShell()
	}
	return o, !a.Pending || o.Next != "", nil
}

// resultIn is the result in a task.
func resultIn(o Outcome) any {
	r := o.result()
	if raw, is := r.StructuredContent.(verbatim); is {
		return json.RawMessage(raw)
	}
	return r
}

// lastChange is when the last step of a request ended, as far as the session knows.
func lastChange(ctx context.Context, of session.Session, p polledCall, a protocol.Answer) time.Time {
	last := p.Made
	state, err := of.State(ctx)
	if err != nil {
		return last
	}
	for _, step := range a.Steps {
		for _, v := range state.Steps {
			if v.ID == step.ID && v.Ended.After(last) {
				last = v.Ended.UTC()
			}
		}
	}
	return last
}

// callOf is a call by the client of a request about a task.
func callOf(client *sdk.ServerSession, meta sdk.Meta) *sdk.CallToolRequest {
	return &sdk.CallToolRequest{Session: client, Params: &sdk.CallToolParamsRaw{Meta: meta}}
}

// questionsOf asks the client's user about the gates of a request.
func (s *Server) questionsOf(p polledCall, call *sdk.CallToolRequest, a protocol.Answer) sdk.InputRequestMap {
	all := sdk.InputRequestMap{}
	if !s.mayAsk(call) {
		return all
	}
	for _, step := range a.Steps {
		if step.Gate != nil && !step.Gate.Signed && step.Gate.Digest != p.Asked {
			all[questionID(step)] = questionAbout(step)
		}
	}
	return all
}

// questionID names a question once in the life of a task.
func questionID(step protocol.StepAnswer) string {
	return approval + " of " + step.ID + " " + string(step.Gate.Digest)
}

// updateTask takes what a client's user has decided. What answers no question that is open is
// ignored, as the extension has it.
func (s *Server) updateTask(ctx context.Context, client *sdk.ServerSession, about *taskUpdateParams) (*taskAcknowledged,
	error) {
	return s.atGates(ctx, &about.taskParams, func(c *tasks.Client, p polledCall, step protocol.StepAnswer) error {
		call := callOf(client, about.Meta)
		answer, isAnswered := about.InputResponses[questionID(step)]
		if !isAnswered || !s.mayAsk(call) {
			return nil
		}
		call.Params.InputResponses = sdk.InputResponseMap{approval: answer}
		return s.decide(ctx, c, p.Session, call, asked{p.Request, step.ID, step.Gate.Digest})
	})
}

// cancelTask rejects what waits for an approval: an agent may do without what it has asked for.
// Where a rejection counts only if a person has signed it, it takes back its own step instead. What
// is under way ends as it would have.
func (s *Server) cancelTask(ctx context.Context, _ *sdk.ServerSession, about *taskParams) (*taskAcknowledged, error) {
	const why = "it canceled its call"
	return s.atGates(ctx, about, func(c *tasks.Client, p polledCall, step protocol.StepAnswer) error {
		if step.Gate.Signed {
			_, err := session.Attach(c, p.Session).Rollback(ctx, "", protocol.SessionRollback{Step: step.ID, Why: why})
			return err
		}
		run, err := c.Describe(ctx, p.Session)
		if err == nil {
			_, err = c.Reject(ctx, run,
				protocol.Decision{Step: step.ID, Digest: step.Gate.Digest, Who: "the agent", Why: why})
		}
		return err
	})
}

// atGates does something about each step of a task that waits for an approval.
func (s *Server) atGates(ctx context.Context, about *taskParams,
	do func(*tasks.Client, polledCall, protocol.StepAnswer) error) (*taskAcknowledged, error) {
	c, p, err := s.findTask(ctx, about)
	if err != nil {
		return nil, err
	}
	answer, err := session.Attach(c, p.Session).Answer(ctx, p.Request)
	if err != nil {
		return nil, asRPCError(err)
	}
	for _, step := range answer.Steps {
		if step.Gate == nil {
			continue
		}
		if err := do(c, p, step); err != nil {
			return nil, asRPCError(err)
		}
	}
	return &taskAcknowledged{ResultType: "complete"}, nil
}
