package containers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/starter/mcp"
	starter "github.com/seed-62bf7108/unwind/starter/tasks"
)

const (
	// agentCommands is how many commands an agent's session has.
	agentCommands = 50
	// agentTarget is how many times as long as by docker exec it may take.
	agentTarget = 1.5
	agentRounds = 5
)

// agents are whole sessions, from the first call to the answer of the last, in milliseconds.
type agents struct {
	Commands int     `json:"commands"`
	Bare     float64 `json:"docker_exec_ms"`
	Session  float64 `json:"session_ms"`
	Ratio    float64 `json:"ratio"`
}

// AgentCommand measures a session of commands through starter mcp against the same commands through
// a server of the same protocol that only calls docker exec.
func AgentCommand(ctx context.Context) (result any, missed []string, err error) {
	r, err := beginRun(ctx, agentRounds)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, r.clearAll()) }()
	t, id, end, err := r.readyBox(ctx)
	defer func() { err = errors.Join(err, end()) }()
	if err != nil {
		return nil, nil, err
	}
	ours, err := t.serveSessions()
	if err != nil {
		return nil, nil, err
	}
	var bare, session []float64
	for i := range r.rounds {
		progressf("%d commands, round %d of %d", agentCommands, i+1, r.rounds)
		took, err := timed(func() error { return r.runBare(ctx, id) })
		if err != nil {
			return nil, nil, err
		}
		bare = append(bare, took)
		if took, err = timed(func() error { return runSession(ctx, ours, id) }); err != nil {
			return nil, nil, err
		}
		session = append(session, took)
	}
	f := agents{Commands: agentCommands, Bare: median(bare), Session: median(session)}
	f.Ratio = f.Session / f.Bare
	fmt.Printf("an agent's session of %d commands over MCP: %.0f ms, by docker exec %.0f ms: %.2fx (target: %.1fx)\n\n",
		f.Commands, f.Session, f.Bare, f.Ratio, agentTarget)
	if f.Ratio > agentTarget {
		missed = append(missed,
			fmt.Sprintf("a session takes %.2f times as long as docker exec, not at most %.1f", f.Ratio, agentTarget))
	}
	return map[string]any{"engine": r.version, "driver": r.driver, "agents": f}, missed, nil
}

// agentCommand is the n-th command of a session: half of them write, half read.
func agentCommand(n int) string {
	if n%2 == 1 {
		return fmt.Sprintf("cat /work-%d", n/2)
	}
	return fmt.Sprintf("echo %d >/work-%d", n, n/2)
}

// connectAgent connects a client to a server in this process.
func connectAgent(ctx context.Context, serve func(context.Context, sdk.Transport) error) (c *sdk.ClientSession,
	leave func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	ours, theirs := sdk.NewInMemoryTransports()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = serve(ctx, ours) // the calls tell what went wrong
	}()
	leave = func() {
		if c != nil {
			_ = c.Close() // it is over
		}
		cancel()
		<-ended
	}
	c, err = sdk.NewClient(&sdk.Implementation{Name: "bench", Version: "1"}, nil).Connect(ctx, theirs, nil)
	if err != nil {
		leave()
	}
	return c, leave, err
}

type bareInput struct {
	Container string `json:"container"`
	Command   string `json:"command"`
}

// runBare runs the commands through a server that calls docker exec.
func (r *run) runBare(ctx context.Context, id string) error {
	server := sdk.NewServer(&sdk.Implementation{Name: "bare", Version: "1"}, nil)
	sdk.AddTool(server, &sdk.Tool{Name: "shell"},
		func(ctx context.Context, _ *sdk.CallToolRequest, in bareInput) (*sdk.CallToolResult, any, error) {
			command := exec.CommandContext(ctx, "docker", "exec", in.Container, "sh", "-c", in.Command)
			command.Env = append(os.Environ(), "DOCKER_HOST="+r.address())
			said, err := command.CombinedOutput()
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: string(said)}}}, nil, err
		})
	c, leave, err := connectAgent(ctx, server.Run)
	if err != nil {
		return err
	}
	defer leave()
	for n := range agentCommands {
		answer, err := c.CallTool(ctx, &sdk.CallToolParams{Name: "shell", Arguments: bareInput{id, agentCommand(n)}})
		if err := errors.Join(err, toolError(answer)); err != nil {
			return err
		}
	}
	return nil
}

// serveSessions is starter mcp on the server of the bench.
func (t *tasks) serveSessions() (*mcp.Server, error) {
	world, err := container.New(container.Config{State: t.dir})
	if err != nil {
		return nil, err
	}
	return mcp.New(mcp.Config{
		Connect: func(context.Context) (*starter.Client, error) {
			return &starter.Client{Client: t.client, Server: starter.Server{Namespace: "default"}}, nil
		},
		Specs: activities.NewRegistry(world).Specs(), Queue: queue, Key: make(mcp.Key, 32),
	})
}

// runSession runs the commands in a session, which it opens and finishes.
func runSession(ctx context.Context, s *mcp.Server, id string) error {
	c, leave, err := connectAgent(ctx, s.Run)
	if err != nil {
		return err
	}
	defer leave()
	opened, err := c.CallTool(ctx,
		&sdk.CallToolParams{Name: "open", Arguments: map[string]any{"name": "bench", "agent": "bench"}})
	if err := errors.Join(err, toolError(opened)); err != nil {
		return err
	}
	handle := opened.StructuredContent.(map[string]any)["session"]
	for n := range agentCommands {
		answer, err := c.CallTool(ctx, &sdk.CallToolParams{Name: "shell", Arguments: map[string]any{
			"session": handle, "container": id, "command": agentCommand(n),
		}})
		if err := errors.Join(err, toolError(answer)); err != nil {
			return err
		}
	}
	ended, err := c.CallTool(ctx, &sdk.CallToolParams{Name: "finish", Arguments: map[string]any{"session": handle}})
	return errors.Join(err, toolError(ended))
}

func toolError(r *sdk.CallToolResult) error {
	if r == nil || !r.IsError {
		return nil
	}
	return fmt.Errorf("tool: %s", r.Content[0].(*sdk.TextContent).Text)
}
