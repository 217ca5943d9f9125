package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	client "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/keyvalue"
)

const (
	connectLimit = 10 * time.Second
	// answerLimit is how long an answer may take, whatever the limit of the call: a server that was
	// stopped never answers.
	answerLimit = time.Minute
	// oldestMajor and oldestMinor are the first version that this is tested with.
	oldestMajor, oldestMinor = 3, 4
)

// connection is a connection for one call.
type connection struct {
	Database

	client *client.Client
	ctx    context.Context //nolint:containedctx // a connection serves one call, and ends with it
	name   string
	id     string // of the journal that a call expects
}

// connect opens a connection. Its errors name no address.
func (w *world) connect(ctx context.Context, name string) (*connection, error) {
	d, known := w.Databases[name]
	if !known {
		return nil, keyvalue.Unknown(configKey, name, w.Databases)
	}
	o := client.Config{
		Endpoints: d.Endpoints, DialTimeout: connectLimit, Context: ctx, Logger: zap.NewNop(), Username: d.User,
		MaxUnaryRetries: 1, // the caller tries again
		DialOptions:     []grpc.DialOption{grpc.WithChainUnaryInterceptor(failFast)},
	}
	if d.Password != nil {
		password, err := d.Password()
		if err != nil {
			return nil, refused("database %s: the password: %v", name, err)
		}
		if password == "" {
			return nil, refused("database %s: the secret that holds the password is empty", name)
		}
		activities.MaskerFrom(ctx).Add(password)
		o.Password = password
	}
	var err error
	if o.TLS, err = d.TLS.load(); err != nil {
		return nil, refused("database %s: tls: %v", name, err)
	}
	c := &connection{Database: d, ctx: ctx, name: name}
	if c.client, err = client.New(o); err != nil {
		return nil, c.explain(err)
	}
	if d.Namespace != "" {
		c.client.KV = namespace.NewKV(c.client.KV, d.Namespace)
	}
	return c, nil
}

// failFast has a request fail where no member can be reached: the client itself waits for one.
func failFast(ctx context.Context, method string, req, reply any, line *grpc.ClientConn, invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption) error {
	return invoke(ctx, method, req, reply, line, append(opts, grpc.WaitForReady(false))...)
}

func (c *connection) end() { _ = c.client.Close() } // nothing is pending

// load reads the files; nil if there are none.
func (t TLS) load() (*tls.Config, error) {
	if t == (TLS{}) {
		return nil, nil //nolint:nilnil // none is a config of its own
	}
	made := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		raw, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, err
		}
		made.RootCAs = x509.NewCertPool()
		if !made.RootCAs.AppendCertsFromPEM(raw) {
			return nil, fmt.Errorf("%s holds no certificate in PEM format", t.CA)
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, err
		}
		made.Certificates = []tls.Certificate{pair}
	}
	return made, nil
}

// limited is the context of one request.
func (c *connection) limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.ctx, answerLimit)
}

// commit runs a transaction.
func (c *connection) commit(conditions []client.Cmp, then []client.Op) (*client.TxnResponse, error) {
	ctx, end := c.limited()
	defer end()
	return c.client.Txn(ctx).If(conditions...).Then(then...).Commit()
}

// explain turns an error of the server or of the line into one of the contract. What it says names
// no address.
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
	switch {
	case errors.Is(err, rpctypes.ErrAuthFailed):
		return refused(
			"database %s: the server refuses the worker's user or password; correct %s.%s.user, or the secret that holds "+
				"the password", c.name, configKey, c.name)
	case errors.Is(err, rpctypes.ErrUserEmpty):
		return refused("database %s: the server asks for a user: give user and password in %s.%s", c.name, configKey, c.name)
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return refused(
			"database %s: the worker's user lacks a permission for one of the keys; docs/etcd.md lists those that it needs",
			c.name)
	case errors.Is(err, rpctypes.ErrTooManyOps), errors.Is(err, rpctypes.ErrRequestTooLarge):
		return refused(
			"database %s: the server allows less in one transaction than usual (%v): make several steps of it; nothing "+
				"was changed", c.name, err)
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf(
			"database %s: the server's space is used up (an alarm NOSPACE), and nothing was changed; it is tried again", c.name)
	}
	said, isServers := errors.AsType[rpctypes.EtcdError](err)
	if !isServers || said.Code() == codes.Unavailable {
		return fmt.Errorf("database %s: the server cannot be reached, or does not answer; it is tried again", c.name)
	}
	return fmt.Errorf("database %s: %s", c.name, said.Error())
}

// checkVersion refuses a server that is too old. It asks the members in turn until one answers.
func (c *connection) checkVersion() error {
	var version string
	for _, each := range c.Endpoints {
		ctx, end := c.limited()
		s, err := c.client.Status(ctx, each)
		end()
		if err == nil {
			version = s.Version
			break
		}
	}
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	m, err1 := strconv.Atoi(major)
	n, err2 := strconv.Atoi(minor)
	if errors.Join(err1, err2) == nil && (m < oldestMajor || m == oldestMajor && n < oldestMinor) {
		return refused("database %s: the server is etcd %s; %d.%d or newer is needed", c.name, version, oldestMajor,
			oldestMinor)
	}
	return nil // one that does not tell is found out by what it does
}

func refused(format string, args ...any) error {
	return activities.Errorf(activities.Refused, format, args...)
}
