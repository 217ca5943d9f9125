package mcp

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// shellTool is the name of the tool shell, and shellAction the action behind it.
const (
	shellTool   = "shell"
	shellAction = "container.exec"
)

type shellInput struct {
	onSession
	Container string            `json:"container" jsonschema:"name or id of a running container"`
	Command   string            `json:"command" jsonschema:"command line, run by sh -c"`
	Workdir   string            `json:"workdir,omitempty" jsonschema:"absolute folder to run in"`
	User      string            `json:"user,omitempty" jsonschema:"who it runs as"`
	Env       map[string]string `json:"env,omitempty" jsonschema:"more environment variables"`
	stepOptions
}

// Shell is what a command did.
type Shell struct {
	ExitStatus int    `json:"exit_status" jsonschema:"-1 if it did not run to its end"`
	Stdout     string `json:"stdout,omitempty" jsonschema:"its first 8 KiB"`
	Stderr     string `json:"stderr,omitempty" jsonschema:"its first 2 KiB"`
	// Output is both, of a command that failed.
	Output string `json:"output,omitempty" jsonschema:"the last 3 KiB of both, where the command failed"`
	// Changed has a line for each path.
	Changed []string `json:"changed,omitempty" jsonschema:"paths that differ: + is new, - is gone, ~ is changed"`
	// Undone says that the container is as before the command.
	Undone bool `json:"undone,omitempty" jsonschema:"the command failed, and what it had changed was undone"`
}

// addShell adds the tool shell, where there is an action for it.
func (s *Server) addShell() {
	if !slices.ContainsFunc(s.Specs, func(spec activities.Spec) bool { return spec.Name == shellAction }) {
		return
	}
	addTool(s, &sdk.Tool{
		Name: shellTool, Title: "Run a command in a container",
		Description: "Runs one command in a running container, and returns its exit status, its output and the paths " +
			"that it changed in the container. " +
			"If it fails, what it changed is undone, unless on_failure is continue: give that where a status other than 0 " +
			"is no failure to you, as with grep or a test. " +
			"rollback with the step's id undoes it later, with all later steps that build on it. Files on volumes, and what " +
			"it did outside the container, are not undone.",
		Annotations: changes(destructive, notIdempotent),
	}, s.shell)
}

func (s *Server) shell(ctx context.Context, call *sdk.CallToolRequest, in shellInput) (Outcome, error) {
	with := map[string]any{"container": in.Container, "command": in.Command, "workdir": in.Workdir, "user": in.User}
	dropEmpty(with)
	if len(in.Env) > 0 {
		with["env"] = in.Env
	}
	o, err := s.run(ctx, call, in.onSession, in.step(shellAction, with))
	o.tellShell()
	return o, err
}

// tellShell tells what the command of a call did, in place of its step's outputs.
func (o *Outcome) tellShell() {
	if len(o.Steps) != 1 {
		return
	}
	o.Shell = shellOf(o.Steps[0])
	o.Steps[0].Outputs = nil
}

// shellOf reads what a command did from its step; nil if it has not ended.
func shellOf(s Step) *Shell {
	switch protocol.StepState(s.State) {
	case protocol.Done:
		return readShell(s.Outputs)
	case protocol.StepFailed, protocol.RolledBack:
		return readFailure(s)
	}
	return nil
}

func readShell(outputs map[string]any) *Shell {
	text := func(name string) string { said, _ := outputs[name].(string); return said }
	sh := &Shell{Stdout: text("stdout"), Stderr: text("stderr")}
	sh.ExitStatus, _ = strconv.Atoi(fmt.Sprint(outputs["exit_code"]))
	paths, _ := outputs["paths"].([]any)
	for _, p := range paths {
		sh.Changed = append(sh.Changed, fmt.Sprint(p))
	}
	return sh
}

// exitStatus is where container.exec says how a command failed; below the line is what it wrote.
var exitStatus = regexp.MustCompile(`: exit status (\d+) in container `)

// readFailure reads a failed command from the error of its step: a failed step has no outputs.
func readFailure(s Step) *Shell {
	line, output, _ := strings.Cut(s.Error, "\n")
	sh := &Shell{ExitStatus: -1, Output: output, Undone: s.State == string(protocol.RolledBack)}
	if found := exitStatus.FindStringSubmatch(line); found != nil {
		sh.ExitStatus, _ = strconv.Atoi(found[1])
	}
	return sh
}
