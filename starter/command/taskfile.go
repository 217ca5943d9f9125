package command

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// howChecked is in the help of every command that reads a task file.
const howChecked = `The file is checked here first, by the code that the worker uses, so that errors come as FILE:LINE:COLUMN before
anything starts. It is checked against the actions that Unwind ships, or with --config against the worlds, the secrets and
the host of that worker's config. What only a running worker knows (whether a host is there, a secret of its own) it checks
itself, before it touches anything. Actions of your own are known to a starter of your own (Go package starter/command).`

// checking are the flags of a command that reads a task file.
type checking struct {
	config string
	vars   []string
}

func (f *checking) add(c *cobra.Command) {
	f.addConfig(c)
	c.Flags().StringArrayVar(&f.vars, "var", nil, "give the file's variable a value, as `name=value`; may be repeated")
}

func (f *checking) addConfig(c *cobra.Command) {
	c.Flags().StringVar(&f.config, "config", "", "check against the config `file` of a worker")
	_ = c.MarkFlagFilename("config", "yaml", "yml")
}

// taskFile is a task file that was found good.
type taskFile struct {
	document json.RawMessage
	compiled *task.Compiled
}

// read reads and checks a task file; "-" is the standard input.
func (p *program) read(file string, f checking) (taskFile, error) {
	src, err := p.source(file)
	if err != nil {
		return taskFile{}, err
	}
	values, err := splitVars(f.vars)
	if err != nil {
		return taskFile{}, err
	}
	return p.check(file, src, values, f.config)
}

// check checks a task file that was read.
func (p *program) check(file string, src []byte, values map[string]any, config string) (taskFile, error) {
	doc, err := task.Parse(file, src)
	if err != nil {
		return taskFile{}, usageError{err}
	}
	if doc, err = doc.Override(values); err != nil {
		return taskFile{}, usageError{err}
	}
	catalog, err := p.staticCatalog(config)
	if err != nil {
		return taskFile{}, err
	}
	compiled, err := task.Compile(doc, catalog)
	if err != nil {
		return taskFile{}, usageError{err}
	}
	document, err := doc.JSON()
	if err != nil {
		return taskFile{}, fmt.Errorf("%s: %w", file, err)
	}
	return taskFile{document, compiled}, nil
}

func (p *program) source(file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(io.LimitReader(p.streams.In, task.MaxFile+1)) // what is longer is refused by Parse
	}
	src, err := os.ReadFile(file)
	if err != nil {
		return nil, usagef("task file: %w; name an existing file, or - for the standard input", err)
	}
	return src, nil
}

// staticCatalog is what a file is checked against with no worker asked.
func (p *program) staticCatalog(config string) (task.Catalog, error) {
	c, specs, err := p.known(config)
	if err != nil {
		return task.Catalog{}, err
	}
	catalog := task.Catalog{
		Specs: specs, Host: c.Host, SharedQueue: c.Queue, Journals: map[string]string{},
		Defaults: task.Defaults{Heartbeat: c.Heartbeat},
	}
	for _, s := range specs {
		catalog.Journals[activities.WorldOf(s.Name)] = "unknown until a worker tells it"
	}
	if config == "" {
		return catalog, nil // Secrets nil: only a worker knows them
	}
	catalog.Secrets = []string{}
	for name := range c.Secrets {
		catalog.Secrets = append(catalog.Secrets, name)
	}
	return catalog, nil
}

// known are the actions of a config, or all that Unwind ships, with those of Options.
func (p *program) known(config string) (host.Config, []activities.Spec, error) {
	var c host.Config
	var named *host.Config
	var err error
	if config != "" {
		if c, err = host.ReadConfig(config); err != nil {
			return c, nil, usageError{err}
		}
		named = &c
	}
	specs, err := host.Specs(named)
	if err != nil {
		return c, nil, err
	}
	specs = append(specs, activities.NewRegistry(p.options.Worlds...).Specs()...)
	slices.SortFunc(specs, func(a, b activities.Spec) int { return strings.Compare(a.Name, b.Name) })
	if c, err = c.WithEnvironment(os.LookupEnv).WithDefaults(); err != nil {
		return c, nil, usageError{err}
	}
	return c, specs, nil
}

// splitVars reads the values of --var.
func splitVars(vars []string) (map[string]any, error) {
	values := make(map[string]any, len(vars))
	for _, v := range vars {
		name, value, ok := strings.Cut(v, "=")
		if !ok || name == "" {
			return nil, usagef("--var %q: give name=value", v)
		}
		values[name] = value
	}
	return values, nil
}
