package tasks

import (
	"context"
	"errors"
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// Allowances lists the standing approvals of the workers on a shared queue, the oldest first.
func (c *Client) Allowances(ctx context.Context, queue string) (given []activities.GivenAllowance, err error) {
	limited, cancel := context.WithTimeout(ctx, c.silenceLimit())
	defer cancel()
	answer, err := c.QueryWorkflowWithOptions(limited, &client.QueryWorkflowWithOptionsRequest{
		WorkflowID: protocol.AllowancesID(queue), QueryType: protocol.QueryAllowances,
		QueryRejectCondition: enumspb.QUERY_REJECT_CONDITION_NOT_OPEN,
	})
	_, missing := errors.AsType[*serviceerror.NotFound](err)
	if missing || err == nil && answer.QueryRejected != nil {
		return nil, nil
	}
	if limited.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("standing approvals: no worker answers on queue %s; start one", queue)
	}
	if err == nil {
		err = answer.QueryResult.Get(&given)
	}
	return given, err
}

// Allow gives a standing approval to the workers on a shared queue. Nothing is changed by one that they
// have.
func (c *Client) Allow(ctx context.Context, queue string, a protocol.SignedAllowance) (g activities.GivenAllowance,
	err error) {
	if err := a.Check(); err != nil {
		return g, usage.Errorf("%w: nothing was allowed", err)
	}
	_, err = c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: protocol.AllowancesID(queue), TaskQueue: queue,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		StaticSummary:            "standing approvals",
	}, protocol.AllowancesType, protocol.Allowances{})
	if err != nil {
		return g, fmt.Errorf("start the keeper of standing approvals: %w", err)
	}
	return c.askAllowances(ctx, queue, protocol.UpdateAllow, a)
}

// Disallow revokes a standing approval at once: what has begun by it is finished.
func (c *Client) Disallow(ctx context.Context, queue string, d protocol.Disallowing) (activities.GivenAllowance,
	error) {
	return c.askAllowances(ctx, queue, protocol.UpdateDisallow, d)
}

func (c *Client) askAllowances(ctx context.Context, queue, update string, argument any) (g activities.GivenAllowance,
	err error) {
	if _, err := c.Allowances(ctx, queue); err != nil { // an update waits for a worker for ever
		return g, err
	}
	err = c.update(ctx, client.UpdateWorkflowOptions{
		WorkflowID: protocol.AllowancesID(queue), UpdateName: update, Args: []any{argument},
		WaitForStage: client.WorkflowUpdateStageCompleted,
	}, &g)
	if _, missing := errors.AsType[*serviceerror.NotFound](err); missing {
		return g, usage.Errorf("there is no standing approval on queue %s", queue)
	}
	if refused, is := errors.AsType[*temporal.ApplicationError](err); is {
		return g, usage.Errorf("%s: nothing was changed", refused.Message())
	}
	return g, err
}
