package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
	_ "time/tzdata" // quiet hours name a time zone, and an image from scratch has none

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"

	"github.com/seed-62bf7108/unwind/deploy/devserver"
	"github.com/seed-62bf7108/unwind/worker/defaults"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/requestlimit"
)

func main() {
	host.Hooks()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// The exit statuses.
const (
	statusOK     = 0
	statusFailed = 1
	statusUsage  = 2
)

// run runs the command line until ctx ends or the worker gives up.
func run(ctx context.Context, args []string, out, log io.Writer) int {
	status := statusUsage // until the config is found good
	c := command(func(config host.Config) error {
		status = statusFailed
		return serve(ctx, config, out, log)
	})
	c.SetArgs(args)
	c.SetOut(out)
	c.SetErr(log)
	if err := c.Execute(); err != nil {
		fmt.Fprintln(log, "worker:", err)
		return status
	}
	return statusOK
}

func command(serve func(host.Config) error) *cobra.Command {
	var file string
	var flags host.Config
	c := &cobra.Command{
		Use:   "worker",
		Short: "Do what tasks say, and take it back",
		Long: `worker opens the worlds that its config allows, and serves the shared task queue and that of its
host until it is told to stop (SIGINT, SIGTERM): then running steps may finish for the config's
stopTimeout, a second signal ends it at once.

The Temporal server is the one that TEMPORAL_ADDRESS or a profile of the temporal CLI names, else
localhost:7233. It must know the search attributes of Unwind; if it does not, the worker prints the
command that registers them.

A flag takes precedence over its environment variable, and that over the config file:

  --config  UNWIND_CONFIG   --state      UNWIND_STATE
  --host    UNWIND_HOST     --listen     UNWIND_LISTEN
  --queue   UNWIND_QUEUE    --schedules  UNWIND_SCHEDULES

A config that opens no world is refused: such a worker could do nothing. When it starts, a worker
says what does not work on its host: an engine that is down, no terraform, a secret that is not set.

When it starts, a worker makes sure that two Temporal Schedules are there: one recovers tasks that
ended without unwinding, one releases the undo records of this host whose rollback window is over.
--schedules off leaves that to an operator.

Exit status:
  0  stopped as it was told to
  1  the worker could not start or go on
  2  usage or bad config`,
		Example: `  worker --config worker.yaml
  UNWIND_LISTEN=:9090 worker --config worker.yaml --host build-1

  # worker.yaml
  file:
    roots: [/srv/app]
  sqlite:
    roots: [/srv/app/data]
  secrets:
    STRIPE_KEY: env:STRIPE_KEY
    SLACK: env:SLACK_WEBHOOK
  stripe:
    key: STRIPE_KEY
  notices:                                 # who is told of what waits for a person
    - name: ops
      slack: {url: SLACK}
  retention:                               # of undo records of tasks that have ended
    versions: 50                           # of a file
    checkpoints: 1000                      # of a container
    bytes: 500000000
    audit: 168h`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := read(file, flags)
			if err != nil {
				return err
			}
			return serve(config)
		},
	}
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return fmt.Errorf("%w; see worker --help", err) })
	c.Flags().StringVar(&file, "config", "",
		"config `file`: worlds with their limits, secrets, queues (default UNWIND_CONFIG)")
	c.Flags().StringVar(&flags.Host, "host", "", "`name` of this host, for on: and its own queue (default the machine's)")
	c.Flags().StringVar(&flags.Queue, "queue", "", "shared task `queue` (default "+defaults.Queue+")")
	c.Flags().StringVar(&flags.State, "state", "",
		"`folder` of the journals; it must survive restarts (default $XDG_STATE_HOME/unwind, else ~/.local/state/unwind)")
	c.Flags().StringVar(&flags.Listen, "listen", "", "`address` of /healthz and /metrics (default none)")
	c.Flags().StringVar(&flags.Schedules, "schedules", "",
		"make the Temporal Schedules that recover and release: `on` or off (default on)")
	_ = c.RegisterFlagCompletionFunc("schedules",
		cobra.FixedCompletions([]string{"on", "off"}, cobra.ShellCompDirectiveNoFileComp))
	_ = c.MarkFlagFilename("config", "yaml", "yml")
	return c
}

// read is the config of file, environment and flags, found good.
func read(file string, flags host.Config) (config host.Config, err error) {
	if file == "" {
		file = os.Getenv("UNWIND_CONFIG")
	}
	if file != "" {
		if config, err = host.ReadConfig(file); err != nil {
			return config, err
		}
	}
	config = config.WithEnvironment(os.LookupEnv)
	for flag, field := range map[*string]*string{
		&flags.Host: &config.Host, &flags.Queue: &config.Queue, &flags.State: &config.State, &flags.Listen: &config.Listen,
		&flags.Schedules: &config.Schedules,
	} {
		if *flag != "" {
			*field = *flag
		}
	}
	if config, err = config.WithDefaults(); err != nil {
		return config, err
	}
	if err := config.Validate(); err != nil {
		return config, err
	}
	if len(config.Worlds) == 0 {
		where := "config"
		if file != "" {
			where = file
		}
		return config,
			fmt.Errorf("%s: it opens no world, so the worker could do nothing; write one of these sections into a config "+
				"file, and name that with --config or UNWIND_CONFIG: %s",
				where, strings.Join(host.WorldNames(), ", "))
	}
	return config, nil
}

// dialLimit bounds the first answer of the Temporal server.
const dialLimit = 10 * time.Second

func serve(ctx context.Context, config host.Config, out, log io.Writer) error {
	options, _, err := devserver.Configured(envconfig.ToClientOptionsRequest{})
	if err != nil {
		return err
	}
	if options.Namespace == "" {
		options.Namespace = client.DefaultNamespace
	}
	metrics := host.NewMetrics()
	defer metrics.Close()
	options.MetricsHandler, options.Identity = metrics.Handler, config.Host
	options.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	dialing, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	options.ConnectionOptions.DialOptions = append(options.ConnectionOptions.DialOptions, requestlimit.DialOption())
	c, err := client.DialContext(dialing, options)
	if err != nil {
		address := options.HostPort
		if address == "" {
			address = client.DefaultHostPort
		}
		return fmt.Errorf(
			"no Temporal server answers at %s; start one with `starter dev`, or set TEMPORAL_ADDRESS to a running one (%w)",
			address, err)
	}
	defer c.Close()
	w, err := host.Start(ctx, config, host.Options{Client: c, Namespace: options.Namespace, Metrics: metrics})
	if err != nil {
		return err
	}
	defer w.Stop()
	fmt.Fprintf(out, "worker: %s\n", w)
	for _, notice := range w.Notices(ctx) {
		fmt.Fprintf(log, "worker: warning: %s\n", notice)
	}
	select {
	case <-ctx.Done():
		fmt.Fprintf(out, "worker: stopping; running steps may finish for %s\n", w.Config.StopTimeout)
		return nil
	case err := <-w.Failed():
		return fmt.Errorf("it gave up: %w", err)
	}
}
