package command

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/testrun"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// signingTab is a tab of a browser with an authenticator, on a page with a file of signers.
type signingTab struct {
	*tab

	allowed string // the file, of the page and of the worker
	id      webauthn.AuthenticatorID
}

func newSigningTab(t *testing.T, flags ...string) (signingTab, deciders) {
	d, s := newDesk(t), newSigners(t, "ann")
	d.stopWorker()
	d.startWorker(s.with)
	allowed := filepath.Join(s.keys, "allowed_signers")
	page := d.servePageWith(append([]string{"--signers", allowed}, flags...)...)
	b := signingTab{tab: page.browse(), allowed: allowed}
	page.url = strings.Replace(page.url, "127.0.0.1", "localhost", 1)
	_, err := chromedp.Call(b.at, webauthn.Enable, webauthn.EnableParams{})
	require.NoError(t, err)
	added, err := chromedp.Call(b.at, webauthn.AddVirtualAuthenticator, webauthn.AddVirtualAuthenticatorParams{
		Options: &webauthn.VirtualAuthenticatorOptions{Protocol: webauthn.AuthenticatorProtocolCtap2,
			Transport: webauthn.AuthenticatorTransportInternal, HasResidentKey: true, HasUserVerification: true,
			IsUserVerified: true, AutomaticPresenceSimulation: true}})
	require.NoError(t, err)
	b.id = added.AuthenticatorID
	return b, s
}

// enroll makes a passkey, and returns its line.
func (b signingTab) enroll(name string) string {
	b.Helper()
	b.do(chromedp.Navigate(b.url+"/passkey"), chromedp.SetValue("#as", name), chromedp.Click("main button"))
	b.says("The passkey is made")
	line, err := chromedp.Run(b.at, chromedp.Evaluate[string](`document.querySelector("main pre").innerText`))
	require.NoError(b, err)
	return strings.TrimSpace(line)
}

func (b signingTab) allow(line string) {
	b.Helper()
	old, err := os.ReadFile(b.allowed)
	require.NoError(b, err)
	require.NoError(b, os.WriteFile(b.allowed, append(old, line+"\n"...), 0o600))
}

func (b signingTab) gate(id string) chromedp.Action[chromedp.Void] {
	return chromedp.Navigate(b.url + "/tasks/" + id + "/steps/two")
}

// sentDecision is the decision that a task has been told by an update.
func (d *desk) sentDecision(id string) (decision protocol.Decision) {
	d.Helper()
	history := d.client.GetWorkflowHistory(d.Context(), id, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		event, err := history.Next()
		require.NoError(d, err)
		if sent := event.GetWorkflowExecutionUpdateAcceptedEventAttributes(); sent != nil {
			require.NoError(d, json.Unmarshal(sent.GetAcceptedRequest().GetInput().GetArgs().GetPayloads()[0].GetData(), &decision))
		}
	}
	return decision
}

