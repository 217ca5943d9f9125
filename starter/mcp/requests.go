package mcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.temporal.io/api/serviceerror"

	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/session"
)

// ofSession is the argument that names a session.
type ofSession struct {
	Session string `json:"session" jsonschema:"handle that open returned"`
}

func (s *ofSession) setSession(handle string) { s.Session = handle }

// onSession are the arguments of every request to a session.
type onSession struct {
	ofSession
	Request string `json:"request,omitempty" jsonschema:"id of your own for this call. Repeat a call whose answer you missed with the same id: it is carried out once"`
}

type openInput struct {
	Name      string `json:"name" jsonschema:"what you are going to do, in one line"`
	Agent     string `json:"agent,omitempty" jsonschema:"who you are; shown to people, and searchable"`
	Request   string `json:"request,omitempty" jsonschema:"random text of your own: a repeated open with the same one returns the same session"`
	Timeout   string `json:"timeout,omitempty" jsonschema:"of the whole session, as in 4h; then it unwinds"`
	Idle      string `json:"idle,omitempty" jsonschema:"how long you may be silent, as in 30m. Defaults to 1h"`
	Gone      string `json:"gone,omitempty" jsonschema:"what happens then: ask alerts a person and waits, unwind undoes everything. Defaults to ask"`
	OnFailure string `json:"on_failure,omitempty" jsonschema:"what happens when a step fails: rollback_step undoes it alone, continue leaves it as it is, unwind undoes everything. Defaults to rollback_step"`
}

type savepointInput struct {
	onSession
	Name string `json:"name" jsonschema:"short name of this place: a letter, then letters, digits, _ and -"`
}

type rollbackInput struct {
	onSession
	To   string `json:"to,omitempty" jsonschema:"savepoint: everything since is undone"`
	Step string `json:"step,omitempty" jsonschema:"step that is undone, with all that builds on it; instead of to"`
	Why  string `json:"why,omitempty" jsonschema:"reason, kept in the report"`

	Branch string   `json:"branch,omitempty" jsonschema:"keeps what is undone since a savepoint under this name: status lists the branches, and redo with a branch does it again"`
	Score  *float64 `json:"score,omitempty" jsonschema:"how good the branch is, to compare it with others"`
	Note   string   `json:"note,omitempty" jsonschema:"what there is to know about the branch"`
}

type noteInput struct {
	onSession
	Text string `json:"text" jsonschema:"what people should know, such as why you do what comes next: at most 1000 bytes"`
}

type abortInput struct {
	onSession
	Why string `json:"why,omitempty" jsonschema:"reason, kept in the report"`
}

func (s *Server) addSessionTools() {
	open := &sdk.Tool{
		Name: "open", Title: "Open a session",
		Description: "Opens a session and returns its handle, which every other tool takes. Keep it to yourself: whoever " +
			"has it can use the session.",
		Annotations: changes(additive, notIdempotent),
	}
	if s.Document != nil {
		open.InputSchema = without(schemaOf[openInput](), "timeout", "idle", "gone", "on_failure")
	}
	addTool(s, open, s.open)
	addTool(s, savepointTool(), s.savepoint)
	addTool(s, rollbackTool(), s.rollback)
	addTool(s, redoTool(), s.redo)
	addTool(s, noteTool(), s.note)
	s.addContextTools()
	addTool(s, resolveTool(), s.resolve)
	addTool(s, finishTool(), s.finish)
	addTool(s, abortTool(), s.abort)
}

func savepointTool() *sdk.Tool {
	return &sdk.Tool{
		Name: "savepoint", Title: "Mark a place to go back to",
		Description: "Gives a name to the place after everything that is done, for rollback.",
		Annotations: changes(additive, notIdempotent),
	}
}

func rollbackTool() *sdk.Tool {
	return &sdk.Tool{
		Name: "rollback", Title: "Undo a part of the session",
		Description: "Undoes everything since a savepoint, or one step and all that builds on it, the last first, and " +
			"says what came back. " +
			"What somebody else has changed since is not overwritten: the undo then waits for a person. Give to or step.",
		Annotations: changes(destructive, notIdempotent),
	}
}

func noteTool() *sdk.Tool {
	return &sdk.Tool{
		Name: "note", Title: "Note something for people",
		Description: "Notes something for the people who look at the session, now or in its report. It is visible in the " +
			"history.",
		Annotations: changes(additive, notIdempotent),
	}
}

func finishTool() *sdk.Tool {
	return &sdk.Tool{
		Name: "finish", Title: "Keep what was done",
		Description: "Ends the session and keeps what it has done. Fails with SessionBusy while a step is running. A " +
			"person can still roll it back for a while.",
		Annotations: changes(additive, idempotent),
	}
}

