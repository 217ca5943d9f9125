package command

import (
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/starter/oidc"
	"github.com/seed-62bf7108/unwind/starter/oidc/oidctest"
)

// serveOIDC serves the page to those whom a provider knows: ann, who approves, and cy, who has no
// group.
func (d *desk) serveOIDC() *served {
	l, err := net.Listen("tcp", "127.0.0.1:0") // the provider has to know the address first
	require.NoError(d, err)
	address := l.Addr().String()
	require.NoError(d, l.Close())
	issuer := oidctest.Start(d, "http://"+address+oidc.CallbackPath, map[string]oidctest.User{
		"1": {Username: "ann", Password: "pass-of-ann", Email: "ann@example.com", EmailVerified: true},
		"2": {Username: "cy", Password: "pass-of-cy", Email: "cy@example.com", EmailVerified: true},
	}, map[string][]string{"1": {"sre"}})
	require.NoError(d, os.WriteFile(filepath.Join(d.folder, "secret"), []byte(oidctest.Secret), 0o600))
	file := filepath.Join(d.folder, "oidc.yaml")
	require.NoError(d, os.WriteFile(file, []byte("issuer: "+issuer+"\nclient: "+oidctest.Client+
		"\nsecret: secret\nurl: http://"+address+"\nroles: {approver: [sre]}\n"), 0o600))
	return d.servePageWith("--listen", address, "--oidc", file)
}

func TestAPersonSignsInAtAProvider(t *testing.T) {
	d := newDesk(t)
	s := d.serveOIDC()
	id, _ := d.waitsAtGate()
	b := s.browse()
	at := "/tasks/" + id + "/steps/two"
	signIn := func(name string) {
		b.do(chromedp.Navigate(s.url+at), chromedp.Click(`//a[contains(., "organization")]`),
			chromedp.SendKeys("#username", name), chromedp.SendKeys("#password", "pass-of-"+name),
			chromedp.Click(`button[type=submit]`), chromedp.WaitVisible("main"))
	}
	signIn("cy")
	require.Contains(t, b.reads(), "cy@example.com is in none of the groups that may look here")
	b.keep("signin")
	b.checkAccess()
	signIn("ann")
	b.do(chromedp.WaitVisible(`button[value=approve]`)) // the page that she wanted to see
	b.do(chromedp.Click(`button[value=approve]`))
	require.Contains(t, d.until(id, committed).Report.Steps[1].Notes[0], "approved by ann@example.com")

	// Somebody begins a sign-in, and has another person's browser end it.
	provider := *s.client
	provider.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	sent, err := provider.Get(s.url + "/signin/provider")
	require.NoError(t, err)
	require.NoError(t, sent.Body.Close())
	to, err := sent.Location()
	require.NoError(t, err)
	back := s.url + oidc.CallbackPath + "?code=mine&state=" + to.Query().Get("state")
	b.do(chromedp.Navigate(back))
	require.Contains(t, b.reads(), "This sign-in was not begun here")
	require.Contains(t, s.get(strings.TrimPrefix(back, s.url), http.StatusUnauthorized), // the browser that began it
		"does not accept the code")
	require.Contains(t, s.get("/signin?"+url.Values{"to": {"//evil.example.com"}}.Encode(), http.StatusOK),
		`href="/signin/provider?to=%2f"`)
	s.get("/api/tasks", http.StatusUnauthorized)
	s.post("/signin", url.Values{"token": {""}}, http.StatusUnauthorized)
}
