package container

import (
	"context"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/command"
	"github.com/seed-62bf7108/unwind/activities/container/readonly"
	"github.com/seed-62bf7108/unwind/activities/container/target"
)

// params are what a task file writes below with:.
type params struct {
	Container string            `json:"container" jsonschema:"name or id of the container; it must be running"`
	Command   string            `json:"command,omitempty" jsonschema:"a command line, run by sh -c in the container"`
	Argv      []string          `json:"argv,omitempty" jsonschema:"a program and its arguments, run without a shell; instead of command"`
	User      string            `json:"user,omitempty" jsonschema:"user, or user:group, to run as; defaults to the container's"`
	Workdir   string            `json:"workdir,omitempty" jsonschema:"absolute folder to run in; defaults to the container's"`
	Env       map[string]string `json:"env,omitempty" jsonschema:"more environment variables; with any, the command is never taken for read-only"`
	Ignore    []string          `json:"ignore,omitempty" jsonschema:"absolute paths that an undo neither compares nor asks about before it throws them away; defaults to /tmp, /run and /var/log"`
	Volumes   string            `json:"volumes,omitempty" jsonschema:"snapshot: a copy is kept of each volume that the container may write to, and the undo puts back what differs; the worker must be root on the engine's host. Defaults to leaving volumes as they are"`
	Rerun     *bool             `json:"rerun,omitempty" jsonschema:"when the command's result is lost for good, roll back and run it again; defaults to true, false fails the step with UnknownOutcome instead"`
}

const snapshotVolumes = "snapshot"

func decode(s activities.Step) (params, error) {
	p, err := activities.DecodeParams[params](s.With)
	if err != nil {
		return p, err
	}
	return p.check(s.Checks)
}

func (p params) check(checks []activities.Check) (params, error) {
	refuse := func(format string, args ...any) (params, error) {
		return p, activities.Errorf(activities.Refused, format, args...)
	}
	switch {
	case p.Container == "":
		return refuse("container: name the container to run in")
	case (p.Command == "") == (len(p.Argv) == 0):
		return refuse("give one of command (a shell command line) and argv (a program and its arguments)")
	case p.Volumes != "" && p.Volumes != snapshotVolumes:
		return refuse("volumes: %q is not known; use snapshot, or leave it out", p.Volumes)
	case p.Workdir != "" && !path.IsAbs(p.Workdir):
		return refuse("workdir: %q is not an absolute path", p.Workdir)
	}
	if err := target.CleanIgnore(p.Ignore); err != nil {
		return p, err
	}
	for name := range p.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return refuse("env: %q cannot be the name of a variable", name)
		}
	}
	for _, c := range checks {
		if c.When == activities.Staged {
			return refuse("check: a command in a container has nothing staged; use when: live")
		}
	}
	return p, nil
}

func (p params) ignored() []string {
	if p.Ignore == nil {
		return target.DefaultIgnore()
	}
	return p.Ignore
}

func (p params) mayRerun() bool { return p.Rerun == nil || *p.Rerun }

func (p params) argv() []string {
	if p.Command != "" {
		return []string{"sh", "-c", p.Command}
	}
	return p.Argv
}

func (p params) toRun() command.Command {
	return command.Command{Argv: p.argv(), User: p.User, Workdir: p.Workdir, Env: p.environ()}
}

func (p params) environ() []string {
	env := make([]string, 0, len(p.Env))
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		env = append(env, name+"="+p.Env[name])
	}
	return env
}

// reading returns the programs of a command that changes nothing, as far as its text tells.
func (p params) reading() (programs []string, ok bool) {
	switch {
	case len(p.Env) > 0 || readonly.NamesDevice(p.Workdir): // a variable can make a harmless program run another
		return nil, false
	case p.Command != "":
		return readonly.ParseScript(p.Command)
	default:
		return readonly.ParseArgv(p.Argv)
	}
}

// String is the command as people write it.
func (p params) String() string {
	if p.Command != "" {
		return p.Command
	}
	return strings.Join(p.Argv, " ")
}

// title is the command in one short line, without its secrets.
func (p params) title(ctx context.Context) string {
	text := activities.MaskerFrom(ctx).String(p.String())
	line, more, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if len(line) > 100 {
		line, more = strings.ToValidUTF8(line[:100], ""), "more"
	}
	if more != "" {
		line += " ..."
	}
	return line
}

// readsOnly says that a command can be proven to change nothing in a container.
func (x *execAction) readsOnly(ctx context.Context, p params, in container.InspectResponse) (bool, error) {
	programs, ok := p.reading()
	if !ok || !readonly.Provable(in) {
		return false, nil
	}
	image, err := x.lineage.Origin(ctx, in)
	if target.IsDamaged(err) { // the image is gone
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return x.prover.Proves(ctx, programs, in, image)
}
