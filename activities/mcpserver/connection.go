package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-62bf7108/unwind/internal/process"
	"github.com/seed-62bf7108/unwind/internal/turns"
)

// protocol is the version that we ask for; a server answers with one that it knows.
const protocol = "2025-11-25"

// connection is a server that runs, and the pipe to it. It reads answers as they were sent: the
// SDK's client would decode a result that it does not know, such as a task, into one that looks
// like a success.
type connection struct {
	id   process.Identity
	wire sdk.Connection
	// offers is what the server has said of itself.
	offers Offers
	// heard is told what the server notifies its client of; nil if nobody listens.
	heard func(Notice)
	// exited is closed when the process has ended and was waited for.
	exited chan struct{}
	// listing is the turn to read the list of tools.
	listing turns.Turns

	mu        sync.Mutex
	catalog   catalog
	isChanged bool // its catalog is another now, as the server has said, or was not read yet
	last      int64
	replies   int // the answers of ours that the server has not read yet
	waiting   map[int64]chan Answer
	unsettled map[string]int // by token: calls that are sent and not answered
	isSilent  bool           // a request was given up on at its deadline, and nothing was answered since
	ended     chan struct{}
	why       error
}

var errEnded = errors.New("the server has ended")

// start starts a server. It does not end with ctx.
func start(ctx context.Context, s Server, heard func(Notice)) (*connection, error) {
	c := exec.Command("/bin/sh", "-c", s.Command)
	if s.URL != "" {
		var err error
		if c, err = newBridgeCommand(); err != nil {
			return nil, err
		}
	}
	c.Env = s.Env
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := startHeard(c); err != nil {
		return nil, err
	}
	id, err := process.Identify(c.Process.Pid)
	if err != nil {
		return nil, errors.Join(err, c.Process.Kill(), c.Wait())
	}
	if s.URL != "" {
		job, _ := json.Marshal(address{s.URL, s.Token}) // plain data
		if _, err := in.Write(append(job, '\n')); err != nil {
			return nil, errors.Join(err, c.Process.Kill(), c.Wait())
		}
	}
	transport := sdk.IOTransport{Reader: out, Writer: in, MaxLineLength: maxMessage}
	wire, err := transport.Connect(ctx)
	if err != nil {
		return nil, errors.Join(err, c.Process.Kill(), c.Wait())
	}
	it := &connection{
		id: id, wire: wire, heard: heard, exited: make(chan struct{}), waiting: map[int64]chan Answer{},
		unsettled: map[string]int{}, ended: make(chan struct{}),
		isChanged: true,
	}
	go func() {
		defer close(it.exited)
		it.receive()
		_ = wire.Close()
		_ = c.Wait() // its exit status says nothing that its end does not
	}()
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	if err := it.begin(ctx); err != nil {
		it.kill()
		return nil, err
	}
	return it, nil
}

// startHeard starts a command, and passes on what it and its children write to their standard
// error. Who waits for the command does not wait for them.
func startHeard(c *exec.Cmd) error {
	from, to, err := os.Pipe()
	if err != nil {
		return err
	}
	c.Stderr = to
	if err := errors.Join(c.Start(), to.Close()); err != nil {
		return errors.Join(err, from.Close())
	}
	go func() {
		out := &errorOutput{to: os.Stderr, now: time.Now}
		_, _ = io.Copy(out, from) // it ends with them
		out.tellDropped()
		_ = from.Close()
	}()
	return nil
}

