// Package allowances keeps standing approvals: a workflow for all tasks of a shared queue, so that a use is
// counted once whichever worker asks, and a revocation counts at once.
package allowances

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// listedFor is how long an allowance is listed once its time is over. One that was revoked, or used up,
// stays for all of its time: given again, it would count anew.
const listedFor = 24 * time.Hour

type keeper struct{ protocol.Allowances }

// Allowances keeps standing approvals until none is left to be listed.
func Allowances(ctx workflow.Context, start protocol.Allowances) error {
	k := &keeper{start}
	if err := workflow.SetQueryHandler(ctx, protocol.QueryAllowances,
		func() ([]activities.GivenAllowance, error) { return k.Given, nil }); err != nil {
		return err
	}
	for _, u := range []struct { // in this order: what has come already is taken as its handler is set
		name             string
		handle, validate any
	}{
		{protocol.UpdateDisallow, k.disallow, func(_ workflow.Context, d protocol.Disallowing) error {
			_, err := k.find(d.ID)
			return protocol.RefuseDecision(err)
		}},
		{protocol.UpdateAllow, k.allow, k.checkNew},
		{protocol.UpdateUse, k.use, func(ctx workflow.Context, u protocol.AllowanceUse) error {
			_, err := k.count(ctx, u, false)
			return err
		}},
	} {
		if err := workflow.SetUpdateHandlerWithOptions(ctx, u.name, u.handle,
			workflow.UpdateHandlerOptions{Validator: u.validate}); err != nil {
			return err
		}
	}
	for {
		known := len(k.Given)
		leaves := func() bool { return workflow.GetInfo(ctx).GetContinueAsNewSuggested() }
		_, err := workflow.AwaitWithTimeout(ctx, k.nextDrop(ctx), func() bool { return leaves() || len(k.Given) != known })
		if err == nil {
			k.drop(workflow.Now(ctx))
			if leaves() || len(k.Given) == 0 {
				err = workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) })
			}
		}
		switch {
		case err != nil:
			return err
		case len(k.Given) == 0:
			return nil
		case leaves():
			return workflow.NewContinueAsNewError(ctx, protocol.AllowancesType, k.Allowances)
		}
	}
}

// firstWait is how long the workflow waits for its first allowance.
const firstWait = time.Hour

// nextDrop is when the first allowance is no longer listed.
func (k *keeper) nextDrop(ctx workflow.Context) time.Duration {
	if len(k.Given) == 0 {
		return firstWait
	}
	first := slices.MinFunc(k.Given, func(a, b activities.GivenAllowance) int { return a.Until.Compare(b.Until) })
	return max(first.Until.Add(listedFor).Sub(workflow.Now(ctx)), time.Second)
}

// drop forgets what is no longer listed.
func (k *keeper) drop(now time.Time) {
	k.Given = slices.DeleteFunc(k.Given, func(g activities.GivenAllowance) bool {
		return !now.Before(g.Until.Add(listedFor))
	})
}

func (k *keeper) find(id string) (*activities.GivenAllowance, error) {
	for i := range k.Given {
		if k.Given[i].ID == id {
			return &k.Given[i], nil
		}
	}
	return nil, fmt.Errorf("there is no standing approval %q; `starter allowances` lists them", payload.Clip(id, 40))
}

// checkNew refuses what cannot be kept.
func (k *keeper) checkNew(ctx workflow.Context, a protocol.SignedAllowance) error {
	return protocol.RefuseDecision(k.refusal(workflow.Now(ctx), a))
}

func (k *keeper) refusal(now time.Time, a protocol.SignedAllowance) error {
	_, unknown := k.find(a.ID())
	err := a.Check()
	switch {
	case err != nil:
		return err
	case !now.Before(a.Until):
		return fmt.Errorf("until %s: it is over already", a.Until.Format(time.RFC3339))
	case a.At.After(now.Add(protocol.MaxAllowanceSkew)):
		return fmt.Errorf("at %s: it is not given yet; look at the clock of who gives it", a.At.Format(time.RFC3339))
	case len(a.Signature) > activities.MaxSignature:
		return fmt.Errorf("its signature has %s, more than %d", activities.CountOf(len(a.Signature), "byte"),
			activities.MaxSignature)
	case unknown != nil && len(k.Given) >= protocol.MaxAllowances:
		return fmt.Errorf("%s are kept, and no more: wait until the time of one is over",
			activities.CountOf(protocol.MaxAllowances, "standing approval"))
	}
	return nil
}

// allow keeps an allowance once a worker has verified who gives it.
func (k *keeper) allow(ctx workflow.Context, a protocol.SignedAllowance) (activities.GivenAllowance, error) {
	proof, err := verify(ctx, a)
	if err == nil {
		k.drop(workflow.Now(ctx))
		err = k.refusal(workflow.Now(ctx), a) // others may have come meanwhile
	}
	if err != nil {
		return activities.GivenAllowance{}, protocol.RefuseDecision(err)
	}
	if known, err := k.find(a.ID()); err == nil {
		return *known, nil
	}
	given := activities.GivenAllowance{Allowance: a.Allowance, ID: a.ID(), Signature: a.Signature, Key: proof.Key}
	k.Given = append(k.Given, given)
	return given, nil
}

// verify returns what proves who gives an allowance. A worker that acts on it verifies it once more.
func verify(ctx workflow.Context, a protocol.SignedAllowance) (protocol.Proof, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		ScheduleToCloseTimeout: time.Minute, StartToCloseTimeout: 10 * time.Second, Summary: "verify who gives " + a.ID(),
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2},
	})
	var proof protocol.Proof
	err := workflow.ExecuteActivity(ctx, protocol.VerifyAllowanceActivity, a).Get(ctx, &proof)
	switch {
	case err != nil:
		return proof, fmt.Errorf("no worker has verified the standing approval, so nothing is allowed: %s",
			compensations.Reason(err))
	case proof.Refusal != "":
		return proof, errors.New(proof.Refusal)
	}
	return proof, nil
}

// disallow revokes an allowance. The first to do so is named.
func (k *keeper) disallow(ctx workflow.Context, d protocol.Disallowing) (activities.GivenAllowance, error) {
	g, err := k.find(d.ID)
	if err != nil {
		return activities.GivenAllowance{}, protocol.RefuseDecision(err)
	}
	if g.Revoked == nil {
		g.Revoked = &activities.Revocation{Who: payload.Clip(protocol.OrSomebody(d.Who), payload.MaxName),
			At: workflow.Now(ctx).UTC(), Why: payload.Clip(d.Why, payload.MaxName)}
	}
	return *g, nil
}

func (k *keeper) use(ctx workflow.Context, u protocol.AllowanceUse) (used int, err error) {
	return k.count(ctx, u, true)
}

// count counts a use, or with keep unset only says whether it could be.
func (k *keeper) count(ctx workflow.Context, u protocol.AllowanceUse, keep bool) (used int, err error) {
	g, err := k.find(u.ID)
	if err != nil {
		return 0, protocol.RefuseDecision(err)
	}
	u.At = workflow.Now(ctx).UTC()
	u.Key, u.Task = payload.Clip(u.Key, payload.MaxName), payload.Clip(u.Task, payload.MaxName)
	u.Step = payload.Clip(u.Step, payload.MaxName)
	counted := *g
	counted.Used = slices.Clone(g.Used)
	if err := counted.Use(u.AllowanceUse); err != nil {
		return 0, protocol.RefuseDecision(err)
	}
	if keep {
		*g = counted
	}
	return len(counted.Used), nil
}
