package command

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/starter/rest"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/usage"
)

// serveAddress is where serve listens unless it is told otherwise.
const serveAddress = "127.0.0.1:7381"

func (p *program) serveCommand() *cobra.Command {
	var listen, tokens string
	c := &cobra.Command{
		Use:     "serve",
		GroupID: groupServe,
		Short:   "Serve the checkpoints of environments over HTTP",
		Long: `Serve answers requests for the checkpoints of environments: what an agent's tools do, for pages and
programs. The OpenAPI document at /openapi.json says what; docs/environments.md is the manual.

--tokens names a file with a line for each token: OWNER TOKEN. Whoever bears the token sees the
environments of that owner, and no others. Without tokens only a loopback address is served.

` + exitStatuses,
		Example: `  starter serve
  starter serve --listen 10.0.0.5:7381 --tokens /etc/unwind/tokens`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			owners, err := readOwners(tokens)
			if err != nil {
				return err
			}
			if err := checkAddress(listen, serveAddress, len(owners) > 0, "--tokens"); err != nil {
				return err
			}
			return p.withConnection(func(ctx context.Context, c *tasks.Client, _ []string) error {
				l, err := net.Listen("tcp", listen)
				if err != nil {
					return usage.Errorf("--listen: %w", err)
				}
				p.printf("environments at http://%s/api/apps, described at http://%[1]s/openapi.json\n", l.Addr())
				return (&rest.Server{Client: c, Owners: owners, Version: version()}).Serve(ctx, l)
			})(cmd, args)
		},
	}
	c.Flags().StringVar(&listen, "listen", serveAddress, "the `address` to serve at")
	c.Flags().StringVar(&tokens, "tokens", "", "`file` with a line for each bearer token: OWNER TOKEN")
	return c
}

// readOwners reads whose each token is.
func readOwners(file string) (owners map[string]string, err error) {
	if file == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, usage.Errorf("--tokens: %w", err)
	}
	owners = map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) == 0 || strings.HasPrefix(fields[0], "#"):
			continue
		case len(fields) != 2 || len(fields[1]) < minToken:
			return nil, usage.Errorf("--tokens %s:%d: write OWNER TOKEN, with a token of at least %d characters", file, n,
				minToken)
		case owners[fields[1]] != "":
			return nil, usage.Errorf("--tokens %s:%d: the token is already that of %s", file, n, owners[fields[1]])
		}
		owners[fields[1]] = fields[0]
	}
	if err := lines.Err(); err != nil {
		return nil, usage.Errorf("--tokens %s: %w", file, err)
	}
	if len(owners) == 0 {
		return nil, usage.Errorf("--tokens %s: it names no token; write OWNER TOKEN, a line for each", file)
	}
	return owners, nil
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
