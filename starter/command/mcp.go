package command

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/starter/bearer"
	"github.com/seed-62bf7108/unwind/starter/local"
	"github.com/seed-62bf7108/unwind/starter/mcp"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/workflows/environment"
)

// mcpFlags are those of mcp.
type mcpFlags struct {
	fileFlags
	session, key, queue string
	wait                time.Duration
	elicit              bool
	environments        []string
	listen, token       string
	wrapFlags
}

// wrapFlags name the server that --wrap sits before.
type wrapFlags struct {
	wrap, declarations, name string
}

func (p *program) mcpCommand() *cobra.Command {
	var f mcpFlags
	c := &cobra.Command{
		Use:     "mcp",
		GroupID: groupServe,
		Short:   "Serve sessions to an AI agent over the Model Context Protocol",
		Long: `Mcp is started by an agent's client, which speaks the Model Context Protocol with it over the
standard streams; with --listen, it serves clients over HTTP. Each action of the catalog is a tool;
open, savepoint, rollback, redo, resolve, keep_context, context, finish, abort, status, diff and
plan are the others. docs/mcp.md is the manual.

With --environment, create_checkpoint, list_checkpoints, rollback_app, pin_checkpoint and
delete_checkpoint are tools as well, for the environments that it names: docs/environments.md.

With --wrap, the tools are those of another MCP server, which it starts, or reaches by URL: calls
that only read are passed on, others are steps of a session, which --declarations says how to undo.
unwind_status, unwind_savepoint, unwind_rollback, unwind_redo, unwind_resolve, unwind_keep_context,
unwind_context, unwind_finish and unwind_abort stand beside them. docs/mcp-proxy.md is the manual.

The handle of a session is signed with a key, which is kept in the state folder, or in the file that
--key names. Whoever has a handle can use its session.

` + exitStatuses,
		Example: `  claude mcp add unwind -- starter mcp
  starter mcp --session policy.yaml --wait 5m
  starter mcp --listen 127.0.0.1:7380 --token env:MCP_TOKEN
  starter mcp --wrap 'npx -y @modelcontextprotocol/server-filesystem /srv/app' --declarations filesystem.yaml
  starter mcp --wrap https://tracker.example.com/mcp --token env:TRACKER_TOKEN --declarations tracker.yaml`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("wrap") || f.wrapFlags != (wrapFlags{}) {
				return p.wrap(cmd, f)
			}
			token, err := f.checkListen()
			if err != nil {
				return err
			}
			s, err := p.mcpServer(f)
			if err != nil {
				return err
			}
			defer s.Close()
			if f.listen != "" {
				return p.listenMCP(cmd.Context(), s, f.listen, token)
			}
			return s.Run(cmd.Context(), p.stdio())
		},
	}
	f.addTo(c)
	c.Flags().StringVar(&f.session, "session", "", "task `file` with session:, which every session begins with")
	c.Flags().StringVar(&f.key, "key", "", "`file` with the key of the handles (default: mcp.key in the state folder)")
	c.Flags().StringVar(&f.queue, "queue", "", "shared task `queue` of the workers (default UNWIND_QUEUE, else unwind)")
	f.wait = mcp.DefaultWait
	c.Flags().Var((*durationFlag)(&f.wait), "wait",
		"how long a call waits for a person before it answers that it is pending")
	c.Flags().BoolVar(&f.elicit, "elicit", false,
		"at a gate, have the client ask its user, and take the answer for a person's decision")
	c.Flags().StringArrayVar(&f.environments, "environment", nil,
		"also serve the checkpoints of this `environment`, and rolling back to them; may be repeated")
	c.Flags().StringVar(&f.listen, "listen", "",
		"serve streamable HTTP at this `address`, as in 127.0.0.1:7380, instead of the standard streams")
	c.Flags().StringVar(&f.token, "token", "",
		"with --listen: the bearer token that clients must send; with --wrap URL: the one that the server wants; as "+
			"`env:NAME` or file:PATH")
	c.Flags().StringVar(&f.wrap, "wrap", "",
		"serve the tools of another MCP server: the `command` line that starts it, for sh -c, or the URL of one that "+
			"speaks streamable HTTP")
	c.Flags().StringVar(&f.declarations, "declarations", "",
		"with --wrap: `file` that says what its tools do, and how that is undone; a person is asked before any other tool")
	c.Flags().StringVar(&f.name, "name", "",
		"with --wrap: `name` of its journal and its worker (default: one made from the command line or the URL)")
	_ = c.MarkFlagFilename("session", "yaml", "yml")
	_ = c.MarkFlagFilename("declarations", "yaml", "yml")
	return c
}

// notWithWrap are the flags of what --wrap has of its own.
var notWithWrap = []string{"config", "key", "queue", "listen", "environment"}

// wrapsURL reports whether the server is reached by URL, and not started.
func (f wrapFlags) wrapsURL() bool {
	return strings.HasPrefix(f.wrap, "http://") || strings.HasPrefix(f.wrap, "https://")
}