func TestAPersonDecidesByPasskey(t *testing.T) {
	b, s := newSigningTab(t)
	d := b.desk
	id := t.Name()
	d.ok("run", d.file(gated), "--id", id)
	g := d.until(id, atGate).Gates[0]

	b.do(b.gate(id))
	require.Contains(t, b.reads(), "No passkey of yours counts here: make one")
	require.Contains(t, b.reads(), "starter approve "+id+" two")
	address := strings.Replace(b.url, "localhost", "127.0.0.1", 1)
	b.do(chromedp.Navigate(address+"/passkey"), chromedp.Click("main button"), chromedp.WaitVisible("#unsigned a"))
	require.Contains(t, b.reads(), "this address is none. Go on at "+b.url+"/passkey")
	b.do(chromedp.Click("#unsigned a"))
	require.Eventually(t, func() bool {
		host, _ := chromedp.Run(b.at, chromedp.Evaluate[string]("location.hostname"))
		return host == "localhost"
	}, waitFor, tick)
	b.checkAccess()
	line := b.enroll("ann")
	require.Regexp(t, `^ann sk-ecdsa-sha2-nistp256@openssh\.com AAAA\S+$`, line)
	b.checkAccess()
	b.allow(line)

	b.do(b.gate(id), chromedp.SendKeys("#why", "looks right"))
	require.Contains(t, b.reads(), "You sign as ann, with your passkey")
	require.Contains(t, b.reads(), "Your passkey signs it for exactly this: "+string(g.Digest))
	b.checkAccess()
	b.do(chromedp.Evaluate[chromedp.Void](`sessionStorage.asked = 0;
		fetch = ((real) => (...of) => { sessionStorage.asked++; return real(...of); })(fetch);
		for (let twice = 0; twice < 2; twice++) { document.querySelector('button[value="approve"]').click(); }`))
	b.told("approved: step two goes on")
	asked, err := chromedp.Run(b.at, chromedp.Evaluate[string]("sessionStorage.asked"))
	require.NoError(t, err)
	require.Equal(t, "1", asked)
	d.until(id, closed)
	require.Equal(t, [2]string{"x", "y"}, d.values())
	require.Regexp(t, `approved by ann \(key SHA256:\S+\): looks right`, d.notes(id))

	sent := d.sentDecision(id)
	text := g.Statement(id, activities.Approve, sent).Text()
	out, err := sshKeygenVerifies(t, line, "ann", text, sent.Signature)
	require.NoError(t, err, out)
	require.Contains(t, out, `Good "unwind-approval@v1" signature for ann with ECDSA-SK key SHA256:`)
	out, err = sshKeygenVerifies(t, line, "ann", strings.Replace(text, "looks right", "looks rigHt", 1), sent.Signature)
	require.Error(t, err, out)

	// What was signed there fits no other gate.
	other := id + "-other"
	d.world.set("b", "")
	d.ok("run", d.file(gated), "--id", other)
	sent.Digest = d.until(other, atGate).Gates[0].Digest
	update, err := d.client.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{WorkflowID: other,
		UpdateName: protocol.UpdateApprove, Args: []any{sent}, WaitForStage: client.WorkflowUpdateStageCompleted})
	if err == nil {
		err = update.Get(t.Context(), nil)
	}
	require.ErrorContains(t, err, "is not over this decision: the browser was asked to sign something else")
	require.Empty(t, d.world.get("b"))

	b.do(b.gate(other), chromedp.Click("#edit summary"), chromedp.SetValue("#with", "value: z\nkey: b"),
		chromedp.Click(`button[value="edit"]`))
	b.told("edited: step two is planned anew")
	require.Regexp(t, `edited by ann \(key SHA256:\S+\): value from "y" to "z"`, d.until(other, isEdited).Gates[0].Edited)
	b.do(b.gate(other), chromedp.Click(`button[value="reject"]`)) // anew: the page goes on while one looks
	b.told("Nothing was signed or sent: say why you reject it")
	b.do(chromedp.SendKeys("#why", "not today"), chromedp.Click(`button[value="reject"]`))
	b.told("rejected: the task unwinds")
	d.until(other, closed)
	require.Regexp(t, `step two was rejected by ann \(key SHA256:\S+\): not today`, d.state(other).Cause.Text)

	parks := id + "-parks"
	d.world.set("a", "")
	d.drifted(s, parks)
	b.do(b.gate(parks), chromedp.SendKeys("#why", "seen"))
	b.checkAccess()
	b.do(chromedp.Click(`button[value="force"]`))
	b.told("resolved: force of step two")
	d.until(parks, closed)
	require.Equal(t, [2]string{}, d.values())
	require.Regexp(t, `force by ann \(key SHA256:\S+\): seen`, d.notes(parks))

	fails := id + "-fails"
	d.ok("run", d.file(`name: fails
steps:
  - {id: two, uses: fake.set, with: {key: b, value: y, fail: true}, on_failure: ask}
`), "--id", fails)
	d.until(fails, parked)
	b.do(b.gate(fails), chromedp.SetValue("#with", "{key: b, value: z}"), chromedp.SendKeys("#why", "it is up"),
		chromedp.Click(`button[value="retry"]`))
	b.told("resolved: retry of step two")
	d.until(fails, closed)
	require.Equal(t, "z", d.world.get("b"))
	require.Regexp(t, `retry by ann \(key SHA256:\S+\) \(changed: fail, value\): it is up`, d.notes(fails))
}

