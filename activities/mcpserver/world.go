package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/remote"
	"github.com/seed-62bf7108/unwind/internal/turns"
)

// Config names the servers of a worker.
type Config struct {
	// State is the folder of the journal.
	State string
	// Servers are those that steps may use, by the name that they use.
	Servers map[string]Server
	// Heard is told what servers notify their client of. It must not block. Defaults to none.
	Heard func(Notice)
	// LookOnly opens the world for its Specs only, and makes nothing.
	LookOnly bool
}

// Server is how a server is started or reached, and what its tools do.
type Server struct {
	// Command is a command line, run by sh -c, that speaks the protocol over its standard streams; URL
	// is where a server speaks it over streamable HTTP instead. Exactly one of them is set.
	Command, URL string
	// Token is the bearer token that each request to URL has; empty for none.
	Token string
	// Env is the environment of the server, or of the process that speaks to URL.
	Env          []string
	Declarations Declarations
}

// Validate refuses a server that cannot be one. The error begins with the field.
func (s Server) Validate() error {
	hasCommand := strings.TrimSpace(s.Command) != ""
	switch {
	case hasCommand == (s.URL != ""):
		return errors.New("command: give the command line that starts the server, or url, and not both")
	case hasCommand && s.Token != "":
		return errors.New("token: it is for url; a command gets secrets in its environment")
	case hasCommand:
		return nil
	}
	if err := remote.CheckURL(s.URL, s.Token != ""); err != nil {
		return fmt.Errorf("url: %w", err)
	}
	if s.Declarations.Local {
		return errors.New(
			"declarations: local: a server that is reached by url goes on with a call when nobody listens any more; " +
				"leave it out")
	}
	return nil
}

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
		if err := activities.CheckName(name); err != nil {
			bad(": %w", err)
		}
		if err := c.Servers[name].Validate(); err != nil {
			bad(".%s.%w", name, err)
		}
		if err := c.Servers[name].Declarations.Tools.Validate("tool"); err != nil {
			bad(".%s.declarations: %w", name, err)
		}
	}
	return errors.Join(problems...)
}

// world is what the actions share.
type world struct {
	Config

	journal  *journal.Journal
	undoing  turns.Turns // by token
	starting turns.Turns // by server
	standing standing    // of a proxy's client

	mu      sync.Mutex
	running map[string]*connection
	closed  bool
}

// New makes the world "mcp". It starts no server.
func New(c Config) (activities.World, error) {
	w, err := Open(c)
	return w.World, err
}

// World is the world, with what a proxy needs besides.
type World struct {
	activities.World

	shared *world
}

// Open makes the world for a proxy before its servers. It starts none.
func Open(c Config) (World, error) {
	w := &world{Config: c, running: map[string]*connection{}}
	if err := c.Validate(); err != nil {
		return World{}, err
	}
	made := activities.World{Name: "mcp", Actions: w.actions(),
		Journal: func(context.Context) (string, error) { return "", nil }}
	for _, name := range slices.Sorted(maps.Keys(c.Servers)) {
		for _, warning := range c.Servers[name].Declarations.Tools.Warnings("tool") {
			made.Notices = append(made.Notices, "mcp.servers."+name+".declarations: "+warning)
		}
	}
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

// errStopping is the error of whoever needs a server when the worker ends.
var errStopping = activities.Errorf(activities.WorkerStopping, "the worker is stopping")

// watch ends the servers when the worker ends.
func (w *world) watch(ctx context.Context) {
	<-ctx.Done()
	w.mu.Lock()
	w.closed = true
	all := slices.Collect(maps.Values(w.running))
	w.mu.Unlock()
	var wg sync.WaitGroup
	for _, c := range all {
		wg.Go(c.close)
	}
	wg.Wait()
}

// connect returns the running server, or starts it. Whoever needs the same server waits meanwhile,
// and nobody else does.
func (w *world) connect(ctx context.Context, name string) (*connection, error) {
	s, known := w.Servers[name]
	if !known {
		return nil, activities.Errorf(activities.Refused, "server: %q is not one of this worker's mcp.servers: %s",
			name, strings.Join(slices.Sorted(maps.Keys(w.Servers)), ", "))
	}
	release, err := w.starting.Take(ctx, name)
	if err != nil {
		return nil, err
	}
	defer release()
	c, err := w.runningServer(name)
	switch {
	case err != nil:
		return nil, err
	case c != nil && c.isAlive():
		return c, nil
	case c != nil:
		c.kill()
	}
	if c, err = start(ctx, s, w.Heard); err != nil {
		return nil, fmt.Errorf("server %s: %w", name, err)
	}
	if err := w.keep(name, c); err != nil {
		c.kill()
		return nil, err
	}
	w.standing.repeat(ctx, c)
	return c, nil
}

// runningServer is the server that was started last; nil if there is none.
func (w *world) runningServer(name string) (*connection, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, errStopping
	}
	return w.running[name], nil
}

// keep makes a server the running one, unless the worker has ended meanwhile.
func (w *world) keep(name string, c *connection) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errStopping
	}
	w.running[name] = c
	return nil
}

// checkClass refuses a call by the wrong action: the class of a tool is ours to say, and not the
// caller's. It returns the tool.
func (w *world) checkClass(ctx context.Context, c *connection, by class, server, tool string) (listedTool, error) {
	all, err := c.catalogNow(ctx)
	if err != nil {
		return listedTool{}, fmt.Errorf("server %s: %w", server, err)
	}
	it, isThere := all.tools[tool]
	switch is := w.Servers[server].Declarations.classOf(tool, it.isReadOnly); {
	case !isThere:
		return it, activities.Errorf(activities.Refused, "tool: server %s has no tool %q; it has: %s", server, tool,
			strings.Join(slices.Sorted(maps.Keys(all.tools)), ", "))
	case it.isAmbiguous:
		return it, activities.Errorf(activities.Refused,
			"tool: server %s lists %q more than once, and not the same each time: what a call would do is not known; have "+
				"the server mended", server, tool)
	case is != by && (by != irreversible || is != reversible):
		return it, activities.Errorf(activities.Refused,
			"tool: %q of server %s is called with %s, as this worker's declarations say", tool, server, is)
	}
	return it, nil
}
