package stage

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/file"
	"github.com/seed-62bf7108/unwind/activities/sqlite"
	"github.com/seed-62bf7108/unwind/activities/stripe"
	"github.com/seed-62bf7108/unwind/activities/stripe/emulator"
	"github.com/seed-62bf7108/unwind/activities/terraform"
	"github.com/seed-62bf7108/unwind/examples/found"
	"github.com/seed-62bf7108/unwind/worker/host"
)

// Options say how to set a stage up.
type Options struct {
	// Log gets a line about everything that takes long. Defaults to nowhere.
	Log io.Writer
	// Secrets are more secrets that tasks may use, by name. Defaults to none.
	Secrets map[string]string
}

// Stage is what the examples work on.
type Stage struct {
	// Folder holds everything that is on this machine's disk.
	Folder string
	// Container is the container's name; empty if it is Missing.
	Container string
	// Emulator stands in for Stripe; Stripe is its URL.
	Emulator *emulator.Emulator
	Stripe   string
	// Missing says, by world, what the machine lacks.
	Missing map[string]string

	secrets map[string]string // where the values are
	closers []func(context.Context) error
}

// The folders of a stage.
const (
	siteFolder    = "site"
	infraFolder   = "infra"
	effectsFolder = "effects"
	dataFolder    = "data"
	stateFolder   = "state"
	secretsFolder = "secrets"
)

// stripeKey is the name of the secret that holds the key for the emulator.
const stripeKey = "STRIPE_KEY"

// Set sets up a stage. If it fails, it removes what it has made.
func Set(ctx context.Context, o Options) (_ *Stage, err error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	folder, err := os.MkdirTemp("", "unwind-demo-")
	if err != nil {
		return nil, err
	}
	s := &Stage{Folder: folder, Missing: map[string]string{}, secrets: map[string]string{}}
	s.closers = append(s.closers, func(context.Context) error { return os.RemoveAll(s.Folder) })
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close(context.WithoutCancel(ctx)))
		}
	}()
	// A folder behind a link has two names, and tasks and worlds must use the same one.
	if s.Folder, err = filepath.EvalSymlinks(folder); err != nil {
		return nil, err
	}
	for _, name := range []string{siteFolder, infraFolder, effectsFolder, dataFolder, stateFolder, secretsFolder} {
		if err := os.Mkdir(s.path(name), 0o700); err != nil {
			return nil, err
		}
	}
	if err := s.keepSecrets(o.Secrets); err != nil {
		return nil, err
	}
	if err := s.setSite(); err != nil {
		return nil, fmt.Errorf("the site: %w", err)
	}
	if err := s.setDatabase(); err != nil {
		return nil, fmt.Errorf("the database: %w", err)
	}
	if err := s.setStripe(); err != nil {
		return nil, err
	}
	for world, set := range map[string]func(context.Context, io.Writer) error{"terraform": s.setInfra,
		"container": s.setContainer} {
		err := set(ctx, o.Log)
		var missing missingError
		switch {
		case errors.As(err, &missing):
			s.Missing[world] = missing.why
		case err != nil:
			return nil, fmt.Errorf("the stage's %s: %w", world, err)
		}
	}
	return s, nil
}

// missingError says what the machine lacks.
type missingError struct{ why string }

func (e missingError) Error() string { return e.why }

func (s *Stage) path(name string) string { return filepath.Join(s.Folder, name) }

// keepSecrets writes secrets into files that only this user can read.
func (s *Stage) keepSecrets(secrets map[string]string) error {
	all := map[string]string{stripeKey: "sk_test_" + rand.Text()}
	maps.Copy(all, secrets)
	for name, value := range all {
		file := filepath.Join(s.path(secretsFolder), name)
		if err := os.WriteFile(file, []byte(value), 0o600); err != nil {
			return err
		}
		s.secrets[name] = "file:" + file
	}
	return nil
}

func (s *Stage) setStripe() error {
	s.Emulator = emulator.New(emulator.Options{})
	server, err := s.Emulator.Start("127.0.0.1:0")
	if err != nil {
		return err
	}
	s.Stripe = server.URL
	s.closers = append(s.closers, func(context.Context) error { return server.Close() })
	return nil
}

// Without returns the worlds that this stage lacks, sorted.
func (s *Stage) Without() []string { return slices.Sorted(maps.Keys(s.Missing)) }

// Vars returns the values of the examples' vars here.
func (s *Stage) Vars() map[string]string {
	return map[string]string{
		"site": s.path(siteFolder), "infra": s.path(infraFolder), "effects": s.path(effectsFolder), "container": s.Container,
		"data": s.path(dataFolder),
	}
}

// Config returns the config of a worker that may do only what the examples do here, on its own
// queue.
func (s *Stage) Config() host.Config {
	c := host.Config{
		Host: "demo", Queue: "unwind-demo-" + s.name(), State: s.path(stateFolder),
		StopTimeout: 5 * time.Second,
		Secrets:     maps.Clone(s.secrets), CheckCommands: []string{"sleep"},
		Worlds: []activities.Settings{
			&file.Settings{Roots: []string{s.path(siteFolder)}},
			&sqlite.Settings{Roots: []string{s.path(dataFolder)}},
			&stripe.Settings{Key: stripeKey, URL: s.Stripe},
		},
	}
	if s.Missing["container"] == "" {
		c = c.With(&container.Settings{})
	}
	if s.Missing["terraform"] == "" {
		c = c.With(&terraform.Settings{Roots: []string{s.path(infraFolder)}})
	}
	return c
}

// name returns a name that is unique to this stage.
func (s *Stage) name() string {
	return strings.TrimPrefix(filepath.Base(s.Folder), "unwind-demo-")
}

// Place says what to observe to find out what became of the stage.
func (s *Stage) Place() found.Place {
	p := found.Place{Files: s.path(siteFolder), Skip: journals, Container: s.Container, Database: s.database(),
		Stripe: s.Stripe}
	if s.Missing["terraform"] == "" {
		p.Infra, p.Effects = s.path(infraFolder), s.path(effectsFolder)
	}
	return p
}

// Close removes everything, the last thing first.
func (s *Stage) Close(ctx context.Context) error {
	var problems []error
	for _, each := range slices.Backward(s.closers) {
		problems = append(problems, each(ctx))
	}
	s.closers = nil
	return errors.Join(problems...)
}
