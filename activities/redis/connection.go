package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	client "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/keyvalue"
)

const (
	connectLimit = 10 * time.Second
	// answerLimit is how long an answer may take, whatever the limit of the call: a server that was
	// stopped never answers.
	answerLimit = time.Minute
	// oldest is the first version with all that the scripts use.
	oldest = 7
)

// connection is a connection for one call.
type connection struct {
	Database

	client *client.Client
	ctx    context.Context //nolint:containedctx // a connection serves one call, and ends with it
	name   string
	number int // of the logical database
	// address is a digest of that of the server, and of the number.
	address activities.Digest
	id      string // of the journal that a call expects
	info    map[string]string
	end     func()
}

// connect opens a connection, and refuses a server that cannot be used. Its errors name no part of
// the address.
func (w *world) connect(ctx context.Context, name string) (*connection, error) {
	d, known := w.Databases[name]
	if !known {
		return nil, keyvalue.Unknown(configKey, name, w.Databases)
	}
	address, err := d.URL()
	if err != nil {
		return nil, refused("database %s: the address: %v", name, err)
	}
	o, err := client.ParseURL(address)
	if err != nil {
		return nil, refused(
			"database %s: the address is not one of Redis; write redis://USER:PASSWORD@HOST:PORT/NUMBER, rediss:// for TLS, "+
				"or unix:///PATH?db=NUMBER", name)
	}
	activities.MaskerFrom(ctx).Add(address)
	activities.MaskerFrom(ctx).Add(o.Password)
	o.Protocol, o.PoolSize, o.MaxRetries, o.DialerRetries = 2, 1, -1, 1
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.ContextTimeoutEnabled = connectLimit, answerLimit, answerLimit, true
	o.DisableIdentity, o.ClientName = true, "unwind"
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	var line cutLine
	dial := client.NewDialer(o)
	o.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		return line.keep(dial(ctx, network, address))
	}
	c := &connection{Database: d, client: client.NewClient(o), ctx: ctx, name: name, number: o.DB,
		address: activities.DigestOf([]byte(o.Network), []byte(o.Addr), []byte(strconv.Itoa(o.DB)))}
	stop := context.AfterFunc(ctx, line.cut)
	c.end = func() {
		stop()
		_ = c.client.Close() // nothing is pending
	}
	if err := c.begin(); err != nil {
		c.end()
		return nil, err
	}
	return c, nil
}

// silenceClient keeps the client from logging: what it would say names addresses, and our errors
// say the rest.
var silenceClient = sync.OnceFunc(func() { client.SetLogger(silence{}) })

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// cutLine ends the connections of a call that is cancelled: the client itself waits for an answer
// until a deadline. It has one for pipelines and one for all else.
type cutLine struct {
	mu    sync.Mutex
	conns []net.Conn
	over  bool
}

func (l *cutLine) keep(conn net.Conn, err error) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	l.conns = append(l.conns, conn)
	if l.over {
		_ = conn.Close() // the next use of it says so
	}
	return conn, nil
}

func (l *cutLine) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	for _, conn := range l.conns {
		_ = conn.Close()
	}
}

// begin asks the server what it is.
func (c *connection) begin() error {
	text, err := c.client.Info(c.ctx).Result()
	if err != nil {
		return c.explain(err)
	}
	c.info = map[string]string{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		c.info[key] = value
	}
	version := c.info["redis_version"]
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err != nil || n < oldest {
		return refused("database %s: the server is Redis %s; %d.0 or newer is needed", c.name, version, oldest)
	}
	if c.info["cluster_enabled"] == "1" {
		return refused(
			"database %s: the server belongs to a cluster, which is not supported: the undo record must be in the same slot "+
				"as the keys; "+
				"use a server that is not in cluster mode", c.name)
	}
	if c.info["role"] == "slave" {
		return refused("database %s: the server is a read-only replica; name the primary", c.name)
	}
	return nil
}

// explain turns an error of the server or of the line into one of the contract. What it says names
// no part of the address.
func (c *connection) explain(err error) error {
	if err == nil {
		return nil
	}
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	if at, limited := c.ctx.Deadline(); limited && !time.Now().Before(at) { // the line was faster than the context
		return context.DeadlineExceeded
	}
	said, isServers := errors.AsType[client.Error](err)
	if !isServers {
		return fmt.Errorf("database %s: the server cannot be reached, or does not answer; it is tried again", c.name)
	}
	code, _, _ := strings.Cut(said.Error(), " ")
	switch code {
	case "WRONGPASS", "NOAUTH":
		return refused(
			"database %s: the server refuses the worker's user or password (%s); correct the secret that holds the address",
			c.name, code)
	case "NOPERM":
		return refused("database %s: the worker's user lacks a permission (%s); docs/redis.md lists those that it needs",
			c.name, said.Error())
	case "READONLY":
		return refused("database %s: the server is a read-only replica; name the primary", c.name)
	case "OOM":
		return fmt.Errorf("database %s: the server's memory is full (maxmemory), and nothing was changed; it is tried again",
			c.name)
	}
	if strings.Contains(said.Error(), "The user executing the script can't") {
		return refused("database %s: the worker's user lacks a permission, also to keys that no step names; docs/redis.md "+
			"lists those that it needs for checkpoints (%s)", c.name, said.Error())
	}
	if strings.Contains(said.Error(), "DB index is out of range") {
		return refused("database %s: the server has no logical database %d; correct the secret that holds the address",
			c.name, c.number)
	}
	return fmt.Errorf("database %s: %s", c.name, said.Error())
}

// persistence says what of the server's data, and so of the undo records, may be lost; empty if
// nothing is known to be.
func (c *connection) persistence() []string {
	var all []string
	if c.info["aof_enabled"] == "0" {
		saves, err := c.client.ConfigGet(c.ctx, "save").Result()
		switch {
		case err != nil:
			all = append(all,
				"the server has no append-only file, and may lose undo records together with its data when it restarts")
		case saves["save"] == "":
			all = append(all,
				"the server keeps nothing through a restart (neither AOF nor RDB): its undo records are then lost with its data")
		default:
			all = append(all,
				"the server saves snapshots only (RDB): a crash loses what it did since the last one, with the undo records")
		}
	}
	if policy := c.evicting(); strings.HasPrefix(policy, "allkeys-") {
		all = append(all,
			"the server evicts any key when its memory is full (maxmemory-policy "+policy+
				"): it can lose undo records, which is then reported")
	}
	return all
}

// evicting is the policy by which the server evicts keys; empty if it does not.
func (c *connection) evicting() string {
	if policy := c.info["maxmemory_policy"]; c.info["maxmemory"] != "0" && policy != "noeviction" {
		return policy
	}
	return ""
}

// eviction says what a server that evicts keys means for a whole database.
func (c *connection) eviction() []string {
	policy := c.evicting()
	if policy == "" {
		return nil
	}
	return []string{"the server evicts keys when its memory is full (maxmemory-policy " + policy +
		"): what it has evicted before is in no checkpoint, and it may evict keys that were put back"}
}
