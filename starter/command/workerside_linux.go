package command

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/examples/shop"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

var thisMachine workerSide = linux{}

type linux struct{}

func (linux) hooks() {
	host.Hooks()
	shop.Attend()
}

func (linux) commands(p *program) []*cobra.Command {
	return []*cobra.Command{p.initCommand(), p.devCommand(), p.demoCommand(), p.postgresCommand()}
}

func (linux) facts(config string) (workerFacts, error) {
	c, err := host.ReadConfig(config)
	if err != nil {
		return workerFacts{}, usage.Wrap(err)
	}
	specs, err := host.Specs(&c)
	if err != nil {
		return workerFacts{}, err
	}
	if c, err = c.WithEnvironment(os.LookupEnv).WithDefaults(); err != nil {
		return workerFacts{}, usage.Wrap(err)
	}
	return workerFacts{specs: specs, host: c.Host, queue: c.Queue, heartbeat: c.Heartbeat, secrets: c.TaskSecrets()}, nil
}

func (linux) validate(ctx context.Context, config string, compiled task.Compiled,
	own []activities.World) (protocol.Validation, error) {
	c, err := host.ReadConfig(config)
	if err != nil {
		return protocol.Validation{}, err
	}
	return host.Validate(ctx, c, compiled, own...)
}

func (linux) wrap(ctx context.Context, p *program, f mcpFlags) error { return p.wrapMCP(ctx, f) }
