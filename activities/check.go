package activities

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path"
	"reflect"
	"slices"
	"strings"
)

// When says what a check looks at.
type When string

// Staged content has not reached its target yet; the live target has been changed.
const (
	Staged When = "staged"
	Live   When = "live"
)

// Check is a condition on what a step makes. Exactly one of its kinds is set.
type Check struct {
	// When is Staged or Live. Empty: staged for actions that stage, live for all others.
	When When `json:"when,omitempty"`
	// Command must exit 0. Its program must be one that the worker's config allows.
	Command *CommandCheck `json:"command,omitempty"`
	// JSON must hold of a file.
	JSON *JSONCheck `json:"json,omitempty"`
	// Exists must be there.
	Exists *ExistsCheck `json:"exists,omitempty"`
}

// CommandCheck runs a program. In a container world it runs inside the container.
type CommandCheck struct {
	// Run is the program and its arguments; no shell stands between. "{path}" in an argument is replaced by where the
	// checked file is now (its staged copy, or the target).
	Run []string `json:"run"`
}

// JSONCheck says that a file is JSON, and what stands at one place in it.
type JSONCheck struct {
	// File defaults to the step's own target.
	File string `json:"file,omitempty"`
	// At is a JSON Pointer (RFC 6901); empty is the whole document.
	At string `json:"at,omitempty"`
	// Equals is the value that must stand there; left out: any.
	Equals json.RawMessage `json:"equals,omitempty"`
}

// ExistsCheck says that a file or folder is there.
type ExistsCheck struct {
	// Path defaults to the step's own target.
	Path string `json:"path,omitempty"`
}

// Scene is where a world lets checks look: its staged content, or the live target.
type Scene interface {
	// Target is the step's own target as the task file names it; empty where there is not exactly one.
	Target() string
	// ReadFile reads a file as the scene has it; fs.ErrNotExist where it has none. A world refuses paths outside what it
	// may read.
	ReadFile(ctx context.Context, path string) ([]byte, error)
	// Run runs a program in the scene with "{path}" replaced, and returns its combined output. A command that ran and
	// failed is an *exec.ExitError or any other error.
	Run(ctx context.Context, argv []string) ([]byte, error)
}

// RunChecks runs those of checks that look at when, in order. preset is what an empty When means in this world. The
// first that does not hold is a CheckFailed with the reason.
func RunChecks(ctx context.Context, checks []Check, when, preset When, scene Scene) error {
	for i, c := range checks {
		if w := c.When; w == when || w == "" && preset == when {
			if err := c.run(ctx, scene); err != nil {
				if e, ok := errors.AsType[*Error](err); ok {
					e.Message = fmt.Sprintf("check %d (%s, %s): %s", i+1, c.Kind(), when, e.Message)
					return e
				}
				return fmt.Errorf("check %d (%s, %s): %w", i+1, c.Kind(), when, err)
			}
		}
	}
	return nil
}

// Kind names the kind that is set.
func (c Check) Kind() string {
	switch {
	case c.Command != nil:
		return "command"
	case c.JSON != nil:
		return "json"
	case c.Exists != nil:
		return "exists"
	}
	return "none"
}

func (c Check) run(ctx context.Context, scene Scene) error {
	switch {
	case c.Command != nil:
		return c.Command.run(ctx, scene)
	case c.JSON != nil:
		return c.JSON.run(ctx, scene)
	case c.Exists != nil:
		return c.Exists.run(ctx, scene)
	}
	return Errorf(Refused, "a check needs one of command, json, exists")
}

func (c CommandCheck) run(ctx context.Context, scene Scene) error {
	if len(c.Run) == 0 {
		return Errorf(Refused, "run: give the program and its arguments as a list")
	}
	if allowed := allowedCommands(ctx); !slices.Contains(allowed, "*") && !slices.Contains(allowed, c.Run[0]) {
		return Errorf(Refused, "run: this worker does not allow %q in a check; its config allows %s", c.Run[0], orNone(allowed))
	}
	out, err := scene.Run(ctx, c.Run)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if refused, ok := errors.AsType[*Error](err); ok {
		return refused
	}
	reason := err.Error()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		reason = fmt.Sprintf("exit status %d", exit.ExitCode())
	}
	return &Error{Type: CheckFailed, Message: fmt.Sprintf("%s: %s", strings.Join(c.Run, " "), reason), Output: Tail(MaskerFrom(ctx).String(string(out)), 2000)}
}

func (c JSONCheck) run(ctx context.Context, scene Scene) error {
	name := cmp.Or(c.File, scene.Target())
	if name == "" {
		return Errorf(Refused, "file: name the file to look at; this step has no single target")
	}
	raw, err := scene.ReadFile(ctx, name)
	if err != nil {
		return notThere(name, err)
	}
	var doc any
	if err := json.Unmarshal(raw, &doc); err != nil {
		return Errorf(CheckFailed, "%s is not JSON: %v", name, err)
	}
	got, err := pointer(doc, c.At)
	if err != nil {
		return Errorf(CheckFailed, "%s: %v", name, err)
	}
	if len(c.Equals) == 0 {
		return nil
	}
	var want any
	if err := json.Unmarshal(c.Equals, &want); err != nil {
		return Errorf(Refused, "equals: %v", err)
	}
	if !reflect.DeepEqual(got, want) {
		g, _ := json.Marshal(got)
		return Errorf(CheckFailed, "%s: %s is %s, want %s", name, orRoot(c.At), Tail(MaskerFrom(ctx).String(string(g)), 200), bytes.TrimSpace(c.Equals))
	}
	return nil
}

func (c ExistsCheck) run(ctx context.Context, scene Scene) error {
	name := cmp.Or(c.Path, scene.Target())
	if name == "" {
		return Errorf(Refused, "path: name what must be there; this step has no single target")
	}
	_, err := scene.ReadFile(ctx, path.Clean(name))
	return notThere(name, err)
}

func notThere(name string, err error) error {
	if err == nil || errors.Is(err, ErrIsFolder) {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return Errorf(CheckFailed, "%s is not there", name)
	}
	return err
}

// ErrIsFolder is what Scene.ReadFile returns for a folder.
var ErrIsFolder = errors.New("is a folder")

func pointer(doc any, at string) (any, error) {
	if at == "" {
		return doc, nil
	}
	if !strings.HasPrefix(at, "/") {
		return nil, fmt.Errorf("at: %q is no JSON Pointer; it starts with /", at)
	}
	for token := range strings.SplitSeq(at[1:], "/") {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		switch d := doc.(type) {
		case map[string]any:
			v, ok := d[token]
			if !ok {
				return nil, fmt.Errorf("nothing stands at %s", at)
			}
			doc = v
		case []any:
			i := -1
			if _, err := fmt.Sscanf(token, "%d", &i); err != nil || i < 0 || i >= len(d) {
				return nil, fmt.Errorf("nothing stands at %s", at)
			}
			doc = d[i]
		default:
			return nil, fmt.Errorf("nothing stands at %s", at)
		}
	}
	return doc, nil
}

func orRoot(at string) string {
	if at == "" {
		return "the document"
	}
	return at
}

func orNone(s []string) string {
	if len(s) == 0 {
		return "none"
	}
	return strings.Join(s, ", ")
}

// Tail is at most the last n bytes of s, cut at a line's start where there is one. What may hold a secret is masked before:
// half a secret is no longer found.
func Tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	s = s[len(s)-n:]
	if i := strings.IndexByte(s, '\n'); i >= 0 && i < len(s)-1 {
		s = s[i+1:]
	}
	return "..." + strings.ToValidUTF8(s, "")
}
