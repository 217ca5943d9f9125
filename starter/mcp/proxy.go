package mcp

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/exactjson"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/session"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// ownPrefix keeps our own tools apart from those of the wrapped server.
const ownPrefix = "unwind_"

const proxyInstructions = `What you do with these tools can be undone, as far as the "unwind/recovery" of each says.
unwind_status lists what you have changed, with the step of each call. Call unwind_savepoint before
you try something, unwind_rollback to go back there, unwind_finish when all is well, unwind_abort to
undo everything.`

// Proxy serves the tools of another server. Those that only read are passed on to it, all others
// are steps of one session, which begins with the first of them; after its end the next one begins.
type Proxy struct {
	*Server

	wrapped Wrapped
	log     io.Writer
	own     []string          // the names of our own tools
	notify  sdk.MethodHandler // sends a notification as it is

	mu  sync.Mutex // held while a session is opened
	now ownSession

	toolsMu sync.Mutex
	theirs  map[string]wrappedTool

	toldMu sync.Mutex
	told   map[*sdk.CallToolRequest]chan *sdk.ProgressNotificationParams // of the steps that are called now
}

// ownSession is the session of a proxy.
type ownSession struct {
	id string
	// The handle, and what tokens are made of, are empty until it is open.
	handle, firstRunID string
	requests           map[string]bool // that were made
}

// NewProxy makes a proxy. The log gets the id of each session.
func NewProxy(ctx context.Context, c Config, w Wrapped, log io.Writer) (*Proxy, error) {
	c.Key = Key(rand.Text() + rand.Text()) // no handle leaves this process
	p := &Proxy{wrapped: w, log: log, told: map[*sdk.CallToolRequest]chan *sdk.ProgressNotificationParams{}}
	p.Server = newServer(c, p.options())
	p.toldOf, p.isFirst, p.endOf = p.channelOf, p.isFirstRequest, p.endOfCall
	p.prefix = ownPrefix
	addOwn(p, statusTool(), p.status)
	addOwn(p, savepointTool(), p.savepoint)
	addOwn(p, rollbackTool(), p.rollback)
	addOwn(p, redoTool(), p.redo)
	addOwn(p, noteTool(), p.note)
	addOwn(p, keepContextTool(), p.keepContext)
	addOwn(p, contextTool(), p.context)
	addOwn(p, resolveTool(), p.resolveCall)
	addOwn(p, finishTool(), p.finish)
	addOwn(p, abortTool(), p.abort)
	p.own = p.tools.sorted()
	if err := p.takeTools(ctx); err != nil {
		return nil, err
	}
	p.server.AddReceivingMiddleware(p.passOn)
	p.server.AddSendingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		p.notify = next
		return next
	})
	p.begin()
	return p, p.serveTasks()
}

// begin names the next session, which opens when it is needed.
func (p *Proxy) begin() {
	p.now = ownSession{id: "session-" + rand.Text(), requests: map[string]bool{}}
	fmt.Fprintf(p.log, "session %s of server %s: it begins with the next call that changes something\n", p.now.id,
		p.wrapped.Name())
}

// addOwn adds a tool of ours, for the session of the proxy.
func addOwn[In any, P interface {
	*In
	setSession(handle string)
}](p *Proxy, t *sdk.Tool, do handler[In]) {
	opens := t.Name == savepointTool().Name // there is nothing to end, roll back or show before the first step
	t.Name = ownPrefix + t.Name
	schema := without(schemaOf[In](), "session")
	t.InputSchema = schema
	addChecked(p.Server, t, schema, func(ctx context.Context, call *sdk.CallToolRequest, in In) (Outcome, error) {
		now, err := p.present(ctx, opens)
		if err != nil {
			return Outcome{}, err
		}
		if now.handle == "" {
			return Outcome{Session: now.id,
				Next: "nothing has been changed: the session begins with the first call that changes something"}, nil
		}
		P(&in).setSession(now.handle)
		o, err := do(ctx, call, in)
		o.Session = now.id
		if o.Phase == string(protocol.Closed) {
			p.leave(now)
		}
		return o, err
	})
}

// stepParams are the parameters of the step that calls a tool.
func (p *Proxy) stepParams(tool string, arguments json.RawMessage) (map[string]any, error) {
	if err := checkExact(arguments); err != nil {
		return nil, err
	}
	if schema := p.tool(tool).schema; schema != nil {
		if _, err := readArguments[map[string]any](schema, arguments); err != nil {
			return nil, err
		}
	}
	escaped, err := escapeAll(arguments)
	return map[string]any{"server": p.wrapped.Name(), "tool": tool, "arguments": escaped}, err
}

// result is the answer as the server has sent it.
func (r Reply) result() (*sdk.CallToolResult, error) {
	if r.Error != nil {
		return nil, r.Error
	}
	return &sdk.CallToolResult{StructuredContent: verbatim(r.Result)}, nil
}

// bare is an answer of ours in place of one of the wrapped server: an error without structured
// content, which would have to follow the schema of that server's tool.
func bare(r *sdk.CallToolResult) *sdk.CallToolResult {
	r.StructuredContent, r.IsError = nil, true
	return r
}

