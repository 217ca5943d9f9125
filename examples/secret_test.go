package examples_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/examples/found"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

func stepOf(input *commonpb.Payloads) string {
	var f activities.Forward // a Backward has its entry in the same field
	if converter.GetDefaultDataConverter().FromPayloads(input, &f) != nil {
		return ""
	}
	return f.Entry.Step
}

// The canary contains characters that each encoding writes differently, and the key has several
// lines. Their cores are the same in every encoding.
const (
	heart  = "Kq7vZt3mXw9b"
	canary = `can"ary&` + heart + `<\>/é${x}`
	key    = "-----BEGIN KEY-----\nq0" + heart + "\n  rJ" + heart + "\n-----END KEY-----"
)

// loud uses the secret in every world: as content, echoed by a command, as a variable that
// Terraform shows and as one that it does not, in names and metadata, and at last in an error.
const loud = `
name: canary
vars: {site: s, infra: i, effects: e, container: c}
steps:
  - id: content
    uses: file.write
    with: {path: "${{ vars.site }}/app.yml", content: "token: ${{ secrets.CANARY }}\n${{ secrets.KEY }}\n"}
    gate: ask
  - id: echo
    uses: container.exec
    with:
      container: ${{ vars.container }}
      command: cat /srv/app/token 2>/dev/null || echo "$TOKEN" >/srv/app/token; cat /srv/app/token; cat /srv/app/token >&2; echo '${{ secrets.CANARY }}'
      env: {TOKEN: "${{ secrets.CANARY }}"}
    gate: ask
  - id: customer
    uses: stripe.customer.create
    with: {name: "${{ secrets.CANARY }}", description: "for ${{ secrets.CANARY }}", metadata: {note: "${{ secrets.CANARY }}"}}
    gate: ask
  - id: infra
    uses: terraform.apply
    with:
      dir: ${{ vars.infra }}
      vars: {release: "${{ secrets.CANARY }} ${{ secrets.KEY }}", note: "${{ secrets.CANARY }}", regions: [eu], effects: "${{ vars.effects }}"}
      previous: {dir: "${{ vars.infra }}", vars: {release: 1.4.2, regions: [eu], effects: "${{ vars.effects }}"}}
  - id: error
    uses: container.exec
    with:
      container: ${{ vars.container }}
      command: echo '${{ secrets.CANARY }}' >&2; rm /srv/app/token; exit 3
`

func TestASecretUsedEverywhereIsShownNowhere(t *testing.T) {
	p := newPlayer(t, map[string]string{"CANARY": canary, "KEY": key})
	config := p.stage.Config()
	config.Listen = "127.0.0.1:0"
	w := p.work(config)
	before := p.look()
	values := map[string]any{}
	for name, v := range p.stage.Vars() {
		values[name] = v
	}
	delete(values, "data") // it has no step for the database
	doc := p.document([]byte(loud), values)

	shown := map[string]string{}
	plan := p.starter("plan", p.file(doc))
	require.Zero(t, plan.status, plan.err)
	shown["starter plan"] = plan.out + plan.err

	_, err := p.start(p.id(), doc)
	require.NoError(t, err)
	for _, step := range []string{"content", "echo", "customer", "infra"} {
		at := p.until(p.id(), func(s protocol.State) bool { return len(s.Gates) == 1 && s.Gates[0].Step == step })
		shown["the state at the gate of "+step] = text(t, at)
		show := p.starter("show", p.id())
		shown["starter show at the gate of "+step] = show.out + show.err
		if step == "infra" {
			p.isUsed()
		}
		p.gate(p.id(), step, protocol.SignalApprove)
	}
	r, err := p.end(p.id())
	require.ErrorContains(t, err, "exit status 3")
	shown["the error"] = err.Error()
	shown["the report"] = text(t, r)
	p.asBefore(before, nil, r)

	for _, e := range p.history(p.id()) {
		raw, err := proto.Marshal(e) // contains payloads unchanged
		require.NoError(t, err)
		shown["the history"] += string(raw) + protojson.Format(e)
	}
	for _, query := range []string{protocol.QueryState, "__temporal_workflow_metadata"} {
		v, err := p.client.QueryWorkflow(t.Context(), p.id(), "", query)
		require.NoError(t, err)
		var raw converter.RawValue
		require.NoError(t, v.Get(&raw))
		shown["query "+query] = string(raw.Payload().GetData())
	}
	for _, args := range [][]string{{"show", p.id()}, {"show", p.id(), "-o", "json"}, {"watch", p.id()}, {"list"}} {
		said := p.starter(args...)
		shown["starter "+args[0]] += said.out + said.err
	}
	shown["the worker's log"] = p.log.String()
	answer, err := http.Get("http://" + w.Address + "/metrics")
	require.NoError(t, err)
	defer answer.Body.Close()
	metrics, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	shown["the metrics"] = string(metrics)

	for where, said := range shown {
		require.NotEmpty(t, said, where)
		if at := strings.Index(said, heart); at >= 0 {
			require.Failf(t, "the secret is shown", "in %s: %q", where, said[max(0, at-200):min(len(said), at+200)])
		}
	}
	require.Contains(t, shown["the history"], activities.Mask, "what was hidden shows as hidden")
	require.Equal(t,
		[]string{"content restored", "echo restored", "customer compensated", "infra restored", "error restored"},
		outcomes(r))
}

// isUsed makes sure that the canary was written where it should be: otherwise there would be
// nothing to hide.
func (p *player) isUsed() {
	p.Helper()
	content, err := os.ReadFile(filepath.Join(p.stage.Vars()["site"], "app.yml"))
	require.NoError(p, err)
	require.Equal(p, "token: "+canary+"\n"+key+"\n", string(content))
	live := p.stage.Emulator.Live()
	require.Len(p, live, 1)
	require.Equal(p, canary, p.stage.Emulator.Object(strings.Fields(live[0])[1])["name"])
	sum := sha256.Sum256([]byte(canary + "\n"))
	require.Equal(p, hex.EncodeToString(sum[:]), p.look()[found.ContainerWorld]["/srv/app/token"]["sha256"])
}

func text(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	return string(raw)
}
