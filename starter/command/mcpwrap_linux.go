package command

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/mcpserver"
	"github.com/seed-62bf7108/unwind/internal/childenv"
	"github.com/seed-62bf7108/unwind/internal/filelock"
	"github.com/seed-62bf7108/unwind/starter/local"
	"github.com/seed-62bf7108/unwind/starter/mcp"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

const (
	// wrapStop is how long calls that are under way may take when the client has left: it waits for
	// the end of this process.
	wrapStop = 5 * time.Second
	// wrapTurn is how long a proxy waits for the end of the one before it, whose client may be
	// starting it again.
	wrapTurn = 2*wrapStop + time.Second
	// wrapMemory is what a proxy keeps to as long as it can.
	wrapMemory = 96 << 20
)

// wrapMCP serves the tools of another server, with a worker that knows only that server.
func (p *program) wrapMCP(ctx context.Context, f mcpFlags) error {
	declared, err := f.readDeclarations()
	if err != nil {
		return err
	}
	document, err := p.sessionDocument(f)
	if err != nil {
		return err
	}
	if f.name == "" {
		sum := sha256.Sum256([]byte(f.wrap))
		f.name = "server-" + hex.EncodeToString(sum[:4])
	}
	if err := activities.CheckName(f.name); err != nil {
		return usage.Errorf("--name: %w", err)
	}
	state, err := local.StateFolder()
	if err != nil {
		return usage.Wrap(err)
	}
	server, err := f.wrapped()
	if err != nil {
		return err
	}
	server.Declarations = declared
	if err := server.Validate(); err != nil {
		return usage.Errorf("--wrap: %w", err)
	}
	s, err := openWrapped(ctx, filepath.Join(state, "wrap", f.name), f.name, server)
	if err != nil {
		return err
	}
	defer s.close()
	debug.SetMemoryLimit(wrapMemory) // a server that sends much makes it no larger than the work needs
	c, err := p.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	config, err := host.Config{StopTimeout: wrapStop}.WithEnvironment(os.LookupEnv).WithDefaults()
	if err != nil {
		return err
	}
	// One queue for the sessions and their calls, as nobody else serves either: a call need not wait
	// for a poll.
	config.Queue = task.HostQueue(p.sharedQueue()+"-wrap-"+f.name, config.Host)
	config.State, config.Listen = s.folder, ""
	w, err := host.Start(ctx, config, host.Options{
		Client: c.Client, Namespace: c.Namespace, DataConverter: c.DataConverter(), Worlds: []activities.World{s.world.World},
	})
	if err != nil {
		return err
	}
	defer w.Stop()
	for _, notice := range s.world.Notices {
		fmt.Fprintln(p.streams.Err, notice)
	}
	proxy, err := mcp.NewProxy(ctx, mcp.Config{
		Connect: func(context.Context) (*tasks.Client, error) { return c, nil },
		Wait:    f.wait, Elicit: f.elicit, Version: version(), Queue: config.Queue, Document: document,
	}, s, p.streams.Err)
	if err != nil {
		return err
	}
	return proxy.Run(ctx, p.stdio())
}

// wrapped is the server that --wrap starts, or reaches.
func (f mcpFlags) wrapped() (mcpserver.Server, error) {
	if !f.wrapsURL() {
		return mcpserver.Server{Command: f.wrap, Env: environmentOfWrapped()}, nil
	}
	token, err := readToken(f.token)
	return mcpserver.Server{URL: f.wrap, Token: token, Env: childenv.List(childenv.Minimal())}, err
}

func (f wrapFlags) readDeclarations() (mcpserver.Declarations, error) {
	if f.declarations == "" {
		return mcpserver.Declarations{}, nil
	}
	d, err := mcpserver.ReadDeclarations(f.declarations)
	if err != nil {
		return d, usage.Errorf("--declarations: %w", err)
	}
	return d, nil
}

// environmentOfWrapped is that of this process, which its client has made for the wrapped server,
// without what gives access to the Temporal server.
func environmentOfWrapped() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool { return strings.HasPrefix(variable, "TEMPORAL_") })
}

// wrappedServer is a server of the world mcp, as a proxy wants it.
type wrappedServer struct {
	name, folder string
	declared     mcpserver.Declarations
	world        mcpserver.World
	specs        map[string]activities.Spec
	offers       mcp.Offers
	notices      chan mcp.Notice
	lock         *filelock.Lock

	mu       sync.Mutex
	readOnly map[string]bool // by tool, as its annotation says
}

// maxNotices is how many notifications wait for a client that does not read them. Those after them
// are dropped: the server is not held up.
const maxNotices = 1000

