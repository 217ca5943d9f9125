package command

import (
	"context"
	"net"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/internal/httpserve"
	"github.com/seed-62bf7108/unwind/starter/bearer"
	"github.com/seed-62bf7108/unwind/starter/oidc"
	"github.com/seed-62bf7108/unwind/starter/page"
	"github.com/seed-62bf7108/unwind/starter/rest"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/worker/signers"
)

// serveAddress is where serve listens unless it is told otherwise.
const serveAddress = "127.0.0.1:7381"

func (p *program) serveCommand() *cobra.Command {
	var listen, tokens, provider, signing string
	c := &cobra.Command{
		Use:     "serve",
		GroupID: groupServe,
		Short:   "Serve a page of what waits for people, and the same over HTTP for programs",
		Long: `Serve shows tasks in a browser: what waits for a person, with all that a decision needs; each task as
it runs and unwinds; and what can be done about it. docs/page.md is the manual.

At /api programs find the same, and the checkpoints of environments; the OpenAPI document at
/openapi.json describes all requests.

--tokens names a file with a line for each token: NAME TOKEN ROLE. A viewer looks, an approver also
decides what waits, and an operator, as whoever has no role, also cancels, rolls back and redoes.
NAME is who decides, and the owner whose environments the API shows.

--oidc names a file that says at which OpenID Connect provider people sign in, and what its groups may
do here. Without either only a loopback address is served, and whoever reaches it is you.

--signers names a file of those who sign decisions, as the workers have it. Where only signed decisions
count, persons sign with the passkeys that are there; at /passkey they make one.

` + exitStatuses,
		Example: `  starter serve
  starter serve --listen 10.0.0.5:7381 --tokens /etc/unwind/tokens
  starter serve --listen 10.0.0.5:7381 --oidc /etc/unwind/oidc.yaml`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			known, err := bearer.Read(tokens)
			if err != nil {
				return err
			}
			config, err := oidc.Read(provider)
			if err != nil {
				return err
			}
			signs, err := readSigners(signing)
			if err != nil {
				return err
			}
			if err := checkAddress(listen, serveAddress, len(known) > 0 || config != nil, "--tokens"); err != nil {
				return err
			}
			d := doors{tokens: known, queue: p.sharedQueue(), signers: signs}
			if config != nil {
				if d.provider, err = oidc.Discover(cmd.Context(), *config); err != nil {
					return err
				}
			}
			return p.withConnection(func(ctx context.Context, c *tasks.Client, _ []string) error {
				l, err := net.Listen("tcp", listen)
				if err != nil {
					return usage.Errorf("--listen: %w", err)
				}
				p.printf("for people: http://%s/\nfor programs: http://%[1]s/api, described at http://%[1]s/openapi.json\n",
					l.Addr())
				return httpserve.Serve(ctx, l, handlerOf(ctx, c, d))
			})(cmd, args)
		},
	}
	c.Flags().StringVar(&listen, "listen", serveAddress, "the `address` to serve at")
	c.Flags().StringVar(&tokens, "tokens", "", "`file` with a line for each bearer token: NAME TOKEN ROLE")
	c.Flags().StringVar(&provider, "oidc", "", "`file` that says at which OpenID Connect provider people sign in")
	c.Flags().StringVar(&signing, "signers", "",
		"`file` of signers, as the workers have it: persons sign decisions with the passkeys in it")
	return c
}

// doors are the ways in: bearer tokens, and a provider. Where neither is, everybody is this user.
type doors struct {
	tokens   bearer.Tokens
	provider *oidc.Provider
	queue    string // whose standing approvals are shown
	signers  *signers.Signers
}

// readSigners reads the file of --signers; nil without one.
func readSigners(file string) (*signers.Signers, error) {
	if file == "" {
		return nil, nil
	}
	s, err := signers.OpenForPasskeys(file)
	if err != nil {
		return nil, usage.Errorf("--signers: %w", err)
	}
	return s, nil
}

// handlerOf answers browsers and programs.
func handlerOf(ctx context.Context, c *tasks.Client, d doors) http.Handler {
	var anybody *bearer.Person
	if len(d.tokens) == 0 && d.provider == nil {
		anybody = &bearer.Person{Name: currentUser(), Role: bearer.Operator}
	}
	api := (&rest.Server{Client: c, Tokens: d.tokens, Anybody: anybody, Queue: d.queue,
		Version: version()}).Handler()
	pages := &page.Server{Client: c, Tokens: d.tokens, Provider: d.provider, Signers: d.signers, Anybody: anybody,
		Queue: d.queue}
	mux := http.NewServeMux()
	mux.Handle("/", pages.Handler(ctx))
	for _, pattern := range []string{"/api/", "/openapi.json", "/openapi.yaml"} {
		mux.Handle(pattern, api)
	}
	return mux
}

// checkAddress refuses what is no address to listen at, such as usual, and one that others can reach
// without a token, which the flag wayOut gives.
func checkAddress(address, usual string, hasToken bool, wayOut string) error {
	name, _, err := net.SplitHostPort(address)
	if err != nil {
		return usage.Errorf("--listen %q: give HOST:PORT, as in %s", address, usual)
	}
	if ip := net.ParseIP(name); !hasToken && name != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return usage.Errorf("--listen %s: others can reach it; give %s, or a loopback address, such as %s", address, wayOut,
			usual)
	}
	return nil
}
