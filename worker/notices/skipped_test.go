package notices

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/notices"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// night is a channel's workflow in skipped time, and what its receiver was sent, each with the time
// since noon.
type night struct {
	*testing.T
	env *testsuite.TestWorkflowEnvironment

	mu      sync.Mutex
	told    []string
	handed  []string
	isDead  bool
	decided map[string]bool
	lapsed  map[string]bool
	rounds  int // how often the desk was asked to deliver
}

// newNight has the workflow serve a channel whose webhook the night is.
func newNight(t *testing.T, c Channel) *night {
	n := &night{T: t, decided: map[string]bool{}, lapsed: map[string]bool{}}
	s := httptest.NewServer(http.HandlerFunc(n.take))
	t.Cleanup(s.Close)
	c.Webhook = &Webhook{URL: "URL", Key: "KEY"}
	d := desk(c, map[activities.OwnSecret]string{"URL": s.URL, "KEY": "a-secret-key"})
	d.Look = func(_ context.Context, w protocol.Waiting) (protocol.Waiting, bool, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.lapsed[w.Step] {
			w.Lapse = protocol.Lapse("nobody", w.Step, 4*time.Hour)
		}
		return w, !n.decided[w.Step], nil
	}
	d.Hand = func(_ context.Context, channel string, all []protocol.Waiting) error {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, w := range all {
			n.handed = append(n.handed, fmt.Sprintf("%s to %s from %s", w.Step, channel, w.From))
		}
		return nil
	}
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	n.env = suite.NewTestWorkflowEnvironment()
	n.env.SetTestTimeout(time.Minute)
	n.env.SetStartTime(noon)
	n.env.RegisterWorkflow(notices.Notices)
	n.env.RegisterActivityWithOptions(
		func(ctx context.Context, now time.Time, s protocol.Notices) (protocol.Notices, error) {
			n.rounds++
			return d.Deliver(ctx, now, s), nil
		}, activity.RegisterOptions{Name: protocol.NoticesActivity})
	return n
}

func (n *night) take(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.isDead {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	var got Notice
	_ = json.NewDecoder(r.Body).Decode(&got)
	text := got.At.Sub(noon).String()
	for _, item := range got.Items {
		text += fmt.Sprintf(" %s %s", item.Kind, item.Step)
	}
	n.told = append(n.told, text)
}

// after does something at a time after noon.
func (n *night) after(d time.Duration, do func()) {
	n.env.RegisterDelayedCallback(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		do()
	}, d)
}

// comes has something begin to wait at a time after noon.
func (n *night) comes(d time.Duration, w protocol.Waiting) {
	w.At = noon.Add(d)
	n.env.RegisterDelayedCallback(func() { n.env.SignalWorkflow(protocol.SignalWaiting, []protocol.Waiting{w}) }, d)
}

// run runs the workflow to its end, and returns when that was.
func (n *night) run(first ...protocol.Waiting) time.Duration {
	n.env.ExecuteWorkflow(notices.Notices, protocol.Notices{Channel: "ops", Waiting: first})
	require.True(n, n.env.IsWorkflowCompleted())
	require.NoError(n, n.env.GetWorkflowError())
	return n.env.Now().Sub(noon)
}

// While it waits people are reminded, and once it is decided no more.
func TestRemindersEndWithTheDecision(t *testing.T) {
	n := newNight(t, Channel{Remind: time.Hour})
	n.after(150*time.Minute, func() { n.decided["deploy"] = true })
	n.run(atGate("deploy", activities.High))
	require.Equal(t, []string{"0s new deploy", "1h0m0s reminder deploy", "2h0m0s reminder deploy"}, n.told)
}

func TestALapseIsTold(t *testing.T) {
	n := newNight(t, Channel{})
	w := atGate("deploy", activities.Low)
	w.Until = noon.Add(90 * time.Minute)
	n.after(90*time.Minute, func() { n.lapsed["deploy"] = true })
	require.Equal(t, 90*time.Minute+lapseAfter, n.run(w), "nothing waits any more")
	require.Equal(t, []string{"0s new deploy", "1h30m5s lapsed deploy"}, n.told)
}

