package actiontest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// world is one test's world, with the step under test and the one of the next generation.
type world struct {
	Case
	t      testing.TB
	dir    string
	opened activities.World
	action activities.Action
	// before is the manifest before anything was done.
	before string
	// first and next are the two generations of the step.
	first, next forward
	// planned and copies are the documents of the first step after its plan, and after its apply.
	planned, copies map[string][]byte
}

// forward is a step with its entry, as a forward gets it.
type forward struct {
	Entry activities.Entry `json:"entry"`
	Step  activities.Step  `json:"step"`
	// bare is the same with a reference in place of the secret, as in a workflow.
	bare *forward
}

// newWorld starts a world.
func (s *suite) newWorld(t testing.TB) *world {
	t.Helper()
	// Not TempDir, whose path contains the name of the test: the path of a Unix socket below it would
	// be too long.
	dir, err := os.MkdirTemp("", "actiontest-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("what the test left cannot be removed: %v", err)
		}
	})
	s.Start(t, dir)
	w := &world{Case: s.Case, t: t, dir: dir}
	if w.opened, err = s.Open(dir); err != nil {
		t.Fatalf("Open: %v", err)
	}
	if w.action, err = findAction(w.opened, s.Action); err != nil {
		t.Fatal(err)
	}
	place, err := w.opened.Journal(w.ctx())
	if err != nil {
		t.Fatalf("Journal: %v", err)
	}
	run := rand.Text()
	w.first = w.newForward(run, 1, s.With(dir), place)
	w.next = w.newForward(run, 2, s.Next(dir), place)
	w.before = s.Manifest(t, dir)
	return w
}

func findAction(world activities.World, name string) (activities.Action, error) {
	for _, a := range world.Actions {
		if a.Spec().Name == name {
			return a, nil
		}
	}
	return nil, fmt.Errorf("world %s has no action %s", world.Name, name)
}

// ctx bounds one call.
func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(w.t.Context(), w.Patience)
	w.t.Cleanup(cancel)
	return activities.WithCheckCommands(activities.WithOwner(ctx, owner), []string{"*"})
}

// newForward makes a step with its entry as the engine does.
func (w *world) newForward(run string, generation int, with any, place string) forward {
	w.t.Helper()
	var raw bytes.Buffer
	encoder := json.NewEncoder(&raw)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(with); err != nil {
		w.t.Fatalf("the parameters: %v", err)
	}
	spec := w.action.Spec()
	bare := bytes.TrimSpace(raw.Bytes())
	if w.Secret != "" {
		bare = []byte(strings.ReplaceAll(string(bare), jsonEscaped(w.Secret), secretReference))
	}
	params, err := spec.EntryParams(bare)
	if err != nil {
		w.t.Fatalf("the entry's parameters: %v", err)
	}
	made := forward{
		Entry: activities.Entry{
			Version: activities.EntryVersion, Seq: generation, Step: "step", Action: spec.Name, UndoType: spec.Name + ".undo",
			Token: activities.NewToken(run, "step", generation), Place: activities.Place{Queue: "queue", Journal: place},
			Params: params,
			Policy: activities.UndoPolicy{Attempt: w.Patience, Within: time.Hour, Heartbeat: w.Patience},
		},
		Step: activities.Step{ID: "step", Name: "the step under test", With: bare, Checks: w.Checks},
	}
	if w.Secret == "" {
		return made
	}
	resolved := made
	resolved.bare = &made
	resolved.Entry.Params = w.resolve(made.Entry.Params)
	resolved.Step.With = w.resolve(made.Step.With)
	return resolved
}

func (w *world) resolve(raw json.RawMessage) json.RawMessage {
	return json.RawMessage(strings.ReplaceAll(string(raw), secretReference, jsonEscaped(w.Secret)))
}

// jsonEscaped returns a text as it appears in a JSON string.
func jsonEscaped(s string) string {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(s) // a string is always encodable
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(b.String()), `"`), `"`)
}

// manifest describes the world now.
func (w *world) manifest() string {
	w.t.Helper()
	return w.Manifest(w.t, w.dir)
}
