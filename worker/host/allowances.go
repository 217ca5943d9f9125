package host

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/canonical"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// allowances are the standing approvals that the workers of this queue have been given, for what acts here.
type allowances struct{ builtin }

// allowanceLimit is how long the keeper of standing approvals has for an answer. Without one, none counts.
const allowanceLimit = 5 * time.Second

// verifyAllowance verifies who gives an allowance, for the workflow that is to keep it.
func (b builtin) verifyAllowance(_ context.Context, a protocol.SignedAllowance) (protocol.Proof, error) {
	if b.signers == nil {
		return protocol.Proof{}, nil // a name is a claim
	}
	key, err := b.signers.Verify(a.Allowance, a.Signature)
	if err != nil {
		return protocol.Proof{Refusal: err.Error()}, nil //nolint:nilerr // what proves nothing is an answer
	}
	return protocol.Proof{Key: key}, nil
}

// Given implements activities.Allowances. What came from the keeper is a claim, and is checked here.
func (a allowances) Given(ctx context.Context) (proved []activities.GivenAllowance, err error) {
	if a.server.Client == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, allowanceLimit)
	defer cancel()
	var given []activities.GivenAllowance
	answer, err := a.server.Client.QueryWorkflowWithOptions(ctx, &client.QueryWorkflowWithOptionsRequest{
		WorkflowID: protocol.AllowancesID(a.config.Queue), QueryType: protocol.QueryAllowances,
		QueryRejectCondition: enumspb.QUERY_REJECT_CONDITION_NOT_OPEN,
	})
	_, missing := errors.AsType[*serviceerror.NotFound](err)
	if missing || err == nil && answer.QueryRejected != nil {
		return nil, nil
	}
	if err == nil {
		err = answer.QueryResult.Get(&given)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("their keeper does not answer: %w", err)
	case len(given) > protocol.MaxAllowances:
		return nil, fmt.Errorf("their keeper lists %d, more than %d", len(given), protocol.MaxAllowances)
	}
	for _, g := range given {
		if g.Check() != nil || g.ID != g.Allowance.ID() || g.At.After(time.Now().Add(protocol.MaxAllowanceSkew)) {
			continue
		}
		g.Key = ""
		if a.signers != nil {
			if g.Key, err = a.signers.Verify(g.Allowance, g.Signature); err != nil {
				continue
			}
		}
		if g, err = a.spent.add(g); err != nil {
			return nil, err
		}
		proved = append(proved, g)
	}
	return proved, nil
}

// Use implements activities.Allowances. The keeper counts for all hosts, and this one for itself.
func (a allowances) Use(ctx context.Context, g activities.GivenAllowance, u activities.AllowanceUse) error {
	ctx, cancel := context.WithTimeout(ctx, allowanceLimit)
	defer cancel()
	handle, err := a.server.Client.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: protocol.AllowancesID(a.config.Queue), UpdateName: protocol.UpdateUse,
		Args:         []any{protocol.AllowanceUse{ID: g.ID, AllowanceUse: u}},
		WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = handle.Get(ctx, nil)
	}
	if refused, is := errors.AsType[*temporal.ApplicationError](err); is {
		return errors.New(refused.Message())
	}
	if err != nil {
		return fmt.Errorf("the keeper of standing approvals does not answer: %w", err)
	}
	_, err = a.spent.add(g)
	return err
}

// Touched implements activities.Allowances. A file has the names of all places that it is seen at: one of
// several hard links is below no folder.
func (a allowances) Touched(ctx context.Context, action string, s activities.Step) (touched []string, err error) {
	names, err := canonical.ReadMounts()
	if err != nil {
		return nil, err
	}
	all, err := a.registry.Touches(ctx, action, activities.Outlook{Step: s})
	if err != nil {
		return nil, err
	}
	touched = a.registry.KeysOf(action, s.With)
	for _, touch := range all {
		found := []string{touch.Name}
		if touch.Path != "" {
			if found, err = names.Of(touch.Path); err != nil {
				return nil, err
			}
		}
		for _, name := range found {
			if filepath.IsAbs(name) {
				name = "file:" + name
			}
			touched = append(touched, name)
		}
	}
	return touched, nil
}