func TestWhatWaitsForTooLongIsEscalatedOnceAlsoByADeadChannel(t *testing.T) {
	for _, isDead := range []bool{false, true} {
		n := newNight(t, Channel{Escalate: &Escalation{After: 2 * time.Hour, To: "boss"}})
		n.isDead = isDead
		n.after(3*time.Hour, func() { n.decided["deploy"] = true })
		n.run(atGate("deploy", activities.High))
		require.Equal(t, []string{"deploy to boss from ops"}, n.handed)
	}
}

// Nothing is forgotten meanwhile.
func TestAChannelThatIsAwayIsTriedUntilItIsBack(t *testing.T) {
	n := newNight(t, Channel{})
	n.isDead = true
	n.comes(time.Minute, atGate("second", activities.High))
	n.after(90*time.Minute, func() { n.isDead = false })
	n.after(100*time.Minute, func() { n.decided["deploy"], n.decided["second"] = true, true })
	n.run(atGate("deploy", activities.High))
	require.Len(t, n.told, 1)
	require.Regexp(t, `^1h3\dm\d+s new deploy new second$`, n.told[0])
}

func TestLowRiskIsGatheredAndHighRiskTakesItAlong(t *testing.T) {
	n := newNight(t, Channel{Digest: 15 * time.Minute})
	n.comes(5*time.Minute, atGate("second", activities.Medium))
	n.comes(30*time.Minute, atGate("third", activities.Low))
	n.comes(31*time.Minute, atGate("urgent", activities.High))
	n.comes(32*time.Minute, atGate("second", activities.Medium)) // known already
	n.after(time.Hour, func() {
		for _, step := range []string{"deploy", "second", "third", "urgent"} {
			n.decided[step] = true
		}
	})
	n.run(atGate("deploy", activities.Low))
	require.Equal(t, []string{"15m0s new deploy new second", "31m0s new urgent new third"}, n.told)
}

// What was decided before it was told is not told.
func TestWhatIsDecidedMeanwhileIsNotTold(t *testing.T) {
	n := newNight(t, Channel{Digest: 15 * time.Minute})
	n.after(10*time.Minute, func() { n.decided["deploy"] = true })
	n.run(atGate("deploy", activities.Low))
	require.Empty(t, n.told)
}

func TestAParkIsToldOnceWithoutReminders(t *testing.T) {
	n := newNight(t, Channel{})
	parked := protocol.Waiting{Alert: protocol.Alert{Task: "release", Step: "deploy", State: "parked",
		Digest: "sha256:1", At: noon}}
	require.Less(t, n.run(parked), time.Minute)
	require.Equal(t, []string{"0s new deploy"}, n.told)
}

// Who hands on and fails is asked again.
func TestAnEscalationThatFailsIsTriedAgain(t *testing.T) {
	d := desk(Channel{Slack: &Slack{URL: "URL"}, Escalate: &Escalation{After: time.Minute, To: "boss"}}, nil)
	d.Hand = func(context.Context, string, []protocol.Waiting) error { return errors.New("the server is away") }
	w := atGate("deploy", activities.High)
	w.Told, w.Last = 1, noon
	after := d.Deliver(t.Context(), noon.Add(time.Hour), protocol.Notices{Channel: "ops", Waiting: []protocol.Waiting{w}})
	require.Equal(t, "the server is away", after.Trouble)
	require.False(t, after.Waiting[0].Escalated)
	require.Equal(t, noon.Add(time.Hour+firstPause), after.Next)
}

// A pause ends with the failure: what comes later is told at once.
func TestAPauseIsOver(t *testing.T) {
	n := newNight(t, Channel{})
	n.isDead = true
	n.after(40*time.Second, func() { n.isDead, n.decided["deploy"] = false, true })
	n.comes(30*time.Minute, atGate("second", activities.High))
	n.after(40*time.Minute, func() { n.decided["second"], n.decided["third"] = true, true })
	n.run(atGate("deploy", activities.High), protocol.Waiting{Alert: protocol.Alert{
		Task: "release", Step: "third", State: protocol.Gated, Risk: activities.Low, Digest: "sha256:third",
		At: noon, Until: noon.Add(4 * time.Hour)}, Told: 1, Last: noon})
	require.Equal(t, []string{"30m0s new second"}, n.told)
}