// sshKeygenVerifies asks OpenSSH whether a signature is that of a person over a text.
func sshKeygenVerifies(t *testing.T, line, who, text, signature string) (string, error) {
	testrun.NeedProgram(t, "ssh-keygen", "install openssh-client")
	folder := t.TempDir()
	for name, content := range map[string]string{"allowed": line + "\n", "sig": signature} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600))
	}
	c := exec.Command("ssh-keygen", "-Y", "verify", "-f", "allowed", "-I", who, "-n", activities.SignatureNamespace, "-s", "sig")
	c.Dir, c.Stdin = folder, strings.NewReader(text)
	out, err := c.CombinedOutput()
	return string(out), err
}

func TestAPasskeyThatDoesNotCountDecidesNothing(t *testing.T) {
	b, s := newSigningTab(t)
	d := b.desk
	revoked := filepath.Join(s.keys, "revoked")
	require.NoError(t, os.WriteFile(revoked, nil, 0o600))
	own := filepath.Join(s.keys, "own") // that of the worker
	before, err := os.ReadFile(b.allowed)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(own, before, 0o600))
	d.stopWorker()
	d.startWorker(func(c *host.Config) { c.Approvals = &host.ApprovalsConfig{Signers: own, Revoked: revoked} })
	id := t.Name()
	d.ok("run", d.file(gated), "--id", id)
	digest := string(d.until(id, atGate).Gates[0].Digest)
	approve := func(refusal string) {
		t.Helper()
		b.do(b.gate(id), chromedp.Click(`button[value="approve"]`))
		b.told(refusal)
		require.Empty(t, d.world.get("b"))
		require.Equal(t, digest, string(d.until(id, atGate).Gates[0].Digest))
	}
	line := b.enroll("ann")
	b.allow(line)
	approve("is not one of the worker's signers")
	require.NoError(t, os.WriteFile(own, append(before, line...), 0o600))
	require.NoError(t, os.WriteFile(revoked, []byte(strings.TrimPrefix(line, "ann ")), 0o600))
	approve("is revoked")
	require.NoError(t, os.WriteFile(revoked, nil, 0o600))

	set := func(bits webauthn.SetResponseOverrideBitsParams) {
		t.Helper()
		bits.AuthenticatorID = b.id
		_, err := chromedp.Call(b.at, webauthn.SetResponseOverrideBits, bits)
		require.NoError(t, err)
	}
	is := true
	set(webauthn.SetResponseOverrideBitsParams{IsBadUV: &is})
	approve("the authenticator did not verify the person")
	set(webauthn.SetResponseOverrideBitsParams{IsBadUP: &is})
	approve("nobody touched the authenticator")
	set(webauthn.SetResponseOverrideBitsParams{IsBogusSignature: &is})
	approve("no passkey in this page's file of signers has signed this")
	set(webauthn.SetResponseOverrideBitsParams{})
	_, err = chromedp.Call(b.at, webauthn.SetUserVerified, webauthn.SetUserVerifiedParams{AuthenticatorID: b.id})
	require.NoError(t, err)
	approve("Nothing was signed or sent: ")
	_, err = chromedp.Call(b.at, webauthn.SetUserVerified,
		webauthn.SetUserVerifiedParams{AuthenticatorID: b.id, IsUserVerified: true})
	require.NoError(t, err)

	b.do(b.gate(id), chromedp.Evaluate[chromedp.Void](`void (document.querySelector("form[data-passkey]").action = "/none")`),
		chromedp.Click(`button[value="approve"]`))
	b.told("Nothing was signed or sent: the server answered 404; load the page again")

	// A form that was signed for one decision is sent with another, and without what was signed.
	b.do(b.gate(id), chromedp.Evaluate[chromedp.Void](
		`void (send = (action, data) => { document.body.dataset.kept = new URLSearchParams(data); })`),
		chromedp.Click(`button[value="approve"]`), chromedp.WaitReady("body[data-kept]"))
	kept, err := chromedp.Run(b.at, chromedp.Evaluate[string]("document.body.dataset.kept"))
	require.NoError(t, err)
	form, err := url.ParseQuery(kept)
	require.NoError(t, err)
	at := "/tasks/" + id + "/steps/two"
	for what, change := range map[string]func(url.Values){
		"the browser was asked to sign something else": func(f url.Values) { f.Set("why", "another reason") },
		"you cannot sign as &#34;bob&#34; here":        func(f url.Values) { f.Set("as", "bob") },
		"something else waits there now":               func(f url.Values) { f.Set("digest", "sha256:another") },
		"load the page again":                          func(f url.Values) { f.Set("assertion", "{") },
		"at: parsing time":                             func(f url.Values) { f.Set("at", "now") },
		"only a signed decision counts here":           func(f url.Values) { f.Del("assertion") },
	} {
		changed, err := url.ParseQuery(kept)
		require.NoError(t, err)
		change(changed)
		require.Contains(t, b.post(at, changed, http.StatusConflict), what)
	}
	require.Empty(t, d.world.get("b"))
	b.send(http.MethodPost, at+"/challenge", form, http.StatusForbidden, "Sec-Fetch-Site", "cross-site")
	require.Contains(t, b.post(at+"/challenge", url.Values{"with": {strings.Repeat("x", 2<<20)}}, http.StatusConflict),
		"the form does not say what was shown")
	require.Contains(t, b.post(at, form, http.StatusOK), "approved: step two goes on")
	d.until(id, closed)
	require.Equal(t, "y", d.world.get("b"))

	require.Contains(t, b.post("/passkey", url.Values{"as": {"ann"}}, http.StatusUnprocessableEntity), "this needs a script")
	require.NoError(t, os.WriteFile(b.allowed, []byte("ann nonsense"), 0o600))
	broken := id + "-broken"
	d.ok("run", d.file(gated), "--id", broken)
	d.until(broken, atGate)
	require.Contains(t, b.get("/tasks/"+broken+"/steps/two", http.StatusOK), "Nobody can sign here: ")
}