// step makes a call as a step, and answers as the server has, where what it says is what holds.
func (p *Proxy) step(ctx context.Context, call *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	tool := call.Params.Name
	with, err := p.stepParams(tool, call.Params.Arguments)
	if err != nil {
		return bare(failed(err)), nil
	}
	now, err := p.present(ctx, true)
	if err != nil {
		return bare(failed(err)), nil
	}
	step, err := json.Marshal(stepOptions{}.step(p.wrapped.Action(tool).Name, with))
	if err != nil {
		return nil, err
	}
	defer p.listenTo(call)()
	var reply Reply
	isAnswered := false
	look := func(id string, try int) (err error) {
		reply, isAnswered, err = p.wrapped.ReplyTo(activities.NewToken(now.firstRunID, id, max(1, try)))
		return err
	}
	// an undo that waits for a person does not hold up an error
	o, err := p.askFor(ctx, call, onSession{ofSession: ofSession{now.handle}}, p.stepsInTurn(step),
		func(a protocol.Answer) bool {
			return !a.Pending || len(a.Steps) == 1 && a.Steps[0].State != protocol.StepParked &&
				look(a.Steps[0].ID, a.Steps[0].Try) == nil && isAnswered && !reply.Succeeded
		})
	if over, is := errors.AsType[session.Refusal](err); is && over.Type == protocol.SessionOver {
		p.leave(now)
		err = Problem{over.Type,
			fmt.Sprintf("nothing was called: session %s has ended, and `starter show %s` says how; the next call begins another",
				now.id, now.id)}
	}
	if err == nil && o.instead == nil && len(o.Steps) == 1 {
		err = look(o.Steps[0].ID, o.Steps[0].Try)
	}
	switch {
	case err != nil:
		return bare(failed(err)), nil
	case o.instead != nil:
		return o.instead, nil
	}
	return o.resultWith(reply, isAnswered)
}

// resultWith is the result of a call: the reply of the wrapped server where there is one that
// holds.
func (o Outcome) resultWith(r Reply, isAnswered bool) (*sdk.CallToolResult, error) {
	if isAnswered && r.isTrueOf(o) {
		return r.result()
	}
	return bare(o.result()), nil
}

// endOfCall is the end of a call that has become a task.
func (p *Proxy) endOfCall(ctx context.Context, call polledCall, of session.Session, a protocol.Answer) (o Outcome,
	isOver bool, err error) {
	o, isOver, err = p.endOfOwn(ctx, call, of, a)
	if err != nil || len(o.Steps) != 1 || slices.Contains(p.own, call.Tool) {
		o.Session = call.Session
		return o, isOver, err
	}
	firstRunID, err := p.firstRunOf(ctx, call.Session)
	if err != nil {
		return o, false, err
	}
	step := o.Steps[0]
	reply, isAnswered, err := p.wrapped.ReplyTo(activities.NewToken(firstRunID, step.ID, max(1, step.Try)))
	if err != nil || !isOver && (!isAnswered || reply.Succeeded || step.State == string(protocol.StepParked)) {
		return o, false, err
	}
	o.instead, err = o.resultWith(reply, isAnswered)
	return o, true, err
}

// firstRunOf returns the first run of a session, of which the tokens of its steps are made.
func (p *Proxy) firstRunOf(ctx context.Context, id string) (string, error) {
	c, err := p.connection(ctx)
	if err != nil {
		return "", err
	}
	d, err := c.DescribeWorkflowExecution(ctx, id, "")
	return d.GetWorkflowExecutionInfo().GetFirstRunId(), err
}

// isTrueOf reports whether a reply says what became of the step: a call that succeeded may have
// been undone since, because its step failed after it. One that has failed and waits for a decision
// can still succeed.
func (r Reply) isTrueOf(o Outcome) bool {
	return !r.Lost && len(o.Steps) == 1 && r.Succeeded == (o.Steps[0].State == string(protocol.Done)) &&
		o.Steps[0].State != string(protocol.StepParked)
}

// escapeAll reads arguments so that nothing in them is taken for an expression of a task file.
func escapeAll(arguments json.RawMessage) (escaped map[string]any, err error) {
	if err := exactjson.Decode(arguments, &escaped); err != nil {
		return nil, Problem{BadParameter, "the arguments are no JSON object: " + err.Error()}
	}
	return escapeIn(escaped).(map[string]any), nil
}

func escapeIn(value any) any {
	switch v := value.(type) {
	case string:
		return task.Escape(v)
	case []any:
		for i := range v {
			v[i] = escapeIn(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = escapeIn(v[name])
		}
	}
	return value
}

// present returns the present session, and opens it if it must be open.
func (p *Proxy) present(ctx context.Context, mustBeOpen bool) (ownSession, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now.handle != "" || !mustBeOpen {
		return p.now, nil
	}
	err := p.openOwn(ctx, &p.now)
	return p.now, err
}

// isFirstRequest reports whether a request was not made before: to the session of a proxy nobody
// else makes any.
func (p *Proxy) isFirstRequest(request string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	isMade := p.now.requests[request]
	p.now.requests[request] = true
	return !isMade
}

// openOwn opens the session, unless an earlier attempt has.
func (p *Proxy) openOwn(ctx context.Context, now *ownSession) error {
	c, err := p.connection(ctx)
	if err != nil {
		return err
	}
	isOpen, err := exists(ctx, c, now.id)
	if err != nil {
		return err
	}
	if !isOpen {
		document, err := p.documentOf(openInput{Name: "calls of " + p.wrapped.Name()})
		if err != nil {
			return err
		}
		if _, _, err := session.Open(ctx, c, session.Options{ID: now.id, Queue: p.Queue, Request: now.id},
			document); err != nil {
			return err
		}
	}
	if now.firstRunID, err = p.firstRunOf(ctx, now.id); err == nil {
		now.handle = p.Key.handleOf(now.id, c.Namespace)
	}
	return err
}

// leave begins another session after one that has ended.
func (p *Proxy) leave(ended ownSession) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now.id == ended.id {
		p.begin()
	}
}
