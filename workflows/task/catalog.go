package task

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/seed-62bf7108/unwind/activities"
)

// Catalog is what Compile knows of the worker that a task runs on.
type Catalog struct {
	// Specs are the actions that the worker knows.
	Specs []activities.Spec
	// Elsewhere are actions that workers of other hosts may have: steps that name such a host may use
	// them. Of those that are among Specs, these count.
	Elsewhere []activities.Spec
	// Vars override those of the task file; see Document.Override.
	Vars map[string]any
	// Host is the worker's own host name: host-bound steps run there unless they name another.
	Host string
	// SharedQueue is the task queue of steps that any worker may run.
	SharedQueue string
	// Journals are the ids of the worker's own journals, by world.
	Journals map[string]string
	// Secrets are the names of the secrets that the worker's config allows. Nil: not known here, so
	// not checked.
	Secrets []string
	// Retention is how long the server keeps closed runs: no task can be rolled back for longer. Zero:
	// not known here, so not checked.
	Retention time.Duration
	// Signed means that the worker takes only signed decisions.
	Signed bool
	// Defaults hold where the task file says nothing.
	Defaults Defaults
}

// HostQueue returns the task queue of the steps of one host. A queue that is that host's already is
// it.
func HostQueue(queue, host string) string {
	if of, isOwn := HostOf(queue, queue); isOwn && of == host {
		return queue
	}
	return queue + "@" + host
}

// HostOf returns the host whose own task queue a queue is, beside the one that its tasks are on,
// which may be the same.
func HostOf(queue, tasks string) (host string, isOwn bool) {
	shared, _, _ := strings.Cut(tasks, "@")
	return strings.CutPrefix(queue, shared+"@")
}

// Defaults hold where a task file says nothing.
type Defaults struct {
	// Attempts is how often a forward is tried. Defaults to 3.
	Attempts int
	// Backoff is the wait before the second attempt; each further one is twice as long. Defaults to
	// 1s.
	Backoff time.Duration
	// MaxBackoff is the longest wait between two attempts. Defaults to 30s.
	MaxBackoff time.Duration
	// Timeout bounds one attempt of a forward. Defaults to 5m.
	Timeout time.Duration
	// Heartbeat is how long an attempt may show no sign of life before it counts as dead. Defaults to
	// 10s.
	Heartbeat time.Duration
	// UndoAttempt bounds one attempt of an undo. Defaults to 10m.
	UndoAttempt time.Duration
	// UndoWithin bounds all attempts of an undo together; then it is parked. Defaults to 1h.
	UndoWithin time.Duration
	// HostWait is how long an undo stays on the queue of a host before it shows as waiting for that
	// host. Zero leaves it to the engine.
	HostWait time.Duration
	// GateLimit is how long a gate that always asks waits. Defaults to 365 days.
	GateLimit time.Duration
	// AutoGateLimit is how long a gate that asks by risk waits. Defaults to 24h.
	AutoGateLimit time.Duration
}

const defaultGateLimit = 365 * 24 * time.Hour

// WithDefaults returns d with every zero field at its default.
func (d Defaults) WithDefaults() Defaults {
	return Defaults{
		Attempts:      cmp.Or(d.Attempts, 3),
		Backoff:       cmp.Or(d.Backoff, time.Second),
		MaxBackoff:    cmp.Or(d.MaxBackoff, 30*time.Second),
		Timeout:       cmp.Or(d.Timeout, 5*time.Minute),
		Heartbeat:     cmp.Or(d.Heartbeat, 10*time.Second),
		UndoAttempt:   cmp.Or(d.UndoAttempt, 10*time.Minute),
		UndoWithin:    cmp.Or(d.UndoWithin, time.Hour),
		HostWait:      d.HostWait,
		GateLimit:     cmp.Or(d.GateLimit, defaultGateLimit),
		AutoGateLimit: cmp.Or(d.AutoGateLimit, 24*time.Hour),
	}
}

// action is a Spec with its schema ready to use.
type action struct {
	activities.Spec
	params   *jsonschema.Schema
	resolved *jsonschema.Resolved
}

func newAction(s activities.Spec) (*action, error) {
	a := &action{Spec: s, params: &jsonschema.Schema{}}
	for _, name := range s.Intent {
		if !slices.Contains(s.UndoParams, name) {
			return nil, fmt.Errorf("action %s: its intent names %q, which is none of its undoParams", s.Name, name)
		}
	}
	if len(s.Params) > 0 {
		if err := json.Unmarshal(s.Params, a.params); err != nil {
			return nil, fmt.Errorf("action %s: its parameters' schema cannot be read: %w", s.Name, err)
		}
	}
	var err error
	if a.resolved, err = a.params.Resolve(nil); err != nil {
		return nil, fmt.Errorf("action %s: its parameters' schema: %w", s.Name, err)
	}
	return a, nil
}
