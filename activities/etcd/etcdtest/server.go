// Package etcdtest starts real etcd servers for tests.
package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	client "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/seed-62bf7108/unwind/testrun"
)

// Server is a running server, a cluster of one member. It ends with this process at the latest.
type Server struct {
	dir     string
	scheme  string
	address string // of clients
	peers   string
	options []string
	process *exec.Cmd
	ended   <-chan struct{} // closed when the process has ended
	names   atomic.Int64
}

var (
	start   = sync.OnceValues(func() (*Server, error) { return Start() })
	running sync.Map
)

// Missing says why no server can be started on this machine; nil where one can.
func Missing() error {
	if _, err := exec.LookPath("etcd"); err != nil {
		return errors.New("there is no etcd on the PATH: apt-get install etcd-server")
	}
	return nil
}

func need(t testing.TB) {
	t.Helper()
	if err := Missing(); err != nil {
		testrun.Skipf(t, "%v", err)
	}
}

// Need returns the server of the test binary.
func Need(t testing.TB) *Server {
	t.Helper()
	need(t)
	s, err := start()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Own starts a server for one test, with more options of the program.
func Own(t testing.TB, options ...string) *Server {
	t.Helper()
	need(t)
	s, err := Start(options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// Stop ends all servers that were started. Call it at the end of TestMain.
func Stop() {
	running.Range(func(s, _ any) bool {
		s.(*Server).Stop() //nolint:forcetypeassert // nothing else is stored
		return true
	})
}

// Start starts a server in a folder of its own, with more options of the program.
func Start(options ...string) (*Server, error) {
	if err := Missing(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "etcd-")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, scheme: "http", options: options}
	for _, each := range options {
		if strings.HasPrefix(each, "--cert-file") {
			s.scheme = "https"
		}
	}
	running.Store(s, true)
	for range 5 { // somebody else may take the port that was free
		if s.address, err = freeAddress(); err != nil {
			break
		}
		if s.peers, err = freeAddress(); err != nil {
			break
		}
		if err = s.Restart(); err == nil {
			return s, nil
		}
	}
	s.Stop()
	return nil, err
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it ends at once
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// startLimit is how long a server may take until it answers.
const startLimit = time.Minute

// Restart starts a server that was killed, and returns when it accepts requests.
func (s *Server) Restart() error {
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	peers := "http://" + s.peers
	s.process = exec.Command("etcd", append([]string{
		"--data-dir", filepath.Join(s.dir, "data"), "--listen-client-urls", s.Endpoint(), "--advertise-client-urls", s.Endpoint(),
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default=" + peers,
		"--heartbeat-interval", "50", "--election-timeout", "500",
	}, s.options...)...)
	s.process.Stdout, s.process.Stderr = log, log
	if s.ended, err = testrun.StartChild(s.process, syscall.SIGKILL); err != nil {
		return err
	}
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for began := time.Now(); ; <-again.C {
		conn, err := net.Dial("tcp", s.address) //nolint:noctx // it is this machine
		if err == nil {
			return conn.Close() // it listens when it is ready
		}
		select {
		case <-s.ended:
			said, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			return fmt.Errorf("the server does not start: %s", said)
		default:
		}
		if time.Since(began) > startLimit {
			return fmt.Errorf("the server does not answer: %w", err)
		}
	}
}

// Kill kills the server with SIGKILL.
func (s *Server) Kill() {
	_ = s.process.Process.Kill()
	<-s.ended
}

// Signal sends the server a signal: SIGSTOP stalls it, SIGCONT lets it go on.
func (s *Server) Signal(signal syscall.Signal) error { return s.process.Process.Signal(signal) }

// Stop ends the server, and removes all that it has.
func (s *Server) Stop() {
	if s.process != nil && s.ended != nil {
		s.Kill()
	}
	_ = os.RemoveAll(s.dir)
	running.Delete(s)
}

// Dir is the folder of the server's data.
func (s *Server) Dir() string { return s.dir }

// Address is where the server listens.
func (s *Server) Address() string { return s.address }

// Endpoint is the URL of the server.
func (s *Server) Endpoint() string { return s.scheme + "://" + s.address }

// Namespace returns a prefix of keys that no other test uses.
func (s *Server) Namespace() string { return fmt.Sprintf("test-%d/", s.names.Add(1)) }

// Client is a client of its own.
func (s *Server) Client(t testing.TB) *client.Client {
	t.Helper()
	c, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Connect makes a client that the caller closes.
func (s *Server) Connect() (*client.Client, error) {
	return client.New(client.Config{Endpoints: []string{s.Endpoint()}, Logger: zap.NewNop(), DialTimeout: startLimit})
}

// Dump is what keys with a prefix hold, except for what is ours: each key with its value and its lease. Revisions and versions are not in it.
func Dump(ctx context.Context, c client.KV, prefix string) (string, error) {
	r, err := c.Get(ctx, prefix+"\x00", client.WithRange(client.GetPrefixRangeEnd(prefix)))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, kv := range r.Kvs {
		key := strings.TrimPrefix(string(kv.Key), prefix)
		if !strings.HasPrefix(key, "unwind/") {
			fmt.Fprintf(&b, "%q %q lease %x\n", key, kv.Value, kv.Lease)
		}
	}
	return b.String(), nil
}
