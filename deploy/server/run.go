package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	uiserver "github.com/temporalio/ui-server/v2/server"
	uiconfig "github.com/temporalio/ui-server/v2/server/config"
	uioptions "github.com/temporalio/ui-server/v2/server/server_options"
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/temporal"
)

// ready is the line that says how the server can be reached.
type ready struct {
	Address string `json:"address"`
	UI      string `json:"ui,omitempty"`
}

const (
	startLimit = time.Minute
	// A server that hangs while it stops must not go on holding its parent's ports and database.
	stopLimit = 10 * time.Second
)

// run serves until ctx ends, then stops gracefully.
func run(ctx context.Context, o options, stdout, stderr io.Writer) error {
	db, err := openDatabase(o)
	if err != nil {
		return err
	}
	if o.headless {
		o.uiPort = 0
	}
	p, err := choosePorts(o.port, o.uiPort)
	if err != nil {
		return err
	}
	logger := newLogger(stderr)
	server, err := newServer(db, p, o.settings, logger)
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return fmt.Errorf("start the Temporal services: %w", err)
	}
	defer stopWithin(server, stopLimit)
	defer logger.silence()
	line := ready{Address: loopbackAddress(p.frontend)}
	if !o.headless {
		ui := newUI(p, o.namespace)
		defer ui.Stop()
		go func() { _ = ui.Start() }() // it ends the process with a message if its port is taken
		line.UI = "http://" + loopbackAddress(p.ui)
	}
	if err := waitReady(ctx, line, o.namespace, startLimit); err != nil {
		return err
	}
	if err := json.NewEncoder(stdout).Encode(line); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func newServer(db *config.SQL, p ports, settings settingsFlag, logger log.Logger) (temporal.Server, error) {
	conf := serverConfig(db, p)
	authorizer, err := authorization.GetAuthorizerFromConfig(&conf.Global.Authorization)
	if err != nil {
		return nil, err
	}
	return temporal.NewServer(
		temporal.WithConfig(conf),
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithStaticHosts(staticHosts(p)),
		temporal.WithDynamicConfigClient(settings.applyTo(tuning())),
		temporal.WithAuthorizer(authorizer),
		temporal.WithLogger(logger),
	)
}

func newUI(p ports, namespace string) *uiserver.Server {
	return uiserver.NewServer(uioptions.WithConfigProvider(&uiconfig.Config{
		Host: loopback, Port: p.ui, TemporalGRPCAddress: loopbackAddress(p.frontend), DefaultNamespace: namespace,
		EnableUI: true, HideLogs: true, DisableNewsFetch: true,
		CORS: uiconfig.CORS{CookieInsecure: true}, // plain HTTP on loopback
	}))
}

// stopWithin returns when s has stopped, or after limit: whatever still runs then ends with the
// process.
func stopWithin(s temporal.Server, limit time.Duration) {
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Stop() }()
	select {
	case <-done:
	case <-time.After(limit):
	}
}
