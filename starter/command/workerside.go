package command

import (
	"context"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// workerSide is what a starter does as a worker would, or with one of its own. Workers run on Linux
// only: everywhere else it is nil, and a starter is a client of workers that run on other machines.
type workerSide interface {
	// hooks begins the program: see host.Hooks.
	hooks()
	// commands are those named by workerCommands.
	commands(p *program) []*cobra.Command
	// facts are those of a worker with this config file.
	facts(config string) (workerFacts, error)
	// validate looks at a task's steps as a worker with this config file would.
	validate(ctx context.Context, config string, compiled task.Compiled, own []activities.World) (protocol.Validation,
		error)
	// wrap serves the tools of another MCP server over the standard streams.
	wrap(ctx context.Context, p *program, f mcpFlags) error
}

// workerCommands need a workerSide.
var workerCommands = []string{"init", "dev", "demo", "postgres"}

const workerExamples = `  starter demo                               # an example on real input, nothing to prepare
  starter dev                                # a server, its UI and a worker, until Ctrl-C
`

// noWorkerHere says where what is asked for can be done.
func noWorkerHere(what string) error {
	return usage.Errorf(
		"%s: workers run on Linux, and this starter, for %s, is a client of theirs; on a Linux machine or in a container "+
			"run `starter dev` "+
			"or `worker` (docs/operations.md), and set TEMPORAL_ADDRESS here to the server that it uses", what, runtime.GOOS)
}

// refusedCommands stand for workerCommands where there is no workerSide.
func refusedCommands() []*cobra.Command {
	var all []*cobra.Command
	for _, name := range workerCommands {
		all = append(all, &cobra.Command{
			Use: name, Hidden: true, DisableFlagParsing: true,
			RunE: func(c *cobra.Command, _ []string) error { return noWorkerHere(c.CommandPath()) },
		})
	}
	return all
}
