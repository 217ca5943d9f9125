package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// confirmContext is the host's word that it has a context: those that are lost it does not have.
func (w *world) confirmContext(ctx context.Context, r protocol.ContextRequest) error {
	n := w.called("confirm", string(r.Digest[len(r.Digest)-1:]))
	if w.confirm != nil {
		return w.confirm(ctx, n)
	}
	if strings.HasSuffix(string(r.Digest), "f") {
		return refused(errors.New("it is lost"))
	}
	return nil
}

// given describes a context whose digest ends in a digit.
func given(digit string) protocol.Context {
	return protocol.Context{
		Name: "thoughts", Digest: activities.Digest("sha256:" + strings.Repeat("0", 63) + digit), Size: 7, Host: "host",
		Queue: queue,
	}
}

func (r *run) markWith(name string, c protocol.Context) *updated {
	return r.update(protocol.UpdateSavepoint, "mark "+name, protocol.SavepointRequest{Name: name, Context: &c})
}

func digests(all []protocol.Context) (digits string) {
	for _, c := range all {
		digits += string(c.Digest[len(c.Digest)-1:])
	}
	return digits
}

func TestARollbackAnswersWithTheContextOfItsSavepoint(t *testing.T) {
	w := &world{}
	l := &chained{T: t, world: w, document: sessionDocument}
	var marked, kept, back, again *updated
	l.in = func(n int, r *run) {
		if n == 1 {
			r.script(
				func() { r.update(protocol.UpdateStep, "1", steps("a")) },
				func() { marked = r.markWith("half", given("1")) },
				func() { r.update(protocol.UpdateStep, "2", steps("b", "c")) },
				func() { kept = r.update(protocol.UpdateContext, "3", given("2")) },
				func() { r.update(protocol.UpdateStep, "4", steps("d")) },
				func() {
					require.Equal(t, "12", digests(r.state().Session.Contexts))
					require.Equal(t, []string{"d"}, r.state().Session.Since)
				},
			)
			r.continueAsNew(7 * time.Minute)
			return
		}
		r.script(
			func() { back = r.rollBackTo("5", "half") },
			func() {
				require.Equal(t, "1", digests(r.state().Session.Contexts), "what came later knows of things that are undone")
				require.Empty(t, r.state().Session.Since)
				c := given("1")
				c.Host, c.Queue = "elsewhere", "elsewhere"
				again = r.markWith("half", c)
			},
			func() { r.update(protocol.UpdateFinish, "6") },
		)
	}
	_, err := l.report()
	require.NoError(t, err)
	require.NoError(t, marked.refused)
	require.Equal(t, given("1").Digest, marked.answer.Context.Digest)
	require.Equal(t, given("2").Digest, kept.answer.Context.Digest)
	require.Equal(t, 1, back.answer.Context.Seq)
	require.Equal(t, given("1").Digest, back.answer.Context.Digest)
	require.Equal(t, "half", back.answer.Context.Savepoint)
	require.NoError(t, again.refused, "the same request, whichever host has taken the context this time")
	require.Equal(t, []string{"do a", "confirm 1", "do b", "do c", "confirm 2", "do d", "undo d", "undo c", "undo b"},
		w.calls)
}

// A savepoint whose context is not there is refused, and does not exist.
func TestAContextThatIsNotThereIsRefused(t *testing.T) {
	r := newRun(t, &world{})
	var lost, wrong, long *updated
	r.script(
		func() { lost = r.markWith("half", given("f")) },
		func() {
			wrong = r.update(protocol.UpdateContext, "1", protocol.Context{Digest: "sha256:x", Queue: queue})
		},
		func() {
			c := given("1")
			c.Name = strings.Repeat("x", 201)
			long = r.markWith("long", c)
		},
		func() { require.Empty(t, r.state().Session.Savepoints); require.Empty(t, r.state().Session.Contexts) },
		func() { r.update(protocol.UpdateFinish, "2") },
	)
	r.session()
	r.failsAs(lost.err, protocol.BadRequest)
	require.ErrorContains(t, lost.err, "does not have it")
	r.failsAs(wrong.refused, protocol.BadRequest)
	require.ErrorContains(t, wrong.refused, "digest, size and queue must be those that keeping it has returned")
	require.ErrorContains(t, long.refused, "at most 200 bytes")
}

func TestOnlyTheLastContextsAreRemembered(t *testing.T) {
	r := newRun(t, &world{})
	r.runAfter(time.Minute, func() { r.markWith("start", given("0")) })
	for i := range 25 {
		r.runAfter(time.Duration(i+2)*time.Minute,
			func() { r.update(protocol.UpdateContext, fmt.Sprint(i), given(fmt.Sprintf("%x", i%10+1))) })
	}
	r.runAfter(30*time.Minute, func() {
		require.Equal(t, "0"+"6789a123456789a12345", digests(r.state().Session.Contexts))
		r.update(protocol.UpdateFinish, "end")
	})
	r.session()
}
