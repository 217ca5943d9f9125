package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.temporal.io/sdk/client"

	"github.com/seed-62bf7108/unwind/activities/journal"
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
	// Update is what an update of a bare workflow costs that runs an activity, and Record what the
	// documents of an undo record cost: both measured in turns with the changing calls.
	Update float64 `json:"update_ms"`
	Record float64 `json:"record_ms"`
}

type wrapCost struct {
	Bare    float64 `json:"bare_ms"`
	Wrapped float64 `json:"wrapped_ms"`
	Added   float64 `json:"added_ms"`
}

// wrapped measures calls of a server through starter mcp --wrap against calls of the same server
// without it.
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
	err = errors.Join(os.WriteFile(declarations, []byte(mcptest.Declarations), 0o600),
		os.Setenv("TEMPORAL_ADDRESS", s.server.Address),
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

	update, leaveUpdates, err := s.bareUpdates(ctx)
	if err != nil {
		return f, nil, err
	}
	defer leaveUpdates()
	record, err := writeRecords(filepath.Join(s.dir, "records"))
	if err != nil {
		return f, nil, err
	}
	f.Calls = wrapCalls
	var parts []float64
	f.Change, parts, err = compareCalls(ctx, bare, ours, "put_note",
		func(i int) any { return map[string]any{"id": "a", "body": fmt.Sprint(i)} }, update, record)
	if err != nil {
		return f, nil, err
	}
	f.Update, f.Record = parts[0], parts[1]
	if f.Read, _, err = compareCalls(ctx, bare, ours, "get_note",
		func(int) any { return map[string]any{"id": "a"} }); err != nil {
		return f, nil, err
	}
	fmt.Printf("\n%-44s %12s %12s %12s\n", "", "bare", "wrapped", "added")
	for _, row := range []struct {
		name string
		wrapCost
	}{{"a call that reads", f.Read}, {"a call with a declared look and undo", f.Change}} {
		fmt.Printf("%-44s %9.1f ms %9.1f ms %9.1f ms   (target at most %.0f)\n", row.name, row.Bare, row.Wrapped, row.Added,
			maxWrapMS)
		if row.Added > maxWrapMS {
			missed = append(missed,
				fmt.Sprintf("%s through a proxy takes %.1f ms more, not at most %.0f", row.name, row.Added, maxWrapMS))
		}
	}
	fmt.Printf("%-44s %12s %9.1f ms\n%-44s %12s %9.1f ms\n\n", "an update that runs a bare activity", "", f.Update,
		"an undo record: three documents, synced", "", f.Record)
	return f, missed, nil
}

// bareUpdates begins a workflow of updates, and returns what makes one.
func (s *stage) bareUpdates(ctx context.Context) (update func() error, leave func(), err error) {
	run, err := s.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: queue}, "bare-calls")
	if err != nil {
		return nil, nil, err
	}
	update = func() error {
		h, err := s.client.UpdateWorkflow(ctx,
			client.UpdateWorkflowOptions{WorkflowID: run.GetID(), UpdateName: bareUpdate,
				WaitForStage: client.WorkflowUpdateStageCompleted})
		if err != nil {
			return err
		}
		return h.Get(ctx, nil)
	}
	return update, func() { _ = s.client.CancelWorkflow(ctx, run.GetID(), "") }, nil
}

// writeRecords returns what writes what a call writes for its undo, one document after the other.
func writeRecords(dir string) (write func() error, err error) {
	j, err := journal.Open(dir)
	return func() error {
		raw := make([]byte, 16)
		rand.Read(raw)
		t, err := j.Token(hex.EncodeToString(raw))
		for _, name := range []string{journal.Record, "answered", journal.Applied} {
			document := strings.Repeat("x", 500)
			if err == nil {
				_, err = t.Create(name, &document)
			}
		}
		return err
	}, err
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

// compareCalls measures one tool on both sides, and what each part costs, in turns.
func compareCalls(ctx context.Context, bare, ours *sdk.ClientSession, tool string, arguments func(i int) any,
	parts ...func() error) (cost wrapCost, ofParts []float64, err error) {
	timed := func(c *sdk.ClientSession, i int) func() (float64, error) {
		return func() (float64, error) {
			began := time.Now()
			r, err := c.CallTool(ctx,
				&sdk.CallToolParams{Name: tool, Arguments: arguments(i), Meta: sdk.Meta{"claudecode/toolUseId": rand.Text()}})
			if err == nil && r.IsError {
				err = fmt.Errorf("%s: %v", tool, r.Content)
			}
			return float64(time.Since(began).Microseconds()) / 1000, err
		}
	}
	var a, b, added []float64
	partly := make([][]float64, len(parts))
	for i := range wrapCalls + 1 {
		wrapped, direct, err := inTurn(i, timed(ours, 2*i), timed(bare, 2*i+1))
		if err != nil {
			return cost, nil, err
		}
		if i > 0 { // the first opens the session
			a, b, added = append(a, wrapped), append(b, direct), append(added, wrapped-direct)
		}
		for n, part := range parts {
			began := time.Now()
			if err := part(); err != nil {
				return cost, nil, err
			}
			partly[n] = append(partly[n], float64(time.Since(began).Microseconds())/1000)
		}
	}
	for _, each := range partly {
		ofParts = append(ofParts, median(each))
	}
	return wrapCost{Bare: median(b), Wrapped: median(a), Added: median(added)}, ofParts, nil
}