// begin shakes hands, and reads the list of tools.
func (c *connection) begin(ctx context.Context) error {
	hello := map[string]any{
		"protocolVersion": protocol, "capabilities": map[string]any{},
		"clientInfo": map[string]any{"name": "unwind", "version": "1"},
	}
	a, err := c.send(ctx, "initialize", hello)
	if err == nil && a.Error != nil {
		err = a.Error
	}
	if err == nil {
		err = json.Unmarshal(a.Result, &c.offers)
	}
	if err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	select {
	case err := <-c.notify(ctx, "notifications/initialized", map[string]any{}):
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	_, err = c.catalogNow(ctx)
	return err
}

// call calls a tool under a token. An error says that there is no answer, and nothing of what the
// call has done.
func (c *connection) call(ctx context.Context, token, tool string, arguments any) (Answer, error) {
	return c.callWith(ctx, token, tool, map[string]any{"name": tool, "arguments": arguments})
}

// callWith does so with parameters of the protocol.
func (c *connection) callWith(ctx context.Context, token, tool string, params any) (Answer, error) {
	if ctx.Err() != nil {
		return Answer{}, context.Cause(ctx)
	}
	c.mu.Lock()
	c.unsettled[token]++
	c.mu.Unlock()
	a, err := c.send(ctx, "tools/call", params)
	_, isUnfit := errors.AsType[unfitError](err)
	if err != nil && !isUnfit {
		return a, fmt.Errorf("%s: no answer: %w", tool, err)
	}
	c.mu.Lock()
	if c.unsettled[token]--; c.unsettled[token] == 0 {
		delete(c.unsettled, token)
	}
	c.mu.Unlock()
	if isUnfit {
		return a, fmt.Errorf("%s: %w", tool, err)
	}
	return a, nil
}

// isUnsettled reports whether a call under a token was never answered: the server may still be at
// it.
func (c *connection) isUnsettled(token string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unsettled[token] > 0
}

// send sends a request, and waits for its answer. An answer that is not kept as it was sent is an
// unfitError.
func (c *connection) send(ctx context.Context, method string, params any) (Answer, error) {
	raw, err := json.Marshal(params)
	if err != nil {
		return Answer{}, err
	}
	c.mu.Lock()
	c.last++
	n, reply := c.last, make(chan Answer, 1)
	c.waiting[n] = reply
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waiting, n)
	}()
	id, err := jsonrpc.MakeID(float64(n))
	if err != nil {
		return Answer{}, err
	}
	written := c.write(ctx, &jsonrpc.Request{ID: id, Method: method, Params: raw})
	for {
		select {
		case err := <-written:
			if err != nil {
				return Answer{}, err
			}
			written = nil
		case a := <-reply:
			return a, checkAnswer(a)
		case <-c.ended:
			return Answer{}, c.why
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				c.mu.Lock()
				c.isSilent = true
				c.mu.Unlock()
			}
			// Whoever waits has left, and nobody needs to know whether the server takes notice.
			c.notify(ctx, "notifications/cancelled", map[string]any{"requestId": n})
			return Answer{}, context.Cause(ctx)
		}
	}
}

// notify sends a message that has no answer. It returns like write.
func (c *connection) notify(ctx context.Context, method string, params map[string]any) <-chan error {
	raw, _ := json.Marshal(params) // they are ours
	return c.write(ctx, &jsonrpc.Request{Method: method, Params: raw})
}

// write writes a message. A server that does not read makes it wait, so it returns at once, and
// later the error, or nil, when it is written.
func (c *connection) write(ctx context.Context, m jsonrpc.Message) <-chan error {
	written := make(chan error, 1)
	go func() {
		err := c.wire.Write(context.WithoutCancel(ctx), m)
		if err != nil {
			err = fmt.Errorf("%w: %w", errEnded, err)
		}
		written <- err
	}()
	return written
}

// receive reads what the server sends, until it ends. A second answer to a request finds nobody who
// waits for it.
func (c *connection) receive() {
	defer close(c.ended)
	for {
		message, err := c.wire.Read(context.Background())
		if err != nil {
			c.why = fmt.Errorf("%w: %w", errEnded, err)
			return
		}
		switch m := message.(type) {
		case *jsonrpc.Response:
			n, _ := m.ID.Raw().(int64)
			c.mu.Lock()
			c.isSilent = false
			if reply := c.waiting[n]; reply != nil {
				reply <- answerOf(m)
				delete(c.waiting, n)
			}
			c.mu.Unlock()
		case *jsonrpc.Request:
			if !m.ID.IsValid() {
				c.hear(m)
			} else if !c.refuse(m) {
				c.why = fmt.Errorf("%w: it asks, and reads no answer", errEnded)
				return
			}
		}
	}
}

// hear takes a notification.
func (c *connection) hear(m *jsonrpc.Request) {
	if m.Method == ToolsChanged {
		c.mu.Lock()
		c.isChanged = true
		c.mu.Unlock()
	}
	if c.heard != nil && len(m.Params) <= maxNotice {
		c.heard(Notice{m.Method, m.Params})
	}
}

// refuse answers what a server asks of its client: we can be asked for nothing but a sign of life.
// It reports whether the server still reads what it is answered.
func (c *connection) refuse(r *jsonrpc.Request) bool {
	reply := &jsonrpc.Response{ID: r.ID, Result: json.RawMessage("{}")}
	if r.Method != "ping" {
		reply = &jsonrpc.Response{ID: r.ID,
			Error: &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "this client has no such method"}}
	}
	c.mu.Lock()
	c.replies++
	reads := c.replies <= maxReplies
	c.mu.Unlock()
	if !reads {
		return false
	}
	written := c.write(context.Background(), reply)
	go func() {
		if err := <-written; err != nil {
			return // the server has ended: the next read says so
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.replies--
	}()
	return true
}

// isAlive reports whether the server still reads and answers.
func (c *connection) isAlive() bool {
	select {
	case <-c.ended:
		return false
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.isSilent && c.id.IsAlive()
}

// close ends the server, and lets it end by itself first.
func (c *connection) close() {
	_ = c.wire.Close() // a well-behaved server ends when its input does
	select {
	case <-c.exited:
	case <-time.After(leaveWithin):
	}
	c.kill()
}

// kill ends the server at once.
func (c *connection) kill() {
	_ = c.wire.Close() // what has left its session may hold the pipe
	c.id.KillSession()
	<-c.exited
}
