package command

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/starter/mcp"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// lettingAgent is the file of a session whose agent decides about steps that fail.
const lettingAgent = "name: policy\non_failure: ask\nsession: {failures: agent}\nsteps: []\n"

func failingSet(value string) map[string]any {
	return map[string]any{"key": "a", "value": value, "fail": true}
}

func TestAnAgentCorrectsAStepThatFailed(t *testing.T) {
	d := newDesk(t)
	a := d.newAgent(nil, "--session", d.file(lettingAgent))
	s := a.open()
	waits := a.does("fake_set", arguments{"session": s, "request": "r", "with": failingSet("x")})
	require.True(t, waits.Pending)
	park := waits.Steps[0].Park
	require.Equal(t, []string{"retry", "skip", "unwind"}, park.Ways)
	require.Equal(t,
		"step s1 has failed, and you may decide: call resolve with its digest, "+string(park.Digest)+
			", and do: retry or skip or unwind", waits.Next)
	require.Empty(t, d.world.get("a"), "it is undone first")
	next := a.does("fake_set", arguments{"session": s, "with": set("b", "z")})
	require.Equal(t, waits.Next, next.Next, "what follows says what it waits for, at once")
	require.Equal(t, waits.Next, a.does("status", arguments{"session": s}).Next)

	resolve := arguments{"session": s, "request": "again", "step": "s1", "digest": park.Digest, "do": "retry",
		"with": failingSet("y"), "why": "a typo"}
	again := a.does("resolve", resolve)
	require.True(t, again.Pending)
	require.Equal(t, 2, again.Steps[0].Park.Try)
	require.Equal(t, again, a.does("resolve", resolve), "the same request decides once")
	for text, wrong := range map[string]arguments{
		"is not that of the present park of step": {"digest": park.Digest},
		`"force" is not one of retry, skip`:       {"do": "force"},
		"only retry takes other parameters":       {"do": "skip", "with": set("a", "x")},
		"did you mean value?":                     {"with": map[string]any{"key": "a", "valu": "x"}},
		`"s9" waits for no decision`:              {"step": "s9"},
	} {
		in := arguments{"session": s, "step": "s1", "digest": again.Steps[0].Park.Digest, "do": "retry"}
		maps.Copy(in, wrong)
		p := a.isRefused("resolve", in)
		require.Equal(t, "NothingDecided", p.Type, p.Text)
		require.Contains(t, p.Text, text)
	}
	require.Equal(t, mcp.BadParameter, a.isRefused("resolve", arguments{"session": s, "step": "s1", "do": "retry"}).Type)

	right := arguments{"session": s, "step": "s1", "digest": again.Steps[0].Park.Digest, "do": "retry",
		"with": set("a", "y")}
	done := a.does("resolve", right)
	require.Equal(t, []any{"done", false}, []any{done.Steps[0].State, done.Pending})
	require.Equal(t, "NothingDecided", a.isRefused("resolve", right).Type)
	require.Equal(t, "done", a.does("status", arguments{"session": s, "request": "r"}).Steps[0].State)
	require.Equal(t, "done", a.does("status", arguments{"session": s, "request": next.Request}).Steps[0].State)
	require.Equal(t, []string{"y", "z"}, []string{d.world.get("a"), d.world.get("b")})

	skipped := a.does("fake_set", arguments{"session": s, "with": failingSet("w")})
	skip := arguments{"session": s, "step": skipped.Steps[0].ID, "digest": skipped.Steps[0].Park.Digest, "do": "skip"}
	require.Equal(t, "rolled-back", a.does("resolve", skip).Steps[0].State, "which is what it asked for")
	last := a.does("fake_set", arguments{"session": s, "with": failingSet("w")})
	end := a.does("resolve",
		arguments{"session": s, "step": last.Steps[0].ID, "digest": last.Steps[0].Park.Digest, "do": "unwind",
			"why": "no use"})
	require.Equal(t, "unwound", end.Report.Status)
	require.Equal(t, []string{"", ""}, []string{d.world.get("a"), d.world.get("b")})
	require.Equal(t, "SessionOver", a.isRefused("resolve", skip).Type)
}

func TestWhatAPersonDecidesIsNotTheAgents(t *testing.T) {
	d := newDesk(t)
	a := d.newAgent(nil, "--wait", "100ms")
	s := a.open()
	failed := a.does("fake_set", arguments{"session": s, "on_failure": "ask", "with": failingSet("x")})
	require.Empty(t, failed.Steps[0].Park.Digest, "it is not shown what it may not decide")
	digest := d.state(idIn(s)).Parks[0].Digest
	refused := a.isRefused("resolve", arguments{"session": s, "step": "s1", "digest": digest, "do": "skip"})
	require.Equal(t, "PersonDecides", refused.Type)
	require.Contains(t, refused.Text, "does not say failures: agent")
	behind := a.does("fake_set", arguments{"session": s, "with": set("b", "z")})
	require.True(t, behind.Pending)
	require.Contains(t, behind.Next, "it waits for a person")
	require.Equal(t, mcp.BadParameter, a.isRefused("open", arguments{"name": "x", "failures": "agent"}).Type,
		"it cannot let itself")

	b := d.newAgent(nil, "--wait", "100ms", "--session", d.file(lettingAgent))
	s = b.open()
	b.does("fake_set", gatedIn(s))
	digest = d.state(idIn(s)).Gates[0].Digest
	for _, do := range []string{"retry", "approve", "accept"} {
		require.Equal(t, "PersonDecides",
			b.isRefused("resolve", arguments{"session": s, "step": "s1", "digest": digest, "do": do}).Type)
	}
	d.ok("approve", idIn(s), "s1", "--yes")
	d.until(idIn(s), func(s protocol.State) bool { return s.Steps[0].State == protocol.Done })
	d.world.set("a", "of somebody else")
	b.does("rollback", arguments{"session": s, "request": "back", "step": "s1"})
	r := d.state(idIn(s)).Report
	for _, do := range []string{"accept", "force", "skip"} {
		p := b.isRefused("resolve", arguments{"session": s, "step": "s1", "digest": r.Steps[0].Digest, "do": do})
		require.Equal(t, "PersonDecides", p.Type, p.Text)
	}
	require.Equal(t, "of somebody else", d.world.get("a"))
	d.ok("resolve", idIn(s), "s1", "--do", "force", "--yes")
	require.False(t, b.does("status", arguments{"session": s, "request": "back"}).Pending)
}
