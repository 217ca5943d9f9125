package helper

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// ProcessName is the process name under which a program that calls Attend runs as a helper. Its one
// argument is the folder for layers.
const ProcessName = "unwind-overlay-helper"

func init() { //nolint:gochecknoinits // later the first thread may be another goroutine's
	if filepath.Base(os.Args[0]) == ProcessName {
		runtime.LockOSThread() // /proc shows the root and namespaces of the first thread, which must not change
	}
}

var attended atomic.Bool

// Attended reports whether this program can be its own helper.
func Attended() bool { return attended.Load() }

// Attend lets this program be its own helper: call it first in main. In a process that was started
// as a helper it does that work and never returns.
func Attend() {
	if filepath.Base(os.Args[0]) != ProcessName {
		attended.Store(true)
		return
	}
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE)
	if err := Serve(os.Args[1], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// idleLimit is how long a client keeps an unused helper.
const idleLimit = time.Minute

// Process is a helper that has been started.
type Process struct {
	// In takes requests; the helper ends when it is closed and all have been answered. Out carries
	// answers.
	In  io.WriteCloser
	Out io.Reader
	// Wait returns when the process is gone. It is called at the end of Out.
	Wait func()
}

// Starter starts a helper, which outlives ctx.
type Starter func(ctx context.Context) (Process, error)

// Client starts a helper on first use, and another if that has ended. It is safe for concurrent
// use.
type Client struct {
	starter Starter

	mu      sync.Mutex
	now     *helperProcess
	next    int
	closing bool
}

// helperProcess is a running helper.
type helperProcess struct {
	in      io.WriteCloser
	waiting map[int]chan<- Answer
	idle    *time.Timer
	ended   chan struct{}
}

// NewClient makes a client of helpers that start starts.
func NewClient(start Starter) *Client { return &Client{starter: start} }

// ErrEnded means that the helper ended without an answer.
var ErrEnded = errors.New("the overlay helper ended before it answered")

// Ask sends a request and waits for its answer. After an error that is not a [Failure], it is
// unknown how much of it was done.
func (c *Client) Ask(ctx context.Context, r Request) (Answer, error) {
	p, answer, err := c.send(ctx, r)
	if err != nil {
		return Answer{}, err
	}
	select {
	case a := <-answer:
		return a.result()
	case <-p.ended:
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	}
	select {
	case a := <-answer: // its last answer
		return a.result()
	default:
		return Answer{}, ErrEnded
	}
}

func (a Answer) result() (Answer, error) {
	if a.Failure != nil {
		return a, a.Failure
	}
	return a, nil
}

func (c *Client) send(ctx context.Context, r Request) (*helperProcess, <-chan Answer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return nil, nil, errors.New("the worker is stopping")
	}
	if c.now == nil {
		if err := c.start(ctx); err != nil {
			return nil, nil, fmt.Errorf("starting the overlay helper: %w", err)
		}
	}
	c.next++
	r.ID = c.next
	line, err := json.Marshal(r)
	if err != nil {
		return nil, nil, err
	}
	answer := make(chan Answer, 1)
	c.now.idle.Stop()
	c.now.waiting[r.ID] = answer
	if _, err := c.now.in.Write(append(line, '\n')); err != nil {
		delete(c.now.waiting, r.ID)
		return nil, nil, fmt.Errorf("asking the overlay helper: %w", err)
	}
	return c.now, answer, nil
}

// start starts a helper. The lock is held.
func (c *Client) start(ctx context.Context) error {
	started, err := c.starter(ctx)
	if err != nil {
		return err
	}
	p := &helperProcess{in: started.In, waiting: map[int]chan<- Answer{}, ended: make(chan struct{})}
	c.now = p
	p.idle = time.AfterFunc(idleLimit, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(p.waiting) > 0 {
			return
		}
		p.in.Close()
		if c.now == p {
			c.now = nil
		}
	})
	go func() {
		for answers := json.NewDecoder(bufio.NewReader(started.Out)); ; {
			var a Answer
			if answers.Decode(&a) != nil {
				break
			}
			c.mu.Lock()
			if waits, ok := p.waiting[a.ID]; ok {
				waits <- a
				delete(p.waiting, a.ID)
			}
			if len(p.waiting) == 0 {
				p.idle.Reset(idleLimit)
			}
			c.mu.Unlock()
		}
		p.idle.Stop()
		p.in.Close()
		started.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.now == p {
			c.now = nil
		}
		close(p.ended)
	}()
	return nil
}

// Close lets the helper finish its requests, and waits for its end.
func (c *Client) Close() {
	c.mu.Lock()
	c.closing = true
	p := c.now
	c.mu.Unlock()
	if p != nil {
		p.in.Close()
		<-p.ended
	}
}
