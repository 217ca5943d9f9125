package command

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

const asksTwice = `name: two
agent: bot
steps:
  - {id: one, uses: fake.set, with: {key: a, value: x}, gate: ask}
  - {id: two, uses: fake.set, with: {key: b, value: y}, gate: ask}
`

// allow gives bot a standing approval for two changes of a key.
func (d *desk) allow(key string, flags ...string) (g activities.GivenAllowance) {
	d.ok(append([]string{"allow", "bot", "--action", "fake.set", "--under", "fake:" + key, "--for", "1h", "--uses", "2",
		"--why", "the release", "--risk", "high"}, flags...)...)
	all := d.allowances()
	return all[len(all)-1]
}

func (d *desk) allowances() (given []activities.GivenAllowance) {
	require.NoError(d, json.Unmarshal([]byte(d.ok("allowances", "-o", "json")), &given))
	return given
}

func TestAStandingApprovalIsGivenListedAndRevoked(t *testing.T) {
	d := newDesk(t)
	require.Contains(t, d.ok("allowances"), "no standing approvals")
	require.Equal(t, statusUsage, d.do("disallow", "0123456789ab").status)
	g := d.allow("a")
	id := t.Name()
	d.ok("run", d.file(asksTwice), "--id", id)
	waits := d.until(id, atGate)
	require.Equal(t, "two", waits.Gates[0].Step, "of the other key nothing is allowed")
	out := d.ok("allowances")
	require.Contains(t, out, g.ID+"  agent bot\n  covers    fake.set under fake:a, risk up to high\n")
	require.Contains(t, out, "(a claim: not signed): the release\n")
	require.Contains(t, out, "  used      1 of 2\n")
	require.Contains(t, out, "step one of task "+id+"\n")
	d.ok("approve", id, "two", "--yes")
	d.until(id, closed)
	require.Equal(t, compensations.Committed, d.state(id).Report.Status)
	require.Contains(t, d.notes(id), "approved by standing approval "+g.ID+" of ")
	require.Contains(t, d.notes(id), "standing approval "+g.ID+": 1 of 2 used")

	require.Contains(t, d.ok("disallow", g.ID, "--why", "over"), "standing approval "+g.ID+" of agent bot is revoked; used: 1 of 2")
	require.Contains(t, d.ok("allowances"), "  revoked   by ")
	d.ok("run", d.file(asksTwice), "--id", id+"-later")
	require.Equal(t, "one", d.until(id+"-later", atGate).Gates[0].Step)
	d.ok("reject", id+"-later", "one", "--why", "no")
}

func TestAStandingApprovalIsSignedWhereDecisionsAre(t *testing.T) {
	d, s := newSigned(t)
	r := d.do("allow", "bot", "--action", "fake.set", "--under", "fake:a", "--for", "1h", "--uses", "2", "--why", "x")
	require.Equal(t, statusUsage, r.status)
	require.Contains(t, r.err, "it is not signed, and a bare name is only a claim")
	require.Empty(t, d.allowances())
	require.Equal(t, "ann", d.allow("a", s.by("ann")...).Who)
	id := t.Name()
	d.ok("run", d.file(asksTwice), "--id", id)
	require.Equal(t, "two", d.until(id, atGate).Gates[0].Step)
	d.ok(append([]string{"reject", id, "two", "--why", "no"}, s.by("ann")...)...)
	d.until(id, closed)
}

func TestStandingApprovalsAreListedAndRevokedOverHTTP(t *testing.T) {
	d := newDesk(t)
	const vi, ap = "token-of-vi-0123456789", "token-of-ap-0123456789"
	s := d.servePage("vi "+vi+" viewer", "ap "+ap+" approver")
	described := readDocument(t, s.url)
	call := func(token, method, id string, want int, out any) {
		t.Helper()
		at, path := "/api/allowances", "/api/allowances"
		if id != "" {
			at, path = at+"/"+id, path+"/{id}"
		}
		request, err := http.NewRequestWithContext(t.Context(), method, s.url+at, nil)
		require.NoError(t, err)
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		defer response.Body.Close()
		raw, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.Equal(t, want, response.StatusCode, "%s", raw)
		described.check(t, method, path, response, raw)
		if out != nil {
			require.NoError(t, json.Unmarshal(raw, out))
		}
	}
	g := d.allow("a")
	call("token-of-nobody-0123456789", http.MethodGet, "", http.StatusUnauthorized, nil)
	call(vi, http.MethodDelete, g.ID, http.StatusForbidden, nil)
	call(ap, http.MethodDelete, "0123456789ab", http.StatusUnprocessableEntity, nil)
	var given []activities.GivenAllowance
	call(vi, http.MethodGet, "", http.StatusOK, &given)
	require.Equal(t, []activities.GivenAllowance{g}, given)
	call(ap, http.MethodDelete, g.ID, http.StatusOK, &g)
	require.Equal(t, "ap", g.Revoked.Who)
}

func TestAStandingApprovalWithoutABoundIsRefused(t *testing.T) {
	for why, args := range map[string][]string{
		"--for is missing":           {"--action", "fake.set", "--under", "fake:a", "--uses", "1", "--why", "x"},
		"action is missing":          {"--under", "fake:a", "--for", "1h", "--uses", "1", "--why", "x"},
		"uses 0: give 1 to 100":      {"--action", "fake.set", "--under", "fake:a", "--for", "1h", "--why", "x", "--uses", "0"},
		"give at most 7 days":        {"--action", "fake.set", "--under", "fake:a", "--for", "169h", "--why", "x", "--uses", "1"},
		`action "*": name an action`: {"--action", "*", "--under", "fake:a", "--for", "1h", "--why", "x", "--uses", "1"},
		`under "file:/"`:             {"--action", "fake.set", "--under", "/", "--for", "1h", "--why", "x", "--uses", "1"},
		`under "site"`:               {"--action", "fake.set", "--under", "site", "--for", "1h", "--why", "x", "--uses", "1"},
		`risk "some"`:                {"--action", "fake.set", "--under", "fake:a", "--for", "1h", "--why", "x", "--uses", "1", "--risk", "some"},
		"--why is empty":             {"--action", "fake.set", "--under", "fake:a", "--for", "1h", "--why", " ", "--uses", "1"},
	} {
		r := do(t.Context(), Options{}, append([]string{"allow", "bot"}, args...)...)
		require.Equal(t, statusUsage, r.status, why)
		require.Contains(t, r.err, why)
	}
}