// Another worker may know the channel: nothing is forgotten, told or handed on.
func TestAWorkerWithoutTheChannelForgetsNothing(t *testing.T) {
	d := desk(Channel{Slack: &Slack{URL: "URL"}}, nil)
	d.Look = func(_ context.Context, w protocol.Waiting) (protocol.Waiting, bool, error) { return w, false, nil }
	parked := protocol.Waiting{Alert: protocol.Alert{Task: "release", Step: "deploy", State: "parked",
		Digest: "sha256:1", At: noon}, Told: 1, Last: noon}
	before := protocol.Notices{Channel: "renamed", Waiting: []protocol.Waiting{parked, atGate("deploy", activities.Low)}}
	after := d.Deliver(t.Context(), noon.Add(2*time.Hour), before)
	require.Contains(t, after.Trouble, `has no channel "renamed"`)
	require.Equal(t, 1, after.Failures)
	require.Equal(t, noon.Add(2*time.Hour+firstPause), after.Next)
	require.Equal(t, before.Waiting, after.Waiting)
}

// Also what is handed on, or could not be told before, waits until the quiet hours are over.
func TestQuietHoursAreThoseInWhichItIsTold(t *testing.T) {
	n := newNight(t, Channel{Quiet: "13:00-15:30 UTC"})
	escalated := atGate("passed-on", activities.Medium)
	escalated.From, escalated.Until = "team", noon.Add(8*time.Hour)
	n.env.RegisterDelayedCallback(func() {
		n.env.SignalWorkflow(protocol.SignalWaiting, []protocol.Waiting{escalated})
	}, 90*time.Minute)
	n.after(70*time.Minute, func() { n.isDead = false })
	late := atGate("late", activities.Low)
	late.Until = noon.Add(8 * time.Hour)
	n.after(4*time.Hour, func() { n.decided["late"], n.decided["passed-on"] = true, true })
	n.isDead = true
	n.run(late)
	require.Equal(t, []string{"3h30m0s new late escalated passed-on"}, n.told)
	require.Less(t, n.rounds, 40, "it does not wake for nothing")
}

// A signal that cannot be read holds up no other.
func TestAnUnreadableSignalIsDropped(t *testing.T) {
	n := newNight(t, Channel{})
	n.env.RegisterDelayedCallback(func() {
		n.env.SignalWorkflow(protocol.SignalWaiting, "x")
		n.env.SignalWorkflow(protocol.SignalWaiting, []protocol.Waiting{atGate("second", activities.High)})
		n.env.SignalWorkflow(protocol.SignalWaiting, "x")
	}, 5*time.Minute)
	n.env.RegisterDelayedCallback(func() { n.env.SignalWorkflow(protocol.SignalWaiting, "x") }, 10*time.Minute)
	n.after(20*time.Minute, func() { n.decided["deploy"], n.decided["second"] = true, true })
	n.run(atGate("deploy", activities.High))
	require.Equal(t, []string{"0s new deploy", "5m0s new second"}, n.told)
}

// What cannot be asked is kept and told, and asked again soon.
func TestATaskThatDoesNotAnswerIsAskedAgain(t *testing.T) {
	d := desk(Channel{Slack: &Slack{URL: "URL"}}, nil)
	w := atGate("deploy", activities.High)
	w.Told, w.Last = 1, noon
	n := protocol.Notices{Channel: "ops", Waiting: []protocol.Waiting{w}}
	now := noon.Add(lookEvery)
	answered := d.Deliver(t.Context(), now, n)
	require.Equal(t, now, answered.Waiting[0].Looked)
	require.Equal(t, now.Add(lookEvery), answered.Next)

	look := d.Look
	d.Look = func(_ context.Context, w protocol.Waiting) (protocol.Waiting, bool, error) {
		return w, true, errors.New("no worker answers")
	}
	n.Waiting = []protocol.Waiting{w}
	silent := d.Deliver(t.Context(), now, n)
	require.Zero(t, silent.Waiting[0].Looked)
	require.Equal(t, now.Add(freshFor), silent.Next)
	d.Look = look
	require.Equal(t, silent.Next, d.Deliver(t.Context(), silent.Next, silent).Waiting[0].Looked)
}
