package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-62bf7108/unwind/activities/mcpserver/mcptest"
	"github.com/seed-62bf7108/unwind/starter/command"
)

const (
	wrapCalls = 100
	// maxWrapMS is what a proxy may add to a call.
	maxWrapMS = 15.0
)

// wrapFigures are medians of one call, in milliseconds.
type wrapFigures struct {
	Calls  int      `json:"calls"`
	Read   wrapCost `json:"read"`
	Change wrapCost `json:"change"`
}

type wrapCost struct {
	Bare    float64 `json:"bare_ms"`
	Wrapped float64 `json:"wrapped_ms"`
	Added   float64 `json:"added_ms"`
}

// wrapped measures calls of a server through starter mcp --wrap against calls of the same server without it.
func wrapped(ctx context.Context) (f wrapFigures, missed []string, err error) {
	s, err := newStage(ctx, noopWorld(nil))
	if err != nil {
		return f, nil, err
	}
	defer s.close()
	notes := filepath.Join(s.dir, "notes")
	start, env, err := mcptest.Start(notes)
	if err != nil {
		return f, nil, err
	}
	declarations := filepath.Join(s.dir, "notes.yaml")
	err = errors.Join(os.WriteFile(declarations, []byte(mcptest.Declarations), 0o600), os.Setenv("TEMPORAL_ADDRESS", s.server.Address),
		os.Setenv("UNWIND_STATE", filepath.Join(s.dir, "wrapped")))
	if err != nil {
		return f, nil, err
	}
	server := exec.Command("sh", "-c", start)
	server.Env = env
	bare, err := connectBench(ctx, &sdk.CommandTransport{Command: server})
	if err != nil {
		return f, nil, err
	}
	defer bare.Close()
	ours, leave, err := startWrap(ctx, "export "+env[0]+"; "+start, declarations)
	if err != nil {
		return f, nil, err
	}
	defer leave()

	f.Calls = wrapCalls
	if f.Change, err = compareCalls(ctx, bare, ours, "put_note", func(i int) any { return map[string]any{"id": "a", "body": fmt.Sprint(i)} }); err != nil {
		return f, nil, err
	}
	if f.Read, err = compareCalls(ctx, bare, ours, "get_note", func(int) any { return map[string]any{"id": "a"} }); err != nil {
		return f, nil, err
	}
	fmt.Printf("\n%-44s %12s %12s %12s\n", "", "bare", "wrapped", "added")
	for _, row := range []struct {
		name string
		wrapCost
	}{{"a call that reads", f.Read}, {"a call with a declared look and undo", f.Change}} {
		fmt.Printf("%-44s %9.1f ms %9.1f ms %9.1f ms   (target at most %.0f)\n", row.name, row.Bare, row.Wrapped, row.Added, maxWrapMS)
		if row.Added > maxWrapMS {
			missed = append(missed, fmt.Sprintf("%s through a proxy takes %.1f ms more, not at most %.0f", row.name, row.Added, maxWrapMS))
		}
	}
	fmt.Println()
	return f, missed, nil
}

func connectBench(ctx context.Context, t sdk.Transport) (*sdk.ClientSession, error) {
	return sdk.NewClient(&sdk.Implementation{Name: "bench", Version: "1"}, nil).Connect(ctx, t, nil)
}

// startWrap runs the command in this process.
func startWrap(ctx context.Context, wrap, declarations string) (c *sdk.ClientSession, leave func(), err error) {
	theirIn, ourOut := io.Pipe()
	ourIn, theirOut := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		status := command.Run(ctx, command.Options{}, []string{"mcp", "--wrap", wrap, "--declarations", declarations},
			command.Streams{In: theirIn, Out: theirOut, Err: os.Stderr})
		_ = theirOut.Close()
		ended <- status
	}()
	leave = func() { _ = ourOut.Close(); <-ended }
	if c, err = connectBench(ctx, &sdk.IOTransport{Reader: ourIn, Writer: ourOut}); err != nil {
		leave()
	}
	return c, leave, err
}

// compareCalls measures one tool on both sides, in turns.
func compareCalls(ctx context.Context, bare, ours *sdk.ClientSession, tool string, arguments func(i int) any) (cost wrapCost, err error) {
	timed := func(c *sdk.ClientSession, i int) func() (float64, error) {
		return func() (float64, error) {
			began := time.Now()
			r, err := c.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: arguments(i)})
			if err == nil && r.IsError {
				err = fmt.Errorf("%s: %v", tool, r.Content)
			}
			return float64(time.Since(began).Microseconds()) / 1000, err
		}
	}
	var a, b, added []float64
	for i := range wrapCalls + 1 {
		wrapped, direct, err := inTurn(i, timed(ours, 2*i), timed(bare, 2*i+1))
		if err != nil {
			return cost, err
		}
		if i > 0 { // the first opens the session
			a, b, added = append(a, wrapped), append(b, direct), append(added, wrapped-direct)
		}
	}
	return wrapCost{Bare: median(b), Wrapped: median(a), Added: median(added)}, nil
}
