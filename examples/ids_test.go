package examples_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"

	"github.com/seed-62bf7108/unwind/examples"
	"github.com/seed-62bf7108/unwind/examples/found"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

func TestAnIdIsUsedOnceAndAFileActsOnceForEachId(t *testing.T) {
	p := newPlayer(t, nil)
	p.work(p.stage.Config())
	ok, err := examples.Named("publish-ok")
	require.NoError(t, err)
	ok, gone, err := ok.Without("container", "terraform")
	require.NoError(t, err)
	require.Equal(t, []string{"install", "infrastructure"}, gone)
	doc := p.example(ok)

	var taken *serviceerror.WorkflowExecutionAlreadyStarted
	for _, id := range []string{p.id() + "-1", p.id() + "-2"} {
		_, err := p.start(id, doc)
		require.NoError(t, err)
		_, err = p.start(id, doc)
		require.ErrorAs(t, err, &taken, "while it is open")
		p.gate(id, "go-live", protocol.SignalApprove)
		_, err = p.end(id)
		require.NoError(t, err)
		_, err = p.start(id, doc)
		require.ErrorAs(t, err, &taken, "once it is closed")
	}
	now := p.look()[found.StripeWorld]
	require.Equal(t, "2", now["live customer active"]["number"])
	require.Equal(t, "2", now["live coupon active"]["number"])

	again := p.starter("run", p.file(doc), "--id", p.id()+"-1")
	require.Equal(t, 2, again.status, again.err)
	require.Contains(t, again.err, "is taken: an id is used once")
	require.Equal(t, now, p.look()[found.StripeWorld])
}