// wrap checks the flags of --wrap, and serves.
func (p *program) wrap(cmd *cobra.Command, f mcpFlags) error {
	if !cmd.Flags().Changed("wrap") {
		return usage.Errorf("--declarations and --name are for --wrap")
	}
	for _, name := range notWithWrap {
		if cmd.Flags().Changed(name) {
			return usage.Errorf("--%s is not for --wrap, which serves the standard streams with a worker of its own", name)
		}
	}
	if strings.TrimSpace(f.wrap) == "" {
		return usage.Errorf("--wrap is empty; give the command line that starts the server, or its URL")
	}
	if f.token != "" && !f.wrapsURL() {
		return usage.Errorf("--token is for --listen and for --wrap URL; a command gets secrets in its environment")
	}
	if p.worker == nil {
		return noWorkerHere(cmd.CommandPath() + " --wrap")
	}
	return p.worker.wrap(cmd.Context(), p, f)
}

// stdio is the transport of the standard streams. Who closes it waits for no more input: a read of
// the stream itself cannot be ended.
func (p *program) stdio() sdk.Transport {
	in, feed := io.Pipe()
	go func() {
		_, err := io.Copy(feed, p.streams.In)
		_ = feed.CloseWithError(err) // never fails
	}()
	return &sdk.IOTransport{Reader: in, Writer: unclosed{p.streams.Out}}
}

// mcpServer makes a server of the flags.
func (p *program) mcpServer(f mcpFlags) (*mcp.Server, error) {
	document, err := p.sessionDocument(f)
	if err != nil {
		return nil, err
	}
	facts, err := p.workerFacts(f.config)
	if err != nil {
		return nil, err
	}
	for _, name := range f.environments {
		if err := environment.CheckName(name); err != nil {
			return nil, usage.Errorf("--environment %w", err)
		}
	}
	c := mcp.Config{
		Connect: p.connect, Specs: facts.specs, Wait: f.wait, Elicit: f.elicit, Version: version(), Queue: facts.queue,
		Document: document, Environments: f.environments,
		Check: func(document json.RawMessage) (tasks.File, error) {
			return p.checkTaskFile("plan", document, nil, f.config)
		},
	}
	if f.queue != "" {
		c.Queue = f.queue
	}
	if f.key == "" {
		folder, err := local.StateFolder()
		if err != nil {
			return nil, usage.Wrap(err)
		}
		f.key = filepath.Join(folder, "mcp.key")
	}
	if c.Key, err = mcp.ReadKey(f.key); err != nil {
		return nil, usage.Wrap(err)
	}
	return mcp.New(c)
}

// sessionDocument reads the file of --session; nil without one.
func (p *program) sessionDocument(f mcpFlags) (json.RawMessage, error) {
	if f.session == "" {
		if len(f.vars) > 0 {
			return nil, usage.Errorf("--var is for the file of --session")
		}
		return nil, nil
	}
	file, err := p.readTaskFile(f.session, f.fileFlags)
	if err != nil {
		return nil, err
	}
	if file.Compiled.Session == nil {
		return nil, usage.Errorf("--session %s is no session: add session: {}", f.session)
	}
	return file.Document, nil
}

// readToken reads the bearer token that a flag names; empty where it names none.
func readToken(from string) (string, error) {
	kind, name, _ := strings.Cut(from, ":")
	var token string
	switch {
	case from == "":
		return "", nil
	case kind == "env" && name != "":
		token = os.Getenv(name)
	case kind == "file" && name != "":
		raw, err := os.ReadFile(name)
		if err != nil {
			return "", usage.Errorf("--token: %w", err)
		}
		token = string(raw)
	default:
		return "", usage.Errorf("--token: give env:NAME or file:PATH, not the token itself: others can see a command line")
	}
	if token = strings.TrimSpace(token); len(token) < bearer.MinToken || strings.ContainsAny(token, " \t\r\n") {
		return "", usage.Errorf("--token %s: it holds no token of at least %d characters without blanks", from,
			bearer.MinToken)
	}
	return token, nil
}

// checkListen reads the token that --listen needs, and refuses an address that is open to others
// without one.
func (f mcpFlags) checkListen() (token string, err error) {
	if f.listen == "" {
		if f.token != "" {
			return "", usage.Errorf("--token is for --listen")
		}
		return "", nil
	}
	if token, err = readToken(f.token); err != nil {
		return "", err
	}
	return token, checkAddress(f.listen, "127.0.0.1:7380", token != "", "--token")
}

// listenMCP serves HTTP at an address.
func (p *program) listenMCP(ctx context.Context, s *mcp.Server, address, token string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return usage.Errorf("--listen: %w", err)
	}
	p.printf("MCP at http://%s\n", l.Addr())
	return s.Serve(ctx, l, token)
}

// unclosed is a standard stream, which stays open.
type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }
