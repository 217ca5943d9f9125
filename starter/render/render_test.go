package render

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/starter/golden"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

func settled(step, action string, o activities.Outcome, observed string) compensations.StepReport {
	return compensations.StepReport{
		Step: step, Action: action, State: string(compensations.Settled), Outcome: o, Observed: observed,
		Took: 40 * time.Millisecond,
	}
}

func TestReports(t *testing.T) {
	failed := &compensations.Cause{Kind: compensations.Failure, Step: "smoke",
		Text: "CheckFailed: exit status 1\nno route"}
	parked := compensations.StepReport{
		Step: "settings", Action: "file.write", State: string(compensations.Parked), Outcome: activities.Drifted,
		Observed: "app.yml has other content", Reason: "someone else changed it since: app.yml has other content",
		Drift: &activities.Drift{Digest: "sha256:d", Diff: "-port: 80\n+port: 81\n"}, Digest: "sha256:p",
	}
	customer := settled("customer", "stripe.customer.create", activities.Compensated, "the customer is deleted")
	customer.Losses = []string{"its id stays in Stripe's log"}
	refund := settled("refund", "stripe.refund.create", activities.Final, "the refund is paid out")
	accepted := settled("deploy", "terraform.apply", activities.Unknown, "two creates were in flight")
	accepted.State, accepted.Reason, accepted.Notes = string(compensations.Accepted), "two creates were in flight",
		[]string{"accept by eve@desk: looked at the console"}

	smoke := func(try int, o activities.Outcome) compensations.StepReport {
		s := settled("smoke", "container.exec", o, "as before")
		s.Try, s.Losses = try, []string{"ids", "processes"}
		return s
	}
	for name, r := range map[string]compensations.Report{
		"committed": {
			Task: "release-1", Status: compensations.Committed, Lasted: 3 * time.Minute,
			Steps: []compensations.StepReport{
				{Step: "settings", Action: "file.write", State: "done", Summary: "wrote /srv/app.yml (214 bytes)",
					Took: 30 * time.Millisecond},
				{Step: "deploy", Action: "terraform.apply", State: "done", Summary: "3 added", Took: 90 * time.Second,
					Notes: []string{"approved by eve@desk"}},
			},
			Notes: []string{"step deploy runs without its gate: the task file says gate: none"},
		},
		"unwound": {
			Task: "release-2", Status: compensations.Unwound, Cause: failed, Lasted: 12300 * time.Millisecond,
			Steps: []compensations.StepReport{
				settled("settings", "file.write", activities.Restored, "app.yml is byte for byte as before"), customer,
				settled("smoke", "container.exec", activities.Nothing, "it had not acted"),
				{Step: "announce", Action: "stripe.refund.create", State: "not-started"},
			},
			Outcomes: map[string]int{"restored": 1, "compensated": 1, "nothing-to-undo": 1},
		},
		"remains": {
			Task: "release-3", Status: compensations.Remains,
			Cause:  &compensations.Cause{Kind: compensations.Canceled, Text: "the task was canceled"},
			Lasted: 2 * time.Hour,
			Steps: []compensations.StepReport{settled("settings", "file.write", activities.Restored, "as before"), accepted,
				refund},
			Outcomes: map[string]int{"restored": 1, "unknown": 1, "irreversible": 1},
			Notes:    []string{"ignored signal: resolve: step \"x\" is not in the ledger"},
		},
		"open": {
			Task: "release-4", Status: compensations.Open, Cause: failed,
			Steps: []compensations.StepReport{
				{Step: "first", Action: "file.write", State: string(compensations.Pending)}, parked,
				{Step: "host", Action: "file.write", State: string(compensations.Waiting), Reason: "waiting for host build-1"},
			},
			Outcomes: map[string]int{"drifted": 1},
		},
		"partly": {
			Task: "release-6", Status: compensations.Partly, Lasted: time.Minute,
			Steps: []compensations.StepReport{
				{Step: "settings", Action: "file.write", State: "done", Summary: "wrote /srv/app.yml (214 bytes)"},
				smoke(1, activities.Restored), smoke(2, activities.Restored),
				{Step: "deploy", Action: "terraform.apply", State: "rolled-back", Outcome: activities.Compensated,
					Observed: "3 destroyed",
					Losses:   []string{"ids"}, Notes: []string{"rolled back, as its on_failure says: CheckFailed: no route"}},
				{Step: "refund", Action: "stripe.refund.create", State: "failed", Summary: "timed out (StartToClose)",
					Notes: []string{"try 1: timed out (Heartbeat)"}},
				{Step: "announce", Action: "http.post", State: "left-out", Notes: []string{"left out: it needs deploy"}},
			},
		},
		"redone": {
			Task: "redo-1", Status: compensations.Redone,
			Steps: []compensations.StepReport{{Step: "settings", Action: "file.write", State: "done",
				Summary: "wrote /srv/app.yml (214 bytes)"}},
		},
		"hostile": {
			Task: "release-5", Status: compensations.Unwound,
			Cause: &compensations.Cause{Kind: compensations.Failure, Text: "\x1b[2Jboo\r\nboo"},
			Steps: []compensations.StepReport{settled("a", "x.y", activities.Restored, "as\tbefore\x1b]0;owned\a")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			Report(&b, r)
			golden.Match(t, "report-"+name, b.String())
		})
	}
}

