package command

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/docker/docker/client"
	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/worker/host"
)

// The files that init writes; the templates are filled in with a project.
var (
	//go:embed init/worker.yaml
	initConfig string
	//go:embed init/first-task.yaml
	initTask string
	//go:embed init/main.tf
	initInfra string
)

func (p *program) initCommand() *cobra.Command {
	var box string
	c := &cobra.Command{
		Use:     "init [FOLDER]",
		GroupID: groupServe,
		Short:   "Write a worker's config and a first task that work on this machine",
		Long: `Init writes into a folder (the current one if none is named)

  worker.yaml       what a worker may do there, with comments
  first-task.yaml   a task that uses what this machine has
  infra/main.tf     a Terraform configuration without a provider, if there is a terraform on PATH

and makes the folder site, which the task writes to. It looks for a container engine and for
Terraform; what is missing is in worker.yaml as a comment. No container is touched unless
--container names one.

It never overwrites a file: if one of these exists, nothing is written.

` + exitStatuses,
		Example: `  starter init
  starter init ~/release --container web`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage.Errorf("%s takes one folder, but got %s; see %s --help", c.CommandPath(),
					activities.CountOf(len(args), "argument"), c.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			folder := "."
			if len(args) == 1 {
				folder = args[0]
			}
			return p.initProject(cmd.Context(), folder, box)
		},
	}
	c.Flags().StringVar(&box, "container", "", "`name` of a running container in which the first task may run a command")
	return c
}

// project is what the templates are filled in with.
type project struct {
	Folder, State, Host string
	Terraform           bool
	NoEngine            string // why no engine can be used; empty if one answers
	Container           string // the container that the task may use; may be empty
}

// Site and Infra are the folders that tasks may change.
func (p project) Site() string  { return filepath.Join(p.Folder, "site") }
func (p project) Infra() string { return filepath.Join(p.Folder, "infra") }

func (p *program) initProject(ctx context.Context, folder, box string) error {
	made, err := lookAround(ctx, folder, box)
	if err != nil {
		return err
	}
	files, err := made.files()
	if err != nil {
		return err
	}
	for _, f := range files {
		if _, err := os.Lstat(f.path); !errors.Is(err, fs.ErrNotExist) {
			return usage.Errorf("%s exists already, and init overwrites nothing; move it away, or name another folder", f.path)
		}
	}
	if err := os.MkdirAll(made.Site(), 0o755); err != nil {
		return err
	}
	for _, f := range files {
		if err := f.write(); err != nil {
			return err
		}
		p.printf("wrote %s\n", f.path)
	}
	if made.NoEngine != "" {
		p.printf("no containers: %s\n", terminal.OneLine(made.NoEngine))
	}
	if !made.Terraform {
		p.printf("no Terraform: there is no terraform on PATH\n")
	}
	p.printf("next, in two terminals:\n  starter dev --config %s\n  starter run %s --watch\n",
		terminal.ShellQuote(files[0].path), terminal.ShellQuote(files[1].path))
	return nil
}

// lookAround finds out what this machine has.
func lookAround(ctx context.Context, folder, box string) (project, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return project{}, err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return project{}, usage.Errorf("the folder of the project: %w", err)
	}
	// A folder behind a link has two names, and tasks and the worker must use the same one.
	if folder, err = filepath.EvalSymlinks(folder); err != nil {
		return project{}, err
	}
	c, err := host.Config{}.WithEnvironment(os.LookupEnv).WithDefaults()
	if err != nil {
		return project{}, err
	}
	made := project{Folder: folder, State: c.State, Host: c.Host, Container: box}
	if _, err := exec.LookPath("terraform"); err == nil {
		made.Terraform = true
	}
	if err := findEngine(ctx, box); err != nil {
		if box != "" {
			return project{}, usage.Errorf("--container %s: %w", box, err)
		}
		made.NoEngine = err.Error()
	}
	return made, nil
}

// How long an engine may take to answer: one that may not be there at all, and one that has a
// container which was named.
const (
	engineLimit = 5 * time.Second
	namedLimit  = time.Minute
)

// findEngine returns why no container engine can be used, or why a container in it cannot.
func findEngine(ctx context.Context, box string) error {
	engine, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		return err
	}
	defer engine.Close()
	limit := engineLimit
	if box != "" {
		limit = namedLimit
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if _, err := engine.Ping(ctx); err != nil || box == "" {
		return err
	}
	found, err := engine.ContainerInspect(ctx, box)
	if err != nil {
		return err
	}
	if !found.State.Running {
		return errors.New("it is not running; start it, or leave the flag out")
	}
	return nil
}

// newFile is a file to write.
type newFile struct {
	path, content string
}

// files are the config, the task, and what the task needs.
func (p project) files() ([]newFile, error) {
	var all []newFile
	for _, f := range []struct{ name, text string }{{"worker.yaml", initConfig}, {"first-task.yaml", initTask},
		{"infra/main.tf", initInfra}} {
		if f.text == initInfra && !p.Terraform {
			continue
		}
		t, err := template.New(f.name).Funcs(template.FuncMap{"quote": quote, "value": value,
			"comment": comment}).Parse(f.text)
		if err != nil {
			return nil, err
		}
		var content bytes.Buffer
		if err := t.Execute(&content, p); err != nil {
			return nil, err
		}
		all = append(all, newFile{filepath.Join(p.Folder, filepath.FromSlash(f.name)), content.String()})
	}
	return all, nil
}

// quote writes a text as JSON does, which is YAML too.
func quote(text string) (string, error) {
	raw, err := json.Marshal(text)
	return string(raw), err
}

// value writes a text for a task file, where ${{ begins an expression.
func value(text string) (string, error) { return quote(strings.ReplaceAll(text, "${{", "$${{")) }

// comment writes a text so that it stays behind a #.
func comment(text string) string { return strings.Join(strings.Fields(text), " ") }

func (f newFile) write() (err error) {
	if err := os.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
		return err
	}
	into, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("write %s: %w", f.path, err)
	}
	defer func() { err = errors.Join(err, into.Close()) }()
	_, err = into.WriteString(f.content)
	return err
}
