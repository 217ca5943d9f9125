package command

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/worker/catalog"
	"github.com/seed-62bf7108/unwind/worker/defaults"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// howChecked is part of the help of every command that reads a task file.
const howChecked = `The file is checked here first, by the code that the worker uses, so that errors come as
FILE:LINE:COLUMN before anything starts. It is checked against the actions that Unwind ships, or
with --config against the worlds, the secrets and the host of that worker's config. What only a
running worker knows (whether a host is there, a secret of its own) it checks itself, before it
touches anything. Actions of your own are known to a starter of your own (Go package
starter/command).`

// fileFlags are the flags of a command that reads a task file.
type fileFlags struct {
	config string
	vars   []string
}

func (f *fileFlags) addTo(c *cobra.Command) {
	f.addConfigTo(c)
	c.Flags().StringArrayVar(&f.vars, "var", nil, "give the file's variable a value, as `name=value`; may be repeated")
}

func (f *fileFlags) addConfigTo(c *cobra.Command) {
	c.Flags().StringVar(&f.config, "config", "", "check against the config `file` of a worker")
	_ = c.MarkFlagFilename("config", "yaml", "yml")
}

// readTaskFile reads and checks a task file; "-" is the standard input.
func (p *program) readTaskFile(file string, f fileFlags) (tasks.File, error) {
	src, err := p.readSource(file)
	if err != nil {
		return tasks.File{}, err
	}
	values, err := splitVars(f.vars)
	if err != nil {
		return tasks.File{}, err
	}
	return p.checkTaskFile(file, src, values, f.config)
}

// checkTaskFile checks the content of a task file.
func (p *program) checkTaskFile(file string, src []byte, values map[string]any, config string) (tasks.File, error) {
	doc, err := task.Parse(file, src)
	if err != nil {
		return tasks.File{}, usage.Wrap(err)
	}
	if doc, err = doc.Override(values); err != nil {
		return tasks.File{}, usage.Wrap(err)
	}
	catalog, err := p.staticCatalog(config)
	if err != nil {
		return tasks.File{}, err
	}
	compiled, err := task.Compile(doc, catalog)
	if err != nil {
		return tasks.File{}, usage.Wrap(err)
	}
	document, err := doc.JSON()
	if err != nil {
		return tasks.File{}, fmt.Errorf("%s: %w", file, err)
	}
	return tasks.File{Document: document, Compiled: compiled, Written: doc}, nil
}

func (p *program) readSource(file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(io.LimitReader(p.streams.In, task.MaxFile+1)) // what is longer is refused by Parse
	}
	src, err := os.ReadFile(file)
	if err != nil {
		return nil, usage.Errorf("task file: %w; name an existing file, or - for the standard input", err)
	}
	return src, nil
}

// staticCatalog is the catalog that a file is checked against without asking a worker.
func (p *program) staticCatalog(config string) (task.Catalog, error) {
	facts, err := p.workerFacts(config)
	if err != nil {
		return task.Catalog{}, err
	}
	c := task.Catalog{
		Specs: facts.specs, Host: facts.host, SharedQueue: facts.queue, Secrets: facts.secrets, Journals: map[string]string{},
		Defaults: task.Defaults{Heartbeat: facts.heartbeat},
	}
	for _, spec := range facts.specs {
		c.Journals[activities.WorldOf(spec.Name)] = "known only to a worker"
	}
	return c, nil
}

// workerFacts are what a starter knows of a worker without asking one.
type workerFacts struct {
	specs       []activities.Spec // sorted by name
	host, queue string
	heartbeat   time.Duration // zero: the default
	secrets     []string      // nil: only a worker knows them
}

// workerFacts are those of a worker with this config file, or else the actions that Unwind ships;
// with those of Options.
func (p *program) workerFacts(config string) (f workerFacts, err error) {
	switch {
	case config == "":
		f.specs, f.queue, f.host = catalog.Specs(), p.sharedQueue(), os.Getenv("UNWIND_HOST")
		if f.host == "" {
			f.host, err = defaults.Host()
		}
	case p.worker == nil:
		err = noWorkerHere("--config")
	default:
		f, err = p.worker.facts(config)
	}
	if err != nil {
		return f, err
	}
	f.specs = append(f.specs, activities.NewRegistry(p.options.Worlds...).Specs()...)
	slices.SortFunc(f.specs, func(a, b activities.Spec) int { return strings.Compare(a.Name, b.Name) })
	return f, nil
}

// splitVars reads the values of --var.
func splitVars(vars []string) (map[string]any, error) {
	values := make(map[string]any, len(vars))
	for _, v := range vars {
		name, value, ok := strings.Cut(v, "=")
		if !ok || name == "" {
			return nil, usage.Errorf("--var %q: give name=value", v)
		}
		values[name] = value
	}
	return values, nil
}