func abortTool() *sdk.Tool {
	return &sdk.Tool{
		Name: "abort", Title: "Undo everything",
		Description: "Ends the session and undoes everything that it has done, the last first. The report says what " +
			"came back.",
		Annotations: changes(destructive, idempotent),
	}
}

func (s *Server) savepoint(ctx context.Context, call *sdk.CallToolRequest, in savepointInput) (Outcome, error) {
	return s.ask(ctx, call, in.onSession,
		func(ctx context.Context, of session.Session, request string) (protocol.Answer, error) {
			return of.Savepoint(ctx, request, in.Name)
		})
}

func (s *Server) note(ctx context.Context, call *sdk.CallToolRequest, in noteInput) (Outcome, error) {
	return s.ask(ctx, call, in.onSession,
		func(ctx context.Context, of session.Session, request string) (protocol.Answer, error) {
			return of.Note(ctx, request, in.Text)
		})
}

func (s *Server) finish(ctx context.Context, call *sdk.CallToolRequest, in onSession) (Outcome, error) {
	return s.ask(ctx, call, in, func(ctx context.Context, of session.Session, request string) (protocol.Answer, error) {
		return of.Finish(ctx, request)
	})
}

func (s *Server) abort(ctx context.Context, call *sdk.CallToolRequest, in abortInput) (Outcome, error) {
	return s.ask(ctx, call, in.onSession,
		func(ctx context.Context, of session.Session, request string) (protocol.Answer, error) {
			return of.Abort(ctx, request, protocol.AbortRequest{Who: "the agent", Why: in.Why})
		})
}

// open opens a session. The request makes its id, so that a repeated call finds what the first has
// opened.
func (s *Server) open(ctx context.Context, call *sdk.CallToolRequest, in openInput) (Outcome, error) {
	in.Request = cmp.Or(in.Request, callID(call))
	c, err := s.connection(ctx)
	if err != nil {
		return Outcome{}, err
	}
	document, err := s.documentOf(in)
	if err != nil {
		return Outcome{}, err
	}
	o := session.Options{Agent: in.Agent, Queue: s.Queue, Request: in.Request}
	if in.Request != "" {
		o.ID = "session-" + s.Key.sign("open", c.Namespace, in.Request, string(document))
		isOpen, err := exists(ctx, c, o.ID)
		if err != nil {
			return Outcome{}, err
		}
		if isOpen {
			return Outcome{Session: s.Key.handleOf(o.ID, c.Namespace), Request: in.Request}, nil
		}
	}
	if !c.HasWorker(ctx, s.Queue) {
		return Outcome{}, noWorker(s.Queue)
	}
	opened, answer, err := session.Open(ctx, c, o, document)
	if err != nil {
		return Outcome{}, err
	}
	outcome := outcomeOf(answer)
	outcome.Session = s.Key.handleOf(opened.ID(), c.Namespace)
	return outcome, nil
}

func noWorker(queue string) Problem {
	return Problem{NoServer, tasks.NoWorker(tasks.Run{Queue: queue})}
}

// documentOf is the task document of a session.
func (s *Server) documentOf(in openInput) (json.RawMessage, error) {
	document := map[string]any{}
	if s.Document != nil {
		if in.Timeout+in.Idle+in.Gone+in.OnFailure != "" {
			return nil, Problem{BadParameter,
				"timeout, idle, gone and on_failure are given by whoever runs this server: leave them out"}
		}
		if err := json.Unmarshal(s.Document, &document); err != nil {
			return nil, fmt.Errorf("document of sessions: %w", err)
		}
	} else {
		settings := map[string]any{"idle": in.Idle, "gone": in.Gone}
		document["session"], document["steps"] = settings, []any{}
		maps.Copy(document, map[string]any{"timeout": in.Timeout, "on_failure": in.OnFailure})
		dropEmpty(settings)
	}
	document["name"] = in.Name
	if in.Agent != "" {
		document["agent"] = in.Agent
	}
	dropEmpty(document)
	return json.Marshal(document)
}

func dropEmpty(fields map[string]any) {
	maps.DeleteFunc(fields, func(_ string, v any) bool { return v == "" })
}

func exists(ctx context.Context, c *tasks.Client, id string) (bool, error) {
	_, err := c.DescribeWorkflow(ctx, id, "")
	if _, missing := errors.AsType[*serviceerror.NotFound](err); missing {
		return false, nil
	}
	return err == nil, err
}

func (s *Server) rollback(ctx context.Context, call *sdk.CallToolRequest, in rollbackInput) (Outcome, error) {
	if (in.To == "") == (in.Step == "") {
		return Outcome{}, Problem{BadParameter, "give to (a savepoint) or step (a step's id), and not both"}
	}
	branch, err := in.branch()
	if err != nil {
		return Outcome{}, err
	}
	return s.ask(ctx, call, in.onSession,
		func(ctx context.Context, of session.Session, request string) (protocol.Answer, error) {
			return of.Rollback(ctx, request, protocol.SessionRollback{To: in.To, Step: in.Step, Branch: branch, Why: in.Why})
		})
}

