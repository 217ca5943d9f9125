package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/deploy/devserver"
	"github.com/seed-62bf7108/unwind/starter/terminal"
)

// Client is connected to the server that tasks run on.
type Client struct {
	client.Client
	Server
	// SilenceLimit is how long a command waits for the answer of a worker: without one nobody answers.
	// Defaults to 5 s.
	SilenceLimit time.Duration

	converter converter.DataConverter // what the Client was dialed with; nil: the SDK's
}

// DataConverter decodes what other starters and workers have written. It uses the codec server of
// the profile or of TEMPORAL_CODEC_ENDPOINT, as the temporal CLI does.
func (c *Client) DataConverter() converter.DataConverter {
	if c.converter == nil {
		return explaining{converter.GetDefaultDataConverter()}
	}
	return c.converter
}

// silenceLimit is the SilenceLimit or its default.
func (c *Client) silenceLimit() time.Duration { return cmp.Or(c.SilenceLimit, 5*time.Second) }

// Server is what commands print about a server.
type Server struct {
	Namespace string
	Address   string
	// UI is the URL of the Temporal UI; empty if it is not known.
	UI string
	// NeedsAddress says that another starter would not find this server by itself.
	NeedsAddress bool
	// Resets say what a reset does and loses, by action; an action that is not in here cannot be
	// reset, as far as is known.
	Resets map[string]string
}

// StarterCommand is the command line that reaches this server from another terminal.
func (s Server) StarterCommand() string {
	if s.NeedsAddress {
		return "TEMPORAL_ADDRESS=" + s.Address + " starter"
	}
	return "starter"
}

// connectLimit is how long a server may take to answer first.
const connectLimit = 5 * time.Second

// Dial connects to a server. source says what named it.
func Dial(ctx context.Context, server Server, options client.Options, source string) (*Client, error) {
	if isLoopback(server.Address) && !IsListening(server.Address) { // a gRPC client would go on trying
		return nil, NoServer(server.Address, source, nil)
	}
	options.HostPort, options.Namespace, options.Logger = server.Address, server.Namespace, DiscardLog()
	if options.DataConverter == nil {
		options.DataConverter = converter.GetDefaultDataConverter()
	}
	options.DataConverter = explaining{options.DataConverter}
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	dialed, err := client.DialContext(ctx, options)
	if err != nil {
		return nil, NoServer(server.Address, source, err)
	}
	c := &Client{Client: dialed, Server: server, converter: options.DataConverter}
	_, err = c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: c.Namespace})
	if _, missing := errors.AsType[*serviceerror.NamespaceNotFound](err); missing {
		c.Close()
		return nil, fmt.Errorf("the Temporal server %s has no namespace %q; set TEMPORAL_NAMESPACE to an existing one",
			c.Address, c.Namespace)
	}
	return c, nil
}

// NoServer is the error for a server that does not answer; source says what named its address.
func NoServer(address, source string, err error) error {
	cause := ""
	if err != nil {
		cause = fmt.Sprintf(" (%v)", err)
	}
	return fmt.Errorf(
		"no Temporal server answers at %s (%s)%s; start one with `starter dev`, or set TEMPORAL_ADDRESS to a running one",
		address, source, cause)
}

// isLoopback holds for an address on this machine, which no proxy is in front of.
func isLoopback(address string) bool {
	name, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(name)
	return err == nil && (name == "localhost" || ip != nil && ip.IsLoopback())
}

// IsListening says whether something accepts connections at the address.
func IsListening(address string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// DiscardLog keeps the SDK's log out of a command's output: what matters comes back as an error.
func DiscardLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

// RunLink is the URL of the page of a run in the Temporal UI that shows its ledger; empty if the UI
// is not known.
func (s Server) RunLink(id, runID string) string {
	if s.UI == "" {
		return ""
	}
	link := strings.TrimRight(s.UI, "/") + "/namespaces/" + url.PathEscape(s.Namespace) + "/workflows/" +
		url.PathEscape(id)
	if runID != "" {
		link += "/" + url.PathEscape(runID) + "/user-metadata"
	}
	return link
}

// explainMissingAttributes replaces err with the command to run if the namespace lacks Unwind's
// search attributes.
func (c *Client) explainMissingAttributes(ctx context.Context, err error) error {
	missing, command, problem := devserver.MissingSearchAttributes(ctx, c.Client, c.Namespace)
	if problem != nil || len(missing) == 0 {
		return err
	}
	return fmt.Errorf("namespace %s of %s lacks search attributes of Unwind; register them with\n  %s", c.Namespace,
		c.Address, command)
}

// SignalCommand is the temporal CLI's command line that sends a signal.
func (s Server) SignalCommand(id, name, payload string) string {
	return fmt.Sprintf("temporal workflow signal --address %s --namespace %s --workflow-id %s --name %s --input %s",
		terminal.ShellQuote(s.Address), terminal.ShellQuote(s.Namespace), terminal.ShellQuote(id), name,
		terminal.ShellQuote(payload))
}
