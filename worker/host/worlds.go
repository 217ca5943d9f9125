package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/etcd"
	"github.com/seed-62bf7108/unwind/activities/file"
	"github.com/seed-62bf7108/unwind/activities/postgres"
	"github.com/seed-62bf7108/unwind/activities/redis"
	"github.com/seed-62bf7108/unwind/activities/sqlite"
	"github.com/seed-62bf7108/unwind/activities/stripe"
	"github.com/seed-62bf7108/unwind/activities/terraform"
)

// openWorlds opens the worlds that the config names, only to look where it says so. Only this function knows them all.
func openWorlds(c Config, lookOnly bool) ([]activities.World, error) {
	if !lookOnly {
		if err := os.MkdirAll(c.State, 0o700); err != nil {
			return nil, fmt.Errorf("config: state: %w", err)
		}
	}
	var worlds []activities.World
	var problems []error
	add := func(w activities.World, err error) {
		if err != nil {
			problems = append(problems, err)
			return
		}
		worlds = append(worlds, w)
	}
	if c.File != nil {
		add(file.New(file.Config{Roots: c.File.Roots, LookOnly: lookOnly}))
	}
	if c.Container != nil {
		add(container.New(container.Config{
			State: c.State, Host: c.Container.Engine, Layers: c.Container.Layers, LookOnly: lookOnly,
		}))
	}
	if c.Terraform != nil {
		add(terraform.New(terraform.Config{
			State: filepath.Join(c.State, "terraform"), Roots: c.Terraform.Roots,
			Terraform: c.Terraform.Binary, CLIConfig: c.Terraform.CLIConfig,
			Environment: c.Terraform.Environment, Secrets: c.terraformSecrets, Hidden: c.hiddenPaths(), LookOnly: lookOnly,
		}))
	}
	if c.SQLite != nil {
		add(sqlite.New(sqlite.Config{State: filepath.Join(c.State, "sqlite"), Roots: c.SQLite.Roots, Busy: c.SQLite.Busy, LookOnly: lookOnly}))
	}
	if c.Stripe != nil {
		key := c.Stripe.Key
		add(stripe.New(stripe.Config{
			Key: func() (string, error) { return secrets(c.Secrets).read(key) }, BaseURL: c.Stripe.URL, AllowLive: c.Stripe.AllowLive,
		}))
	}
	if c.Postgres != nil {
		add(postgres.New(c.postgres(lookOnly)))
	}
	if c.Redis != nil {
		add(redis.New(c.redis(lookOnly)))
	}
	if c.Etcd != nil {
		add(etcd.New(c.etcd(lookOnly)))
	}
	if c.MCP != nil {
		add(c.openMCP(lookOnly))
	}
	return worlds, errors.Join(problems...)
}
