package main

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hiddeco/sshsig"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"golang.org/x/crypto/ssh"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

const (
	decided     = 41  // alternating pairs, after one to warm up
	maxDecision = 1.2 // from an unsigned approval to the start of its step, over the bare workflow, at most
)

type decisionsFigures struct {
	UnsignedMS   float64 `json:"unsigned_ms"` // medians, from the decision to the start of the activity
	BareMS       float64 `json:"bare_ms"`
	Ratio        float64 `json:"ratio"` // median of the ratios pair by pair
	SignedMS     float64 `json:"signed_ms"`
	SignedBareMS float64 `json:"signed_bare_ms"` // in turns with the signed ones
	SignedRatio  float64 `json:"signed_ratio"`
}

// decisions measures how long a step takes to start once it is approved.
func decisions(ctx context.Context) (any, []string, error) {
	var f decisionsFigures
	var err error
	if f.UnsignedMS, f.BareMS, f.Ratio, err = compareDecisions(ctx, nil); err != nil {
		return nil, nil, err
	}
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, nil, err
	}
	key, err := ssh.NewSignerFromSigner(private)
	if err != nil {
		return nil, nil, err
	}
	if f.SignedMS, f.SignedBareMS, f.SignedRatio, err = compareDecisions(ctx, key); err != nil {
		return nil, nil, err
	}
	fmt.Printf(`
%-44s %12s %12s %8s
%-44s %9.1f ms %9.1f ms %8.3f   (target at most %.2f)
%-44s %9.1f ms %9.1f ms %8.3f

`, fmt.Sprintf("to the next activity, medians of %d pairs", decided), "unwind", "bare", "ratio",
		"an approval", f.UnsignedMS, f.BareMS, f.Ratio, maxDecision,
		"a signed approval", f.SignedMS, f.SignedBareMS, f.SignedRatio)
	var missed []string
	if f.Ratio > maxDecision {
		missed = append(missed, fmt.Sprintf("an approval %.3fx, target %.2fx", f.Ratio, maxDecision))
	}
	return f, missed, nil
}

// compareDecisions measures approvals, which are signed if there is a key, against signals.
func compareDecisions(ctx context.Context, key ssh.Signer) (ours, bare, ratio float64, err error) {
	acts := make(chan time.Time, 1)
	begin := func() { acts <- time.Now() }
	s, err := newStage(ctx, noopWorld(func(bool, activities.Entry) error {
		begin()
		return nil
	}),
		func(c *host.Config, o *host.Options) {
			o.Register = func(r worker.Registry) {
				r.RegisterWorkflowWithOptions(bareGate, workflow.RegisterOptions{Name: "bare-gate"})
				r.RegisterActivityWithOptions(func(context.Context) error {
					begin()
					return nil
				},
					activity.RegisterOptions{Name: "bare-act"})
			}
			if key != nil {
				c.Approvals = &host.ApprovalsConfig{Signers: filepath.Join(filepath.Dir(c.State), "allowed_signers")}
				err = os.WriteFile(c.Approvals.Signers, append([]byte("ann "), ssh.MarshalAuthorizedKey(key.PublicKey())...), 0o600)
			}
		})
	if err != nil {
		return 0, 0, 0, err
	}
	defer s.close()
	a, b, ratios, err := inPairs(decided,
		func(i int) (float64, error) {
			return s.untilActs(ctx, fmt.Sprintf("ours-%d", i), protocol.AgentTaskType, document(1, "ask"), acts,
				func(run client.WorkflowRun) (any, error) { return s.approval(ctx, run, key) })
		},
		func(i int) (float64, error) {
			return s.untilActs(ctx, fmt.Sprintf("bare-%d", i), "bare-gate", nil, acts,
				func(run client.WorkflowRun) (any, error) { // the answer says that it waits
					_, err := s.client.QueryWorkflow(ctx, run.GetID(), run.GetRunID(), client.QueryTypeStackTrace)
					return nil, err
				})
		})
	if err != nil {
		return 0, 0, 0, err
	}
	return median(a), median(b), median(ratios), nil
}

// bareGate is the usual way: an activity that waits for a signal.
func bareGate(ctx workflow.Context, _ any) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	workflow.GetSignalChannel(ctx, protocol.SignalApprove).Receive(ctx, nil)
	return workflow.ExecuteActivity(ctx, "bare-act").Get(ctx, nil)
}

// untilActs returns how many milliseconds pass from the signal that a workflow waits for to the start of
// its activity. decide waits until it waits, and makes the signal.
func (s *stage) untilActs(ctx context.Context, id, workflowType string, argument any, acts <-chan time.Time,
	decide func(client.WorkflowRun) (any, error)) (float64, error) {
	run, err := s.startWorkflow(ctx, id, workflowType, argument)
	if err != nil {
		return 0, err
	}
	decision, err := decide(run)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := s.client.SignalWorkflow(ctx, id, run.GetRunID(), protocol.SignalApprove, decision); err != nil {
		return 0, err
	}
	select {
	case at := <-acts:
		return float64(at.Sub(began).Microseconds()) / 1000, run.Get(ctx, nil)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// approval waits for the gate of a task, and approves what waits there; signed if there is a key.
func (s *stage) approval(ctx context.Context, run client.WorkflowRun, key ssh.Signer) (d protocol.Decision, err error) {
	var state protocol.State
	for len(state.Gates) == 0 {
		answer, err := s.client.QueryWorkflow(ctx, run.GetID(), run.GetRunID(), protocol.QueryState)
		if err == nil {
			err = answer.Get(&state)
		}
		if err != nil {
			return d, err
		}
	}
	g := state.Gates[0]
	d = protocol.Decision{Step: g.Step, Digest: g.Digest, Who: "ann"}
	if key == nil {
		return d, nil
	}
	d.At = time.Now().UTC().Truncate(time.Second)
	text := g.Statement(run.GetID(), activities.Approve, d).Text()
	sig, err := sshsig.Sign(strings.NewReader(text), key, sshsig.HashSHA512, activities.SignatureNamespace)
	if err != nil {
		return d, err
	}
	d.Signature = string(sshsig.Armor(sig))
	return d, nil
}
