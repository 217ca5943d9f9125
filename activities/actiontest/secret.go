package actiontest

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"go.temporal.io/sdk/testsuite"

	"github.com/seed-62bf7108/unwind/activities"
)

// secretReference stands in a workflow's payloads in place of Case.Secret.
const (
	secretName      = "CANARY"
	secretReference = "${{ secrets." + secretName + " }}"
)

type oneSecret string

func (s oneSecret) Secret(name, _ string) (string, error) {
	if name != secretName {
		return "", fmt.Errorf("there is no secret %s", name)
	}
	return string(s), nil
}

// Values is empty: an action must not show a secret that the worker which undoes it has no more, and so cannot mask.
func (oneSecret) Values() []string { return nil }

// secret calls the action as a worker does, and looks for the secret in all that a worker would return or log.
func secret(w *world) {
	c := &caller{w: w, log: &lines{}}
	if !strings.Contains(string(w.first.bare.Step.With), secretReference) {
		w.t.Fatalf("With does not hold the secret: %s", w.first.bare.Step.With)
	}
	f, next := *w.first.bare, *w.next.bare
	var change activities.Change
	c.call(&change, true, f.Entry.Action+".plan", c.forward(f, ""))
	c.call(nil, false, f.Entry.Action, c.forward(f, activities.DigestOf([]byte("stale"))))
	c.call(nil, true, f.Entry.Action, c.forward(f, change.Digest))
	c.call(nil, true, f.Entry.Action, c.forward(f, change.Digest))
	c.call(nil, true, f.Entry.Action+".observe", f.Entry)
	var undone activities.Undone
	back := activities.Backward{Entry: f.Entry}
	if w.Drift != nil {
		w.Drift(w.t, w.dir)
		c.call(nil, true, f.Entry.Action+".observe", f.Entry)
		c.call(&undone, true, f.Entry.UndoType, back)
		if undone.Drift == nil {
			w.t.Fatalf("Undo after a drift: %s", text(undone))
		}
		back.Decision.Force = undone.Drift.Digest
	}
	undone = activities.Undone{}
	c.call(&undone, true, f.Entry.UndoType, back)
	if undone.Outcome != w.Undone {
		w.t.Fatalf("Undo ended %s, want %s: %s", undone.Outcome, w.Undone, text(undone))
	}
	w.mustBeBefore("after the undo")
	c.call(nil, false, f.Entry.Action, c.forward(f, ""))

	// A check that names the secret, and fails.
	next.Step, next.Entry.Params = f.Step, f.Entry.Params
	next.Step.Checks = append(slices.Clip(next.Step.Checks),
		activities.Check{When: activities.Live, Command: &activities.CommandCheck{Run: []string{"/nonexistent/" + w.Secret}}})
	c.call(nil, false, next.Entry.Action, c.forward(next, ""))
	c.call(nil, true, next.Entry.UndoType, activities.Backward{Entry: next.Entry})
	w.mustBeBefore("after the undo")
	c.call(nil, true, next.Entry.Action+".release", next.Entry)
	c.look("a log", c.log.String())
}

// caller calls activities in Temporal's test environment.
type caller struct {
	w   *world
	log *lines
}

func (c *caller) forward(f work, want activities.Digest) activities.Forward {
	// The test environment's run id, see testsuite.
	return activities.Forward{Entry: f.Entry, Step: f.Step, Want: want, OriginalRunID: "default-test-run-id"}
}

// call calls an activity, whose success must be as expected, and looks at all that comes back.
func (c *caller) call(into any, succeeds bool, activity string, arg any) {
	c.w.t.Helper()
	var s testsuite.WorkflowTestSuite
	s.SetLogger(c.log)
	env := s.NewTestActivityEnvironment()
	env.SetTestTimeout(c.w.Patience)
	activities.NewRegistry(c.w.opened).Register(env, activities.Host{Secrets: oneSecret(c.w.Secret), CheckCommands: []string{"*"}})
	value, err := env.ExecuteActivity(activity, arg)
	if err != nil {
		c.look("the error of "+activity, err.Error())
	}
	if (err == nil) != succeeds {
		c.w.t.Fatalf("%s: succeeds is %t, want %t: %v", activity, err == nil, succeeds, err)
	}
	if err != nil || !value.HasValue() {
		return
	}
	var all any
	if err := value.Get(&all); err != nil {
		c.w.t.Fatal(err)
	}
	c.look("what "+activity+" returned", fmt.Sprintf("%s %v", text(all), all))
	if into != nil {
		if err := value.Get(into); err != nil {
			c.w.t.Fatal(err)
		}
	}
}

// look fails where the secret, or a usual encoding of it, stands in s.
func (c *caller) look(where, s string) {
	c.w.t.Helper()
	v := c.w.Secret
	for _, form := range []string{
		v, quoted(v), strings.Trim(text(v), `"`), url.QueryEscape(v), url.PathEscape(v),
		base64.StdEncoding.EncodeToString([]byte(v)), base64.URLEncoding.EncodeToString([]byte(v)),
	} {
		if strings.Contains(s, form) {
			c.w.t.Errorf("the secret stands in %s: %s", where, strings.ReplaceAll(s, form, "<HERE>"))
			return
		}
	}
}

// lines is a logger that keeps what it is told.
type lines struct {
	mu   sync.Mutex
	said strings.Builder
}

func (l *lines) add(msg string, keyvals []any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintln(&l.said, append([]any{msg}, keyvals...)...)
}

func (l *lines) Debug(msg string, keyvals ...any) { l.add(msg, keyvals) }
func (l *lines) Info(msg string, keyvals ...any)  { l.add(msg, keyvals) }
func (l *lines) Warn(msg string, keyvals ...any)  { l.add(msg, keyvals) }
func (l *lines) Error(msg string, keyvals ...any) { l.add(msg, keyvals) }

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.said.String()
}
