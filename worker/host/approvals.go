package host

import (
	"context"
	"fmt"

	"go.temporal.io/sdk/activity"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/worker/signers"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// openSigners reads whose signed decisions count; nil if the config has no approvals.
func (c Config) openSigners() (activities.Signers, error) {
	if c.Approvals == nil {
		return nil, nil
	}
	revoked := c.Approvals.Revoked
	if revoked != "" {
		revoked = c.besides(revoked)
	}
	known, err := signers.Open(c.besides(c.Approvals.Signers), revoked)
	if err != nil {
		return nil, fmt.Errorf("%s: approvals: %w", c.cite("approvals"), err)
	}
	return known, nil
}

// verify verifies a decision for the workflow that was told of it. Of what a worker acts on, it
// verifies it once more by itself.
func (b builtin) verify(ctx context.Context, d protocol.SignedDecision) (protocol.Proof, error) {
	if b.signers == nil {
		return protocol.Proof{Refusal: fmt.Sprintf("worker %s has no approvals in its config, so it cannot tell who has "+
			"signed: give all workers of this task the same", b.config.Host)}, nil
	}
	d.Statement.Task = activity.GetInfo(ctx).WorkflowExecution.ID
	key, err := b.signers.Verify(d.Statement, d.Signature)
	if err != nil {
		return protocol.Proof{Refusal: err.Error()}, nil //nolint:nilerr // what proves nothing is an answer
	}
	return protocol.Proof{Key: key}, nil
}