// openWrapped starts the server, and compares its tools with the declarations. If it fails, it
// leaves nothing behind.
func openWrapped(ctx context.Context, folder, name string, server mcpserver.Server) (_ *wrappedServer, err error) {
	s := &wrappedServer{name: name, folder: folder, declared: server.Declarations, specs: map[string]activities.Spec{},
		notices: make(chan mcp.Notice, maxNotices)}
	_, missing := os.Stat(folder)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	defer func() {
		if err == nil {
			return
		}
		s.close()
		if errors.Is(missing, fs.ErrNotExist) {
			_ = os.RemoveAll(folder) // it was made here, and holds no record
		}
	}()
	limited, cancel := context.WithTimeout(ctx, wrapTurn)
	defer cancel()
	if s.lock, err = filelock.Acquire(limited, filepath.Join(folder, "lock")); errors.Is(err, filelock.ErrHeld) {
		return nil, usage.Errorf("another `starter mcp --wrap` serves %s; use it, end it, or give this one another --name",
			name)
	} else if err != nil {
		return nil, err
	}
	if s.world, err = mcpserver.Open(mcpserver.Config{State: folder, Servers: map[string]mcpserver.Server{name: server},
		Heard: s.hear}); err != nil {
		return nil, err
	}
	for _, a := range s.world.Actions {
		s.specs[a.Spec().Name] = a.Spec()
	}
	if _, err = s.Tools(ctx); err == nil {
		s.offers, err = s.readOffers(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("--wrap: %w", err)
	}
	return s, s.checkDeclared()
}

func (s *wrappedServer) readOffers(ctx context.Context) (o mcp.Offers, err error) {
	theirs, err := s.world.Offers(ctx, s.name)
	if err == nil {
		err = json.Unmarshal(theirs.Capabilities, &o.Capabilities) // the protocol demands it
	}
	o.Instructions = theirs.Instructions
	return o, err
}

// Tools reads the annotations of the tools, too.
func (s *wrappedServer) Tools(ctx context.Context) ([]json.RawMessage, error) {
	all, err := s.world.Tools(ctx, s.name)
	if err != nil {
		return nil, err
	}
	readOnly := map[string]bool{}
	for _, raw := range all {
		var tool struct {
			Name        string `json:"name"`
			Annotations struct {
				ReadOnlyHint bool `json:"readOnlyHint"`
			} `json:"annotations"`
		}
		if err := json.Unmarshal(raw, &tool); err != nil {
			return nil, fmt.Errorf("a tool of the server cannot be read: %w", err)
		}
		readOnly[tool.Name] = tool.Annotations.ReadOnlyHint
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readOnly = readOnly
	return all, nil
}

// checkDeclared refuses declarations of tools that are not there.
func (s *wrappedServer) checkDeclared() error {
	has := slices.Sorted(maps.Keys(s.readOnly))
	check := func(field, tool string) error {
		if slices.Contains(has, tool) {
			return nil
		}
		return usage.Errorf("--declarations: %s: the server has no tool %q; it has: %s", field, tool, strings.Join(has, ", "))
	}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(s.declared.Tools)) {
		problems = append(problems, check("tools", name))
		for i, inverse := range s.declared.Tools[name].Undo {
			problems = append(problems, check(fmt.Sprintf("tools.%s.undo[%d].tool", name, i), inverse.Tool))
		}
	}
	return errors.Join(problems...)
}

// close ends the server.
func (s *wrappedServer) close() {
	if s.world.Watch != nil {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		s.world.Watch(ended)
	}
	if s.lock != nil {
		s.lock.Release()
	}
}

func (s *wrappedServer) Name() string { return s.name }

func (s *wrappedServer) Offers() mcp.Offers { return s.offers }

func (s *wrappedServer) Action(tool string) activities.Spec {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.specs[s.declared.ActionFor(tool, s.readOnly[tool])]
}

func (s *wrappedServer) Read(ctx context.Context, tool string, params json.RawMessage) (mcp.Reply, error) {
	a, err := s.world.Read(ctx, s.name, tool, params)
	return replyOf(a), err
}

func (s *wrappedServer) Ask(ctx context.Context, method string, params json.RawMessage) (mcp.Reply, error) {
	a, err := s.world.Ask(ctx, s.name, method, params)
	return mcp.Reply{Result: a.Result, Error: a.Error}, err
}

func (s *wrappedServer) Notices() <-chan mcp.Notice { return s.notices }

func (s *wrappedServer) hear(n mcpserver.Notice) {
	var progress struct {
		Token any `json:"progressToken"`
	}
	_ = json.Unmarshal(n.Params, &progress) // others have none
	token, _ := progress.Token.(string)
	select {
	case s.notices <- mcp.Notice{Method: n.Method, Params: n.Params, OfStep: mcpserver.IsOfStep(token)}:
	default:
	}
}

func (s *wrappedServer) ReplyTo(token string) (mcp.Reply, bool, error) {
	a, found, err := s.world.AnswerTo(token)
	return replyOf(a), found, err
}

func replyOf(a mcpserver.Answer) mcp.Reply {
	return mcp.Reply{Result: a.Result, Error: a.Error, Lost: a.Lost || a.Unfit != "", Succeeded: a.Succeeded()}
}