func TestGatesAndParks(t *testing.T) {
	server := tasks.Server{Address: "db:7233", Namespace: "prod", UI: "https://ui"}
	var b bytes.Buffer
	g := protocol.GateView{
		Step: "pay out", Digest: "sha256:abc", Opening: 2, Why: "stripe.refund.create is risky",
		Until: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		Change: activities.Change{
			Summary: "refund 12.00 EUR", Risk: activities.High, Facts: []string{"moves money"},
			Strategy: activities.Irreversible,
			Undo:     "nothing takes it back", Losses: []string{"12.00 EUR"}, Diff: "POST /v1/refunds\n  amount=1200\n",
		},
	}
	Gate(&b, g)
	GateWays(&b, server, "it's 1", g)
	golden.Match(t, "gate", b.String())

	b.Reset()
	Park(&b, tasks.Server{Resets: map[string]string{"container.exec": "made anew"}}, "task-1",
		compensations.StepReport{Step: "a", Action: "file.write", Reason: "DamagedRecord: blob is truncated",
			Outcome: activities.Failed})
	golden.Match(t, "park", b.String())
}

func TestWhatFailsIsShown(t *testing.T) {
	var b bytes.Buffer
	Standing(&b, tasks.Server{}, tasks.Run{ID: "task-1"}, tasks.Standing{State: protocol.State{
		Phase:    protocol.Forward,
		Troubles: []protocol.Trouble{{What: "make durable what 2 steps did", Reason: "the disk\nis full"}},
	}})
	require.Contains(t, b.String(), "\ntrouble: make durable what 2 steps did: the disk is full\n")

	b.Reset()
	Tasks(&b, []tasks.Listed{{ID: "task-1", Status: "open", Failing: "undo a", Pending: 3}})
	require.Contains(t, b.String(), "failing: undo a")
}

func TestTheLossesOfStepsAreListedOnceInAPlan(t *testing.T) {
	t.Parallel()
	change := func(losses ...string) *activities.Change { return &activities.Change{Losses: losses} }
	var b bytes.Buffer
	Plan(&b, protocol.Plan{Name: "three", Steps: []protocol.PlannedStep{
		{ID: "a", Change: change("another id", "its log")}, {ID: "b", Change: change("another id", "its log")},
		{ID: "c", Change: change("its log", "a tmpfs")},
	}})
	var losses []string
	for line := range strings.Lines(b.String()) {
		if loss, ok := strings.CutPrefix(line, "  loses     "); ok {
			losses = append(losses, strings.TrimSpace(loss))
		}
	}
	require.Equal(t,
		[]string{"another id", "its log", "the same as step a (2 above)", "a tmpfs", "the same as step a (1 above)"}, losses)
}
