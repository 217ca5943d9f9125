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
	"time"
)

// When says what a check examines.
type When string

// Staged content has not reached its target yet; the live target has been changed.
const (
	Staged When = "staged"
	Live   When = "live"
)

// Check is a condition on the result of a step. Exactly one of its kinds is set.
type Check struct {
	// When is Staged or Live. Defaults to Staged for actions that stage, and to Live for all others.
	When When `json:"when,omitempty"`
	// Within is how long a live check may take to hold: it is tried again until it does. Zero: it must
	// hold at once.
	Within time.Duration `json:"within,omitempty"`
	// Timeout is how long one try may take. Defaults to DefaultCheckTimeout.
	Timeout time.Duration `json:"timeout,omitempty"`
	// Command must exit 0. Its program must be one that the worker's config allows.
	Command *CommandCheck `json:"command,omitempty"`
	// JSON must hold for a file.
	JSON *JSONCheck `json:"json,omitempty"`
	// Syntax must be that of a file.
	Syntax *SyntaxCheck `json:"syntax,omitempty"`
	// HTTP must be answered as it says. It is always Live.
	HTTP *HTTPCheck `json:"http,omitempty"`
	// Exists must exist.
	Exists *ExistsCheck `json:"exists,omitempty"`
	// Query must return a value, in a step on a database.
	Query *QueryCheck `json:"query,omitempty"`
}

// CommandCheck runs a program. In a container world it runs inside the container.
type CommandCheck struct {
	// Run is the program and its arguments, without a shell. "{path}" in an argument is replaced by
	// the present path of the checked file (its staged copy, or the target). In a step with several
	// files, each file's path is replaced like that.
	Run []string `json:"run"`
}

// JSONCheck requires that a file is JSON, and has a certain value at one place.
type JSONCheck struct {
	// File defaults to the step's own target.
	File string `json:"file,omitempty"`
	// At is a JSON Pointer (RFC 6901). Defaults to the whole document.
	At string `json:"at,omitempty"`
	// Equals is the value that must be there. Defaults to any.
	Equals json.RawMessage `json:"equals,omitempty"`
}

// ExistsCheck requires that a file or folder exists.
type ExistsCheck struct {
	// Path defaults to the step's own target.
	Path string `json:"path,omitempty"`
}

// Scene is what a world shows to checks: its staged content, or the live target.
type Scene interface {
	// Target is the step's own target as the task file names it; empty unless there is exactly one.
	Target() string
	// ReadFile reads a file of the scene, or returns fs.ErrNotExist. A world refuses paths that it
	// must not read.
	ReadFile(ctx context.Context, path string) ([]byte, error)
	// Run runs a program in the scene with "{path}" replaced, and returns its combined output. If the
	// command ran and failed, the error is an *exec.ExitError or any other.
	Run(ctx context.Context, argv []string) ([]byte, error)
}

// RunChecks runs the checks of when, in order. preset is what an empty When means in this world.
// The first check that does not hold is returned as CheckFailed with the reason.
func RunChecks(ctx context.Context, checks []Check, when, preset When, scene Scene) error {
	for i, c := range checks {
		if c.when(preset) == when {
			if err := c.await(ctx, scene); err != nil {
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

// when says what the check examines in a world whose preset is that.
func (c Check) when(preset When) When {
	if c.HTTP != nil {
		return Live
	}
	return cmp.Or(c.When, preset)
}

// Kind returns the name of the kind that is set.
func (c Check) Kind() string {
	switch {
	case c.Command != nil:
		return "command"
	case c.JSON != nil:
		return "json"
	case c.Syntax != nil:
		return "syntax"
	case c.HTTP != nil:
		return "http"
	case c.Exists != nil:
		return "exists"
	case c.Query != nil:
		return "query"
	}
	return "none"
}

func (c Check) runCheck(ctx context.Context, scene Scene) error {
	switch {
	case c.Command != nil:
		return c.Command.runCommand(ctx, scene)
	case c.JSON != nil:
		return c.JSON.compareJSON(ctx, scene)
	case c.Syntax != nil:
		return c.Syntax.parseFile(ctx, scene)
	case c.HTTP != nil:
		return c.HTTP.ask(ctx)
	case c.Exists != nil:
		return c.Exists.findPath(ctx, scene)
	case c.Query != nil:
		return c.Query.compareValue(ctx, scene)
	}
	return Errorf(Refused, "a check needs one of command, json, syntax, http, exists, query")
}

func (c CommandCheck) runCommand(ctx context.Context, scene Scene) error {
	if err := c.checkProgram(ctx); err != nil {
		return err
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
	return &Error{Type: CheckFailed, Message: fmt.Sprintf("%s: %s", strings.Join(c.Run, " "), reason),
		Output: Tail(MaskerFrom(ctx).String(string(out)), 2000)}
}

// checkProgram refuses a program that the worker's config does not allow.
func (c CommandCheck) checkProgram(ctx context.Context) *Error {
	if len(c.Run) == 0 {
		return Errorf(Refused, "command: give the program and its arguments as a list")
	}
	if allowed := checkRightsOf(ctx).programs; !slices.Contains(allowed, "*") && !slices.Contains(allowed, c.Run[0]) {
		return Errorf(Refused, "command: this worker does not allow %q in a check; checkCommands in its config allows %s",
			c.Run[0], orNone(allowed))
	}
	return nil
}

func (c JSONCheck) compareJSON(ctx context.Context, scene Scene) error {
	name := cmp.Or(c.File, scene.Target())
	if name == "" {
		return Errorf(Refused, "file: name the file to look at; this step has no single target")
	}
	raw, err := scene.ReadFile(ctx, name)
	if err != nil {
		return missingError(name, err)
	}
	return c.compareBody(ctx, name, raw)
}

// compareBody looks at a JSON document that messages call name.
func (c JSONCheck) compareBody(ctx context.Context, name string, raw []byte) error {
	var doc any
	if err := json.Unmarshal(raw, &doc); err != nil {
		return Errorf(CheckFailed, "%s is not JSON: %v", name, err)
	}
	got, err := resolvePointer(doc, c.At)
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
		return Errorf(CheckFailed, "%s: %s is %s, want %s", name, orRoot(c.At), Tail(MaskerFrom(ctx).String(string(g)), 200),
			bytes.TrimSpace(c.Equals))
	}
	return nil
}

func (c ExistsCheck) findPath(ctx context.Context, scene Scene) error {
	name := cmp.Or(c.Path, scene.Target())
	if name == "" {
		return Errorf(Refused, "path: name what must be there; this step has no single target")
	}
	_, err := scene.ReadFile(ctx, path.Clean(name))
	return missingError(name, err)
}

func missingError(name string, err error) error {
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

func resolvePointer(doc any, at string) (any, error) {
	if at == "" {
		return doc, nil
	}
	if !strings.HasPrefix(at, "/") {
		return nil, fmt.Errorf("at: %q is not a JSON Pointer: one starts with /", at)
	}
	for token := range strings.SplitSeq(at[1:], "/") {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		switch d := doc.(type) {
		case map[string]any:
			v, ok := d[token]
			if !ok {
				return nil, fmt.Errorf("there is nothing at %s", at)
			}
			doc = v
		case []any:
			i := -1
			if _, err := fmt.Sscanf(token, "%d", &i); err != nil || i < 0 || i >= len(d) {
				return nil, fmt.Errorf("there is nothing at %s", at)
			}
			doc = d[i]
		default:
			return nil, fmt.Errorf("there is nothing at %s", at)
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

// Tail returns at most the last n bytes of s, from the start of a line if possible. Mask what may
// hold a secret first: half a secret is not found.
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