func TestWhoSignsInSignsAsThemselves(t *testing.T) {
	d, s := newSigned(t)
	const an, bo, vi = "token-of-an-0123456789", "token-of-bo-0123456789", "token-of-vi-0123456789"
	tokens := filepath.Join(d.folder, "tokens")
	lines := fmt.Sprintf("ann %s approver\nbob %s approver\nvi %s viewer\n", an, bo, vi)
	require.NoError(t, os.WriteFile(tokens, []byte(lines), 0o600))
	file := filepath.Join(s.keys, "of-the-page")
	require.NoError(t, os.WriteFile(file, nil, 0o600)) // nobody is in it yet
	page := d.servePageWith("--tokens", tokens, "--signers", file)
	id := t.Name()
	d.ok("run", d.file(gated), "--id", id)
	digest := string(d.until(id, atGate).Gates[0].Digest)
	page.post("/signin", url.Values{"token": {an}}, http.StatusOK)
	made := html.UnescapeString(page.post("/passkey",
		url.Values{"as": {"bob"}, "host": {"unwind.example.com"}, "key": {newEncodedKey(t)}}, http.StatusOK))
	line := regexp.MustCompile(`(?m)\bann sk-ecdsa-sha2-nistp256@openssh\.com [A-Za-z0-9+/=]+`).FindString(made)
	require.NotEmpty(t, line, made)
	require.NoError(t, os.WriteFile(file, []byte(line), 0o600))
	at := "/tasks/" + id + "/steps/two"
	require.Contains(t, page.get(at, http.StatusOK), "You sign as ann, with your passkey")
	asked := url.Values{"as": {"ann"}, "do": {"approve"}, "digest": {digest}}
	require.Contains(t, page.post(at+"/challenge", asked, http.StatusOK), `"challenge":"U1NIU0lH`)
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(line, " ", ` valid-before="20201231Z" `, 1)), 0o600))
	expired := "the passkey of ann does not count: key SHA256:"
	require.Contains(t, page.get(at, http.StatusOK), expired)
	require.Contains(t, page.post(at+"/challenge", asked, http.StatusConflict), expired)
	page.post("/signin", url.Values{"token": {bo}}, http.StatusOK)
	require.Contains(t, page.get(at, http.StatusOK), "No passkey of yours counts here")
	require.Contains(t, page.post(at+"/challenge", asked, http.StatusConflict), `you cannot sign as \"ann\" here`)
	page.post("/signin", url.Values{"token": {vi}}, http.StatusOK)
	page.get("/passkey", http.StatusForbidden)
	page.post(at+"/challenge", asked, http.StatusForbidden)
	require.NotContains(t, page.get(at, http.StatusOK), "make one")
	require.Empty(t, d.world.get("b"))
}

// newEncodedKey is a public key as a browser tells it.
func newEncodedKey(t *testing.T) string {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	encoded, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	require.NoError(t, err)
	return base64.RawURLEncoding.EncodeToString(encoded)
}
