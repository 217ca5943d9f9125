package command

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/file"
	"github.com/seed-62bf7108/unwind/activities/terraform"
	"github.com/seed-62bf7108/unwind/starter/local"
	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/worker/host"
)

func (p *program) devCommand() *cobra.Command {
	var f struct {
		config         string
		stripeEmulator bool
		checkCommands  []string
		port, uiPort   int
	}
	c := &cobra.Command{
		Use:     "dev",
		GroupID: groupServe,
		Short:   "Run a Temporal server with its UI and a worker, until Ctrl-C",
		Long: `Dev runs everything that tasks need in one process, for development: a Temporal server with its UI,
and a worker. Tasks survive a restart: the server's database and the worker's journals are in the
state folder (UNWIND_STATE, else $XDG_STATE_HOME/unwind, else ~/.local/state/unwind). Other commands
find the server by themselves.

The server is that of the temporal CLI if it is on PATH, else one that is built on first use, which
takes a few minutes. If TEMPORAL_ADDRESS or a profile of the temporal CLI names a server, dev starts
only the worker, on that server.

Without --config the worker may change files and apply Terraform configurations below the current
folder, and run commands in the containers of the local engine. A step that needs a missing program
is refused. "starter init" writes a config.

With --stripe-emulator, Stripe steps go to an emulator in this process instead of Stripe: no money
moves, its ids contain "emulator", and it forgets everything when dev ends, so that steps from
before cannot be undone there.

` + exitStatuses,
		Example: `  starter dev
  starter dev --stripe-emulator --check-command node
  starter dev --config worker.yaml --ui-port 8233`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			config, err := p.workerConfig(f.config)
			if err != nil {
				return err
			}
			config.CheckCommands = append(config.CheckCommands, f.checkCommands...)
			var emulated string
			if f.stripeEmulator {
				var stop func()
				if config, emulated, stop, err = emulateStripe(config); err != nil {
					return err
				}
				defer stop()
			}
			l, err := local.Start(ctx, local.Options{
				Config: config, Worlds: p.options.Worlds, UI: p.ui, Port: f.port, UIPort: f.uiPort, Log: p.streams.Err,
			})
			if err != nil {
				return err
			}
			defer l.Stop()
			p.printf("Temporal  %s, namespace %s\n", l.Address, l.Namespace)
			if l.UI != "" {
				p.printf("UI        %s\n", l.UI)
			}
			p.printf("worker    %s\n", l.Worker)
			if emulated != "" {
				p.printf("Stripe    an emulator at %s: no money moves, and it forgets everything when dev ends\n", emulated)
			}
			for _, notice := range l.Worker.Notices(ctx) {
				p.printf("note      %s\n", terminal.OneLine(notice))
			}
			p.printf("try       starter run FILE --watch\nCtrl-C stops it; open tasks continue at the next start\n")
			return l.Wait(ctx)
		},
	}
	c.Flags().StringVar(&f.config, "config", "", "config `file` of the worker")
	c.Flags().BoolVar(&f.stripeEmulator, "stripe-emulator", false, "send Stripe steps to an emulator in this process")
	c.Flags().StringArrayVar(&f.checkCommands, "check-command", nil,
		"`program` that checks may run on this host, in addition to those of the config; * allows any; may be repeated")
	c.Flags().IntVar(&f.port, "port", 7233, "`port` of the Temporal server; 0 takes a free one")
	c.Flags().IntVar(&f.uiPort, "ui-port", 8233, "`port` of the UI; 0 takes a free one")
	_ = c.MarkFlagFilename("config", "yaml", "yml")
	return c
}

// workerConfig reads the worker's config from a file, or makes one for the current folder.
func (p *program) workerConfig(path string) (host.Config, error) {
	if path != "" {
		c, err := host.ReadConfig(path)
		if err != nil {
			return c, usage.Wrap(err)
		}
		return c.WithEnvironment(os.LookupEnv), nil
	}
	here, err := os.Getwd()
	if err != nil {
		return host.Config{}, err
	}
	return host.Config{
		Worlds: []activities.Settings{
			&file.Settings{Roots: []string{here}},
			&terraform.Settings{Roots: []string{here}},
			&container.Settings{},
		},
	}.WithEnvironment(os.LookupEnv), nil
}
