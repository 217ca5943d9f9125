package devserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"go.temporal.io/sdk/client"
)

// Options says which server to start. The zero value is a server in memory on free ports without a
// UI.
type Options struct {
	// DB is the SQLite file that holds everything, and is created if it is missing. Defaults to
	// memory, which a restart forgets.
	DB string
	// Port of the gRPC frontend. Defaults to a free one.
	Port int
	// UI starts the web UI as well.
	UI bool
	// UIPort is the port of the UI. Defaults to a free one.
	UIPort int
	// Namespace to create. Defaults to "default".
	Namespace string
	// Settings are values of Temporal's dynamic configuration by key, in addition to those that make a
	// single host fast.
	Settings map[string]any
	// Log gets a line about everything that takes long. Defaults to nowhere.
	Log io.Writer
}

func (o Options) withDefaults() (Options, error) {
	if o.Namespace == "" {
		o.Namespace = "default"
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.DB != "" {
		path, err := filepath.Abs(o.DB)
		if err != nil {
			return o, err
		}
		o.DB = path
	}
	return o, nil
}

// Server is a running Temporal server, a child of this process. Its methods must not be called at
// the same time.
type Server struct {
	Address   string // of the gRPC frontend, host:port
	UIURL     string // empty without a UI
	Namespace string

	opts    Options // with the chosen ports
	program program
	child   *child
}

const (
	startLimit = 60 * time.Second
	stopLimit  = 15 * time.Second
	// A free port may be taken by another process before the server binds it.
	startTries = 3
)

// Start finds or builds a server and runs it; it returns when clients can use it. ctx bounds the
// start only: the server runs until Stop, Kill or the end of this process.
func Start(ctx context.Context, opts Options) (*Server, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	p, err := findProgram(ctx, opts.Log)
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		s := &Server{Namespace: opts.Namespace, opts: opts, program: p}
		err := s.startChild(ctx)
		if err == nil {
			return s, nil
		}
		if try == startTries || !portTaken(err) || (opts.Port != 0 && (opts.UIPort != 0 || !opts.UI)) {
			return nil, err
		}
	}
}

func portTaken(err error) bool { return strings.Contains(err.Error(), "address already in use") }

// startChild runs the program with s.opts, in which it fills in free ports.
func (s *Server) startChild(ctx context.Context) error {
	if err := choosePorts(&s.opts); err != nil {
		return err
	}
	s.Address = loopbackAddress(s.opts.Port)
	if s.opts.UI {
		s.UIURL = "http://" + loopbackAddress(s.opts.UIPort)
	}
	child, err := startChild(s.program.newCommand(s.opts))
	if err != nil {
		return fmt.Errorf("start %s: %w", s.program.path, err)
	}
	s.child = child
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not ready within %s", startLimit))
	defer cancel()
	if err := s.waitReady(ctx); err != nil {
		child.kill()
		return fmt.Errorf("the Temporal server %s did not start: %w%s", s.program.path, err, child.lastStderr())
	}
	return nil
}

// ClientOptions returns what a client or worker needs to reach the server. Nothing is compressed:
// on the loopback interface that costs more than it saves.
func (s *Server) ClientOptions() client.Options {
	return client.Options{
		HostPort: s.Address, Namespace: s.Namespace,
		ConnectionOptions: client.ConnectionOptions{GrpcCompression: &client.GrpcCompressionNone{}},
	}
}

// Done is closed when the server process has ended, whatever ended it; Err says what it last
// printed.
func (s *Server) Done() <-chan struct{} { return s.child.done }

// Err is nil while the server runs and after Stop or Kill; otherwise it says how the server ended.
func (s *Server) Err() error {
	if !s.child.hasEnded() || s.child.asked.Load() {
		return nil
	}
	return fmt.Errorf("the Temporal server ended by itself: %w%s", orExitZero(s.child.waitErr), s.child.lastStderr())
}

// Stop ends the server gracefully, and kills it if that takes too long. It does nothing if the
// server has stopped.
func (s *Server) Stop() error {
	if s.child.stop(stopLimit) {
		return nil
	}
	s.child.kill()
	return fmt.Errorf("the Temporal server was killed: it did not stop within %s", stopLimit)
}

// Kill ends the server as a crash would.
func (s *Server) Kill() { s.child.kill() }

// Restart starts the server again with the same database and ports, and first stops it if it is
// running.
func (s *Server) Restart(ctx context.Context) error {
	if s.opts.DB == "" {
		return errors.New("a server in memory cannot be restarted: it would have forgotten all; give Options.DB a file")
	}
	if err := s.Stop(); err != nil {
		fmt.Fprintln(s.opts.Log, err)
	}
	return s.startChild(ctx)
}
