package examples_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/examples"
	"github.com/seed-62bf7108/unwind/examples/found"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// begin starts an example on a new stage.
func begin(t *testing.T, name string) (p *player, before found.Observed) {
	p = newPlayer(t, nil)
	p.work(p.stage.Config())
	before = p.look()
	e, err := examples.Named(name)
	require.NoError(t, err)
	_, err = p.start(p.id(), p.example(e))
	require.NoError(t, err)
	return p, before
}

func TestPublishReleaseFailsAtTheEndAndEveryWorldIsFoundAsBefore(t *testing.T) {
	p, before := begin(t, "publish-release")
	g := p.gate(p.id(), "infrastructure", protocol.SignalApprove)
	require.Contains(t, g.Change.Diff, `terraform_data.marker["us"] will be created`)
	p.gate(p.id(), "go-live", protocol.SignalApprove)
	r, err := p.end(p.id())

	require.ErrorContains(t, err, `/release is "1.4.2", want "2.0.0"`)
	require.Equal(t, compensations.Unwound, r.Status)
	require.Equal(t, &compensations.Cause{Kind: compensations.Failure, Step: "go-live", Text: r.Cause.Text}, r.Cause)
	require.Equal(t, []string{
		"configure restored", "install restored", "plans restored", "customer compensated", "product compensated",
		"price compensated",
		"subscription compensated", "infrastructure compensated", "go-live restored",
	}, outcomes(r))
	p.asBefore(before, nil, r)
	require.Equal(t, []string{
		"file.write", "container.exec", "sqlite.exec", "stripe.customer.create", "stripe.product.create",
		"stripe.price.create",
		"stripe.subscription.create", "terraform.apply.plan", "terraform.apply", "file.write.plan", "file.write",
		"file.write.undo", "terraform.apply.undo", "stripe.subscription.create.undo", "stripe.price.create.undo",
		"stripe.product.create.undo", "stripe.customer.create.undo", "sqlite.exec.undo", "container.exec.undo",
		"file.write.undo", "container.exec.commit",
	}, p.calls(p.id()))
}

func TestPublishOkCommitsAndWhatItDidStays(t *testing.T) {
	p, before := begin(t, "publish-ok")
	p.gate(p.id(), "infrastructure", protocol.SignalApprove)
	p.gate(p.id(), "go-live", protocol.SignalApprove)
	r, err := p.end(p.id())

	require.NoError(t, err)
	require.Equal(t, compensations.Committed, r.Status)
	require.Nil(t, r.Cause)
	p.asBefore(before, p.stage.Committed("publish-ok"), r)
	calls := p.calls(p.id())
	// The customer needs nothing, and starts together with the first step.
	require.ElementsMatch(t, []string{"file.write", "stripe.customer.create"}, calls[:2])
	require.ElementsMatch(t, []string{"container.exec", "stripe.coupon.create"}, calls[2:4])
	require.Equal(t,
		[]string{"terraform.apply.plan", "terraform.apply", "file.write.plan", "file.write", "container.exec.commit"},
		calls[4:])
}

func TestPublishRejectedIsTakenBackAndItsGatedStepNeverRuns(t *testing.T) {
	p, before := begin(t, "publish-rejected")
	p.gate(p.id(), "go-live", protocol.SignalReject)
	r, err := p.end(p.id())

	require.ErrorContains(t, err, "rejected by ann: it is her call")
	require.Equal(t, compensations.Rejected, r.Cause.Kind)
	require.Equal(t, compensations.Unwound, r.Status)
	require.Equal(t, []string{"configure restored", "install restored", "customer compensated", "go-live nothing-to-undo"},
		outcomes(r))
	p.asBefore(before, nil, r)
	require.Equal(t, []string{
		"file.write", "container.exec", "stripe.customer.create", "file.delete.plan",
		"file.delete.undo", "stripe.customer.create.undo", "container.exec.undo", "file.write.undo", "container.exec.commit",
	}, p.calls(p.id()))
}

func TestPublishCanceledStopsTwoRunningStepsAndTakesThemBack(t *testing.T) {
	p, before := begin(t, "publish-canceled")
	// Both have acted, and neither has ended. They may write while one snapshot is being taken.
	require.Eventually(t, func() bool {
		now, err := found.Look(t.Context(), p.stage.Place())
		return err == nil && now[found.ContainerWorld]["/srv/app/migration"] != nil &&
			now[found.FilesWorld]["current.json"] != nil
	}, patience, 100*time.Millisecond)
	require.NoError(t, p.client.CancelWorkflow(t.Context(), p.id(), ""))
	r, err := p.end(p.id())

	require.True(t, temporal.IsCanceledError(err), "%v", err)
	require.Equal(t, compensations.Canceled, r.Cause.Kind)
	require.Equal(t, compensations.Unwound, r.Status)
	require.Equal(t, []string{"configure restored", "customer compensated", "migrate restored", "smoke-test restored"},
		outcomes(r))
	p.asBefore(before, nil, r)
	require.Equal(t, []string{
		"file.write", "stripe.customer.create", "container.exec", "file.write",
		"file.write.undo", "container.exec.undo", "stripe.customer.create.undo", "file.write.undo", "container.exec.commit",
	}, p.calls(p.id()))
}