// request is one request to a session.
type request func(ctx context.Context, of session.Session, id string) (protocol.Answer, error)

// ask sends a request to the session of a handle.
func (s *Server) ask(ctx context.Context, call *sdk.CallToolRequest, on onSession, send request) (Outcome, error) {
	return s.askFor(ctx, call, on, send, func(a protocol.Answer) bool { return !a.Pending })
}

// askFor does so, and waits for a person only where the answer does not suffice.
func (s *Server) askFor(ctx context.Context, call *sdk.CallToolRequest, on onSession, send request,
	suffices func(protocol.Answer) bool) (_ Outcome, err error) {
	c, id, err := s.find(ctx, on.Session)
	if err != nil {
		return Outcome{}, err
	}
	of := session.Attach(c, id)
	asked := cmp.Or(on.Request, callID(call))
	isNew := asked == "" || s.isFirst != nil && s.isFirst(asked)
	asked = cmp.Or(asked, rand.Text())
	defer func() {
		if ctx.Err() != nil && !errors.Is(err, errNotSent) {
			s.noteCanceled(ctx, of, call.Params.Name, asked)
		}
	}()
	life := newProgress(ctx, call, "under way", s.toldOf)
	defer life.stop()
	var answer protocol.Answer
	later := polledCall{Session: id, Tool: call.Params.Name}
	if state := call.Params.RequestState; state != "" { // the call is repeated, with what the client's user has decided
		about, err := unseal(s.Key, on.Session, state)
		if err == nil {
			err = s.decide(ctx, c, id, call, about)
		}
		if err != nil {
			return Outcome{}, err
		}
		later.Asked = about.Digest
		if answer, err = of.Answer(ctx, about.Request); err != nil { // what was decided holds all the same
			answer = protocol.Answer{Request: about.Request, Pending: true}
		}
	} else {
		now := of
		if isNew {
			now = of.First()
		}
		if answer, err = send(ctx, now, asked); err != nil {
			return Outcome{}, err
		}
	}
	o := outcomeOfRequest(answer)
	if suffices(answer) {
		return o, nil
	}
	if o.Next = s.adviseAgent(ctx, of, answer); o.Next != "" {
		return o, nil
	}
	if s.mayAsk(call) {
		if q := s.question(on.Session, answer); q != nil {
			return Outcome{instead: q}, nil
		}
	}
	if takesTasks(call.Params.Meta) {
		return s.answerLater(c, later, answer), nil
	}
	life.say(whatWaits(answer))
	o = outcomeOfRequest(s.awaitPerson(ctx, of, answer))
	if o.Pending {
		o.Next = fmt.Sprintf("it waits for a person, who sees it with `starter show %s`; ask %s with request %q", id,
			s.prefix+"status", o.Request)
	}
	return o, nil
}

// noteWithin bounds the note about a call whose client waits no longer.
const noteWithin = 3 * time.Second

// noteCanceled notes in a session that the client of a call waits no longer for it. What is under
// way goes on.
func (s *Server) noteCanceled(ctx context.Context, of session.Session, tool, request string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteWithin)
	defer cancel()
	what := "its call of " + tool
	if a, err := of.Answer(ctx, request); err == nil && !a.Pending && a.Stuck == "" {
		return // it was over
	} else if err == nil && len(a.Steps) > 0 {
		what += ", step " + a.Steps[0].ID
	}
	// one that has ended takes no note
	_, _ = of.Note(ctx, "", "the agent's client cancelled "+what+", or left: what is under way goes on")
}

// toolUse is where Claude Code says which tool use of its conversation a call is.
const toolUse = "claudecode/toolUseId"

const maxCallID = 200

// callID is the client's own id of a call, which stays the same if it makes the call again; empty
// if it gives none.
func callID(call *sdk.CallToolRequest) string {
	id, _ := call.Params.Meta[toolUse].(string)
	if len(id) > maxCallID {
		return ""
	}
	return id
}

// outcomeOfRequest is an error to the client where a step was not done.
func outcomeOfRequest(a protocol.Answer) Outcome {
	o := outcomeOf(a)
	o.notDone = o.hasFailed()
	for _, s := range o.Steps {
		if s.State == string(protocol.RolledBack) && s.Error == "" {
			o.Next = fmt.Sprintf(
				"step %s was done, and rolled back since; this request does not do it again: redo the rollback, or make "+
					"another call", s.ID)
		}
	}
	return o
}

// find returns the session of a handle.
func (s *Server) find(ctx context.Context, handle string) (c *tasks.Client, id string, err error) {
	if c, err = s.connection(ctx); err != nil {
		return nil, "", err
	}
	id, err = s.Key.readHandle(handle, c.Namespace)
	return c, id, err
}
