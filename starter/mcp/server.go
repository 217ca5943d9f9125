package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/exactjson"
	"github.com/seed-62bf7108/unwind/internal/turns"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/session"
)

// Config configures a Server.
type Config struct {
	// Connect dials the Temporal server. It is called when a tool first needs it, and again until it
	// has succeeded.
	Connect func(context.Context) (*tasks.Client, error)
	// Specs are the actions of the catalog.
	Specs []activities.Spec
	// Check checks a task document, for plan.
	Check func(document json.RawMessage) (tasks.File, error)
	// Queue is the shared task queue of the workers.
	Queue string
	// Document is the task document of every session that is opened here. If it is nil, the agent says
	// how long its session may take.
	Document json.RawMessage
	// Key seals the handles of sessions.
	Key Key
	// Wait is how long a call waits for a person before it answers that it is pending. Defaults to
	// DefaultWait.
	Wait time.Duration
	// Environments are those that the agent may checkpoint and roll back. Defaults to none.
	Environments []string
	// Elicit has a client that can ask its user do so at a gate, and takes the answer for a person's
	// decision.
	Elicit bool
	// Version is that of this program.
	Version string
}

// DefaultWait is how long a call waits for a person.
const DefaultWait = time.Minute

// Server serves sessions.
type Server struct {
	Config
	server *sdk.Server
	tools  toolNames
	prefix string // of the names of our own tools
	// isFirst reports, once, that nobody has made a request of that id to its session; nil where
	// nobody knows.
	isFirst func(request string) bool
	// toldOf is where reports arrive of how far a call has come, which replace the time that it takes;
	// nil, or a nil channel, where nobody knows.
	toldOf func(*sdk.CallToolRequest) <-chan *sdk.ProgressNotificationParams
	// endOf is the end of a call that has become a task.
	endOf func(context.Context, polledCall, session.Session, protocol.Answer) (o Outcome, isOver bool, err error)

	// stepping are the turns to add steps to a session.
	stepping turns.Turns

	mu     sync.Mutex
	client *tasks.Client
}

// stepsAtOnce is how many calls may add steps to a session at once. The Temporal server takes ten
// requests to a workflow at a time: the others are left to rollback, abort and the like.
const stepsAtOnce = 7

const instructions = `What you do with these tools can be undone. First call open: it returns the handle of a session,
which every other tool takes. A step that fails is undone by itself and the session goes on;
rollback undoes steps that were done. Call savepoint before you try something, rollback to go back
there, finish when all is well, abort to undo everything. A session that is neither finished nor
aborted stays open. If a connection breaks during a call, repeat it with the same "request": it is
carried out once.`

// New makes a server. It needs no Temporal server yet.
func New(c Config) (*Server, error) {
	s := newServer(c, sdk.ServerOptions{Instructions: instructions, Capabilities: offerTasks(&sdk.ServerCapabilities{})})
	s.addSessionTools()
	s.addReadingTools()
	s.addShell()
	s.addEnvironments()
	s.addResources()
	if err := s.addActions(); err != nil {
		return nil, err
	}
	return s, s.serveTasks()
}

// newServer makes a server without tools.
func newServer(c Config, o sdk.ServerOptions) *Server {
	if c.Wait == 0 {
		c.Wait = DefaultWait
	}
	o.PageSize = 1000
	s := &Server{Config: c, stepping: turns.Turns{Several: stepsAtOnce},
		server: sdk.NewServer(&sdk.Implementation{Name: "unwind", Title: "Unwind", Version: c.Version}, &o)}
	s.endOf = s.endOfOwn
	s.server.AddReceivingMiddleware(s.nameTools)
	return s
}

// Run serves one client until it leaves or ctx ends. The SDK ends only what nobody waits for, so
// the calls that are under way end with ctx.
func (s *Server) Run(ctx context.Context, t sdk.Transport) error {
	s.server.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(of context.Context, method string, r sdk.Request) (sdk.Result, error) {
			of, cancel := context.WithCancel(of)
			defer cancel()
			defer context.AfterFunc(ctx, cancel)()
			return next(of, method, r)
		}
	})
	return s.server.Run(ctx, t)
}

// Close closes the connection to the Temporal server.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		s.client.Close()
	}
}

// connection returns the connection to the Temporal server.
func (s *Server) connection(ctx context.Context) (*tasks.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		c, err := s.Connect(ctx)
		if err != nil {
			return nil, Problem{NoServer, err.Error()}
		}
		s.client = c
	}
	return s.client, nil
}

// handler answers a call of a tool.
type handler[In any] func(context.Context, *sdk.CallToolRequest, In) (Outcome, error)

// addTool adds a tool. Its arguments are those of In, unless the tool has a schema already, which
// is then what clients see.
func addTool[In any](s *Server, t *sdk.Tool, do handler[In]) {
	schema := schemaOf[In]()
	if t.InputSchema == nil {
		t.InputSchema = schema
	}
	addChecked(s, t, schema, do)
}

// addChecked adds a tool whose arguments have to follow a schema.
func addChecked[In any](s *Server, t *sdk.Tool, schema *jsonschema.Schema, do handler[In]) {
	checked, err := schema.Resolve(nil)
	if err != nil {
		panic(fmt.Sprintf("arguments of tool %s: %v", t.Name, err)) // a mistake in the source, found by any test
	}
	t.OutputSchema = outcomeSchema
	s.tools.set(t.Name, true)
	s.server.AddTool(t, func(ctx context.Context, call *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		in, err := readArguments[In](checked, call.Params.Arguments)
		if err != nil {
			return failed(err), nil
		}
		outcome, err := do(ctx, call, in)
		if err != nil {
			return failed(err), nil
		}
		return outcome.result(), nil
	})
}

// readArguments decodes the arguments of a call, with numbers as they are written.
func readArguments[In any](schema *jsonschema.Resolved, raw json.RawMessage) (in In, err error) {
	if len(raw) == 0 {
		raw = json.RawMessage("{}")
	}
	if err := checkExact(raw); err != nil {
		return in, err
	}
	var arguments map[string]any
	if err := json.Unmarshal(raw, &arguments); err != nil {
		return in, Problem{BadParameter, "the arguments are no JSON object: " + err.Error()}
	}
	if err := schema.Validate(arguments); err != nil {
		return in, Problem{BadParameter, "arguments: " + err.Error()}
	}
	if err := exactjson.Decode(raw, &in); err != nil {
		return in, Problem{BadParameter, "arguments: " + err.Error()}
	}
	return in, nil
}

// checkExact refuses arguments that would not be kept as they were given.
func checkExact(arguments json.RawMessage) error {
	if err := exactjson.CheckFits(arguments); err != nil {
		return Problem{BadParameter, "arguments: " + err.Error()}
	}
	return nil
}
