// Package redistest starts real Redis servers for tests.
package redistest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	client "github.com/redis/go-redis/v9"

	"github.com/seed-62bf7108/unwind/testrun"
)

// Server is a running server.
type Server struct {
	*testrun.Server

	names atomic.Int64
}

// Durable are settings with which a server keeps all that it has answered through a crash of its
// own. With the preset, everysec, it may answer before it has written.
var Durable = []string{"--appendonly", "yes", "--appendfsync", "no", "--databases", "16384"}

var start = sync.OnceValues(func() (*Server, error) { return Start(Durable...) })

// Missing says why no server can be started on this machine; nil where one can.
func Missing() error {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return errors.New("there is no redis-server on the PATH: apt-get install redis-server")
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

// Start starts a server on a socket in a folder of its own, with more options of the program.
func Start(options ...string) (*Server, error) {
	if err := Missing(); err != nil {
		return nil, err
	}
	made, err := testrun.NewServer("redis")
	if err != nil {
		return nil, err
	}
	s := &Server{Server: made}
	s.Command = func() *exec.Cmd {
		return exec.Command("redis-server",
			append([]string{"--port", "0", "--unixsocket", s.Socket(), "--dir", s.Dir, "--save", "", "--daemonize", "no"},
				options...)...)
	}
	s.Answers = func() error {
		c := s.Client(0)
		defer c.Close()
		if err := c.Ping(context.Background()).Err(); !client.HasErrorPrefix(err, "NOAUTH") {
			return err
		}
		return nil
	}
	return s, s.Restart()
}

// Socket is the path of the server's socket.
func (s *Server) Socket() string { return filepath.Join(s.Dir, "socket") }

// Database returns the number of a logical database that no other test uses, of those above the
// ones that a plan looks for.
func (s *Server) Database() int { return 15 + int(s.names.Add(1)) }

// URL is the address of a logical database.
func (s *Server) URL(database int) string {
	return fmt.Sprintf("unix://%s?db=%d", s.Socket(), database)
}

// Client is a client of its own.
func (s *Server) Client(database int) *client.Client {
	return client.NewClient(&client.Options{Network: "unix", Addr: s.Socket(), DB: database, Protocol: 2, MaxRetries: -1})
}

// Run runs commands, each with its arguments in one line.
func Run(t testing.TB, c *client.Client, lines ...string) {
	t.Helper()
	for _, line := range lines {
		var args []any
		for each := range strings.FieldsSeq(line) {
			args = append(args, each)
		}
		if err := c.Do(t.Context(), args...).Err(); err != nil && !errors.Is(err, client.Nil) {
			t.Fatalf("%s: %v", line, err)
		}
	}
}

// Dump is what a database holds, except for what is ours: each key with its type, its content and
// the time at which it expires. It reads by commands of each type, and not by DUMP, whose bytes
// depend on how the server stores a value.
func Dump(ctx context.Context, c *client.Client) (string, error) { return DumpKeys(ctx, c, "*") }

// DumpKeys is what Dump says of the keys that match a pattern.
func DumpKeys(ctx context.Context, c *client.Client, pattern string) (string, error) {
	keys, err := c.Keys(ctx, pattern).Result()
	if err != nil {
		return "", err
	}
	slices.Sort(keys)
	var b strings.Builder
	for _, key := range keys {
		if strings.HasPrefix(key, "unwind:") {
			continue
		}
		if err := dumpKey(ctx, c, &b, key); err != nil {
			return "", fmt.Errorf("%s: %w", key, err)
		}
	}
	return b.String(), nil
}

func dumpKey(ctx context.Context, c *client.Client, b *strings.Builder, key string) error {
	kind, err := c.Type(ctx, key).Result()
	if err != nil {
		return err
	}
	expires, err := c.Do(ctx, "PEXPIRETIME", key).Int64()
	if err != nil {
		return err
	}
	var value any
	switch kind {
	case "string":
		text, failed := c.Get(ctx, key).Result()
		value, err = hex.EncodeToString([]byte(text)), failed
		if len(text) > 1000 {
			value = sha256.Sum256([]byte(text))
		}
	case "list":
		value, err = c.LRange(ctx, key, 0, -1).Result()
	case "set":
		members, failed := c.SMembers(ctx, key).Result()
		slices.Sort(members)
		value, err = members, failed
	case "hash":
		fields, failed := c.HGetAll(ctx, key).Result()
		var lines []string
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			lines = append(lines, name+"="+fields[name])
		}
		value, err = lines, failed
	case "zset":
		value, err = c.ZRangeWithScores(ctx, key, 0, -1).Result()
	case "stream":
		full, failed := c.XInfoStreamFull(ctx, key, 0).Result()
		if err = failed; err == nil {
			full.RadixTreeKeys, full.RadixTreeNodes = 0, 0
			for n, group := range full.Groups { // a server that restarts forgets or computes some of it
				full.Groups[n].EntriesRead, full.Groups[n].Lag = 0, 0
				for i := range group.Consumers {
					group.Consumers[i].SeenTime, group.Consumers[i].ActiveTime = time.Time{}, time.Time{}
				}
			}
			value = fmt.Sprintf("%+v", *full)
		}
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(b, "%q %s %d %q\n", key, kind, expires, value)
	return nil
}
