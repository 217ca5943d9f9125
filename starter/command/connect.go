package command

import (
	"cmp"
	"context"
	"os"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"

	"github.com/seed-62bf7108/unwind/deploy/devserver"
	"github.com/seed-62bf7108/unwind/starter/local"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/worker/defaults"
)

// connect dials the server of TEMPORAL_ADDRESS or a profile, else that of a running starter dev,
// else the default address.
func (p *program) connect(ctx context.Context) (*tasks.Client, error) {
	options, named, err := devserver.Configured(envconfig.ToClientOptionsRequest{IncludeRemoteCodec: true})
	if err != nil {
		return nil, usage.Wrap(err)
	}
	server := tasks.Server{Namespace: options.Namespace, Address: options.HostPort, UI: p.ui}
	source := "named by TEMPORAL_ADDRESS or the profile of the temporal CLI"
	if !named {
		if running, ok := local.FindDev(); ok {
			server.Address, source = running.Address, "the running starter dev"
			options = client.Options{} // a profile's TLS and keys are for its own server
			server.UI = cmp.Or(server.UI, running.UI)
			server.Namespace = cmp.Or(server.Namespace, running.Namespace)
		} else {
			server.Address, source = client.DefaultHostPort, "the default; no starter dev is running"
		}
	}
	server.Namespace = cmp.Or(server.Namespace, client.DefaultNamespace)
	facts, err := p.workerFacts("")
	if err != nil {
		return nil, err
	}
	server.Resets = map[string]string{}
	for _, s := range facts.specs {
		server.Resets[s.Name] = s.Reset
	}
	c, err := tasks.Dial(ctx, server, options, source)
	if err == nil {
		c.SilenceLimit = p.options.silence
	}
	return c, err
}

// sharedQueue is the task queue of this user's workers.
func (p *program) sharedQueue() string {
	return cmp.Or(p.options.queue, os.Getenv("UNWIND_QUEUE"), defaults.Queue)
}
