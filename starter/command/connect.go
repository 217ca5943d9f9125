package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/seed-62bf7108/unwind/deploy/devserver"
	"github.com/seed-62bf7108/unwind/worker/host"
)

// connection is a client with what commands tell about its server.
type connection struct {
	client.Client
	Namespace string
	Address   string
	// UI is the address of the Temporal UI; empty where it is not known.
	UI string
	// Named says that another starter needs to be told the address, as it would not find this server by itself.
	Named bool
}

// starter is how another terminal calls starter for this server.
func (c *connection) starter() string {
	if c.Named {
		return "TEMPORAL_ADDRESS=" + c.Address + " starter"
	}
	return "starter"
}

// connectLimit bounds the first answer of a server.
const connectLimit = 5 * time.Second

// connect dials the server that the user means.
func (p *program) connect(ctx context.Context) (*connection, error) {
	options, named, err := devserver.Configured()
	if err != nil {
		return nil, usageError{err}
	}
	c := &connection{Namespace: options.Namespace, Address: options.HostPort, UI: p.ui}
	source := "named by TEMPORAL_ADDRESS or the profile of the temporal CLI"
	if !named {
		if running, ok := findDev(); ok {
			c.Address, source = running.Address, "of the running starter dev"
			options = client.Options{Namespace: options.Namespace} // what a profile says of TLS and keys is for its own server
			if c.UI == "" {
				c.UI = running.UI
			}
			if c.Namespace == "" {
				c.Namespace = running.Namespace
			}
		} else {
			c.Address, source = client.DefaultHostPort, "the default; no starter dev is running"
		}
	}
	if onThisMachine(c.Address) && !answers(c.Address) { // a gRPC client would go on trying
		return nil, noServer(c.Address, source, nil)
	}
	if c.Namespace == "" {
		c.Namespace = client.DefaultNamespace
	}
	options.HostPort, options.Namespace, options.Logger = c.Address, c.Namespace, quiet()
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	if c.Client, err = client.DialContext(ctx, options); err != nil {
		return nil, noServer(c.Address, source, err)
	}
	_, err = c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: c.Namespace})
	if _, missing := errors.AsType[*serviceerror.NamespaceNotFound](err); missing {
		c.Close()
		return nil, fmt.Errorf("the Temporal server %s has no namespace %q; set TEMPORAL_NAMESPACE to an existing one", c.Address, c.Namespace)
	}
	return c, nil
}

func noServer(address, source string, err error) error {
	cause := ""
	if err != nil {
		cause = fmt.Sprintf(" (%v)", err)
	}
	return fmt.Errorf("no Temporal server answers at %s (%s)%s; start one with `starter dev`, or set TEMPORAL_ADDRESS to a running one", address, source, cause)
}

// onThisMachine holds for an address that no proxy stands before.
func onThisMachine(address string) bool {
	name, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(name)
	return err == nil && (name == "localhost" || ip != nil && ip.IsLoopback())
}

// answers says that something listens there.
func answers(address string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// quiet keeps the SDK's own log out of a command's output: what matters comes back as an error.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// link is the page of a run in the Temporal UI; empty where the UI is not known.
func (c *connection) link(id, runID string) string {
	if c.UI == "" {
		return ""
	}
	link := strings.TrimRight(c.UI, "/") + "/namespaces/" + url.PathEscape(c.Namespace) + "/workflows/" + url.PathEscape(id)
	if runID != "" {
		link += "/" + url.PathEscape(runID) + "/history"
	}
	return link
}

// sharedQueue is the queue that this user's workers serve.
func sharedQueue() string {
	if q := os.Getenv("UNWIND_QUEUE"); q != "" {
		return q
	}
	return host.DefaultQueue
}

// lacksAttributes is err, or the way out where err comes from a server that does not know Unwind's search attributes.
func (c *connection) lacksAttributes(ctx context.Context, err error) error {
	missing, command, problem := devserver.MissingSearchAttributes(ctx, c.Client, c.Namespace)
	if problem != nil || len(missing) == 0 {
		return err
	}
	return fmt.Errorf("namespace %s of %s lacks search attributes of Unwind; register them with\n  %s", c.Namespace, c.Address, command)
}
