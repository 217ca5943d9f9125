package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// Config names the servers of a worker.
type Config struct {
	// State is the folder of the journal.
	State string
	// Servers are those that steps may use, by the name that they use.
	Servers map[string]Server
	// LookOnly opens the world for its Specs only, and makes nothing.
	LookOnly bool
}

// Server is how a server is started, and what its tools do.
type Server struct {
	// Command is a command line, run by sh -c, that speaks the protocol over its standard streams.
	Command string
	// Env is its environment.
	Env          []string
	Declarations Declarations
}

var namePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,62}$`)

// Validate reports every invalid field.
func (c Config) Validate() error {
	var problems []error
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("mcp.servers"+format, args...))
	}
	if len(c.Servers) == 0 {
		bad(": name at least one server")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Servers)) {
		if !namePattern.MatchString(name) {
			bad(": %q must be a name of letters, digits, dashes and underscores, at most 63", name)
		}
		if strings.TrimSpace(c.Servers[name].Command) == "" {
			bad(".%s.command: give the command line that starts it", name)
		}
		if err := c.Servers[name].Declarations.Validate(); err != nil {
			bad(".%s.declarations: %w", name, err)
		}
	}
	return errors.Join(problems...)
}

// World is the world, with what a proxy needs besides.
type World struct {
	activities.World

	shared *world
}

// world is what the actions share.
type world struct {
	Config

	journal *journal.Journal
	undoing turns

	mu      sync.Mutex
	running map[string]*connection
	closed  bool
}

// New makes the world "mcp". It starts no server.
func New(c Config) (World, error) {
	w := &world{Config: c, running: map[string]*connection{}}
	if err := c.Validate(); err != nil {
		return World{}, err
	}
	made := activities.World{Name: "mcp", Actions: w.actions(), Journal: func(context.Context) (string, error) { return "", nil }}
	if !c.LookOnly {
		var err error
		if w.journal, err = journal.Open(filepath.Join(c.State, "journal")); err != nil {
			return World{}, err
		}
		made.Journal = func(context.Context) (string, error) { return w.journal.Mark() }
		made.Records = journal.Records{Journal: w.journal}
		made.Watch = w.watch
	}
	return World{World: made, shared: w}, nil
}

// watch ends the servers when the worker ends.
func (w *world) watch(ctx context.Context) {
	<-ctx.Done()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, c := range w.running {
		c.close()
	}
}

// connect returns the running server, or starts it.
func (w *world) connect(ctx context.Context, name string) (*connection, error) {
	s, known := w.Servers[name]
	if !known {
		return nil, activities.Errorf(activities.Refused, "server: %q is not one of this worker's mcp.servers: %s",
			name, strings.Join(slices.Sorted(maps.Keys(w.Servers)), ", "))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, activities.Errorf(activities.WorkerStopping, "the worker is stopping")
	}
	if c := w.running[name]; c != nil {
		if c.isAlive() {
			return c, nil
		}
		c.close()
	}
	c, err := connect(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("server %s (%s): %w", name, s.Command, err)
	}
	w.running[name] = c
	return c, nil
}

// Tools are the tools of a server, as it lists them.
func (w World) Tools(ctx context.Context, server string) ([]json.RawMessage, error) {
	c, err := w.shared.connect(ctx, server)
	if err != nil {
		return nil, err
	}
	return c.listed, nil
}

// Read calls a tool that only reads, without a step.
func (w World) Read(ctx context.Context, server, tool string, arguments json.RawMessage) (Answer, error) {
	c, err := w.shared.connect(ctx, server)
	if err != nil {
		return Answer{}, err
	}
	if err := w.shared.checkClass(c, reads, server, tool); err != nil {
		return Answer{}, err
	}
	return c.call(ctx, "", tool, arguments)
}

// AnswerTo is the answer to the call of a step, as the server has sent it.
func (w World) AnswerTo(token string) (a Answer, found bool, err error) {
	t, err := w.shared.journal.Token(token)
	if err != nil {
		return a, false, err
	}
	found, err = t.Read(answered, &a)
	return a, found, err
}

// checkClass refuses a call by the wrong action: the class of a tool is ours to say, and not the caller's.
func (w *world) checkClass(c *connection, by class, server, tool string) error {
	if c.tools[tool] == nil {
		return activities.Errorf(activities.Refused, "tool: server %s has no tool %q; it has: %s", server, tool, strings.Join(slices.Sorted(maps.Keys(c.tools)), ", "))
	}
	is := w.Servers[server].Declarations.classOf(tool, c.isReadOnly(tool))
	if is == by || by == irreversible && is == reversible {
		return nil
	}
	return activities.Errorf(activities.Refused, "tool: %q of server %s is called with %s, as this worker's declarations say", tool, server, is)
}

// turns let one undo of a token at a time run in this process.
type turns struct {
	mu sync.Mutex
	by map[string]*turn
}

type turn struct {
	held  chan struct{}
	users int
}

func (t *turns) take(ctx context.Context, token string) (release func(), err error) {
	t.mu.Lock()
	if t.by == nil {
		t.by = map[string]*turn{}
	}
	mine := t.by[token]
	if mine == nil {
		mine = &turn{held: make(chan struct{}, 1)}
		t.by[token] = mine
	}
	mine.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if mine.users--; mine.users == 0 {
			delete(t.by, token)
		}
	}
	select {
	case mine.held <- struct{}{}:
		return func() { <-mine.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}
