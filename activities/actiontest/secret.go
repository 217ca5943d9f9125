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

// secretReference replaces Case.Secret in a workflow's payloads.
const (
	secretName      = "CANARY"
	secretReference = "${{ secrets." + secretName + " }}"
)

type singleSecret string

func (s singleSecret) Secret(name, _ string) (string, error) {
	if name != secretName {
		return "", fmt.Errorf("there is no secret %s", name)
	}
	return string(s), nil
}

// Values is empty: an action must not show a secret that the undoing worker no longer has and so
// cannot mask.
func (singleSecret) Values() []string { return nil }

// testSecret calls the action as a worker does, and searches for the secret in everything that a
// worker would return or log.
func testSecret(w *world) {
	c := &caller{w: w, log: &logLines{}}
	if !strings.Contains(string(w.first.bare.Step.With), secretReference) {
		w.t.Fatalf("With does not hold the secret: %s", w.first.bare.Step.With)
	}
	f, next := *w.first.bare, *w.next.bare
	var change activities.Change
	c.callActivity(&change, true, f.Entry.Action+".plan", c.forward(f, ""))
	c.callActivity(nil, false, f.Entry.Action, c.forward(f, activities.DigestOf([]byte("stale"))))
	c.callActivity(nil, true, f.Entry.Action, c.forward(f, change.Digest))
	c.callActivity(nil, true, f.Entry.Action, c.forward(f, change.Digest))
	c.callActivity(nil, true, f.Entry.Action+".observe", f.Entry)
	var undone activities.Undone
	back := activities.Backward{Entry: f.Entry}
	if w.Drift != nil {
		w.Drift(w.t, w.dir)
		c.callActivity(nil, true, f.Entry.Action+".observe", f.Entry)
		c.callActivity(&undone, true, f.Entry.UndoType, back)
		if undone.Drift == nil {
			w.t.Fatalf("Undo after a drift: %s", asJSON(undone))
		}
		back.Decision.Force = undone.Drift.Digest
	}
	undone = activities.Undone{}
	c.callActivity(&undone, true, f.Entry.UndoType, back)
	if undone.Outcome != w.Undone {
		w.t.Fatalf("Undo ended %s, want %s: %s", undone.Outcome, w.Undone, asJSON(undone))
	}
	w.mustBeBefore("after the undo")
	c.callActivity(nil, false, f.Entry.Action, c.forward(f, ""))

	// A check that names the secret, and fails.
	next.Step, next.Entry.Params = f.Step, f.Entry.Params
	next.Step.Checks = append(slices.Clip(next.Step.Checks),
		activities.Check{When: activities.Live, Command: &activities.CommandCheck{Run: []string{"/nonexistent/" + w.Secret}}})
	c.callActivity(nil, false, next.Entry.Action, c.forward(next, ""))
	c.callActivity(nil, true, next.Entry.UndoType, activities.Backward{Entry: next.Entry})
	w.mustBeBefore("after the undo")
	c.callActivity(nil, true, next.Entry.Action+".release", next.Entry)
	c.findSecret("a log", c.log.String())
}

// caller calls activities in Temporal's test environment.
type caller struct {
	w   *world
	log *logLines
}

func (c *caller) forward(f forward, want activities.Digest) activities.Forward {
	// The test environment's run id, see testsuite.
	return activities.Forward{Entry: f.Entry, Step: f.Step, Want: want, Consent: activities.Approved,
		OriginalRunID: "default-test-run-id"}
}

// callActivity calls an activity, which must succeed or fail as expected, and searches everything
// that it returns.
func (c *caller) callActivity(into any, succeeds bool, activity string, arg any) {
	c.w.t.Helper()
	var s testsuite.WorkflowTestSuite
	s.SetLogger(c.log)
	env := s.NewTestActivityEnvironment()
	env.SetTestTimeout(c.w.Patience)
	activities.NewRegistry(c.w.opened).Register(env,
		activities.Host{Secrets: singleSecret(c.w.Secret), CheckCommands: []string{"*"}})
	value, err := env.ExecuteActivity(activity, arg)
	if err != nil {
		c.findSecret("the error of "+activity, err.Error())
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
	c.findSecret("what "+activity+" returned", fmt.Sprintf("%s %v", asJSON(all), all))
	if into != nil {
		if err := value.Get(into); err != nil {
			c.w.t.Fatal(err)
		}
	}
}

// findSecret fails the test if s contains the secret or a usual encoding of it.
func (c *caller) findSecret(where, s string) {
	c.w.t.Helper()
	v := c.w.Secret
	for _, form := range []string{
		v, jsonEscaped(v), strings.Trim(asJSON(v), `"`), url.QueryEscape(v), url.PathEscape(v),
		base64.StdEncoding.EncodeToString([]byte(v)), base64.URLEncoding.EncodeToString([]byte(v)),
	} {
		if strings.Contains(s, form) {
			c.w.t.Errorf("the secret stands in %s: %s", where, strings.ReplaceAll(s, form, "<HERE>"))
			return
		}
	}
}

// logLines is a logger that keeps its lines.
type logLines struct {
	mu   sync.Mutex
	said strings.Builder
}

func (l *logLines) appendLine(msg string, keyvals []any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintln(&l.said, append([]any{msg}, keyvals...)...)
}

func (l *logLines) Debug(msg string, keyvals ...any) { l.appendLine(msg, keyvals) }
func (l *logLines) Info(msg string, keyvals ...any)  { l.appendLine(msg, keyvals) }
func (l *logLines) Warn(msg string, keyvals ...any)  { l.appendLine(msg, keyvals) }
func (l *logLines) Error(msg string, keyvals ...any) { l.appendLine(msg, keyvals) }

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.said.String()
}
