package oidc_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/starter/bearer"
	"github.com/seed-62bf7108/unwind/starter/oidc"
	"github.com/seed-62bf7108/unwind/starter/oidc/oidctest"
)

const whole = `issuer: https://id.example.com
client: unwind
url: https://unwind.example.com
roles: {approver: [sre]}
`

func TestABadConfigIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "oidc.yaml")
	for content, said := range map[string]string{
		"":                          "issuer: it is missing",
		"issuer: https://a\n":       "client: it is missing",
		whole + "boss: [ann]\n":     "field boss not found",
		whole + "name: ''\n":        "name: it is missing",
		whole + "secret: missing\n": "secret: open ",
		"issuer: http://id.example.com\nclient: a\nurl: https://b\nroles: {viewer: [c]}\n": `issuer: "http://id.example.com": ` +
			"write an address that begins with https://",
		"issuer: https://a\nclient: a\nurl: https://b?c\nroles: {viewer: [c]}\n": `url: "https://b?c": write an address`,
		"issuer: https://a\nclient: a\nurl: https://b\nroles: {boss: [c]}\n":     `roles: "boss" is no role: write viewer, approver`,
		"issuer: https://a\nclient: a\nurl: https://b\nroles: {viewer: []}\n":    "roles: they name no group",
	} {
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		_, err := oidc.Read(file)
		require.ErrorContains(t, err, said, content)
		require.ErrorContains(t, err, "--oidc "+file)
	}
	_, err := oidc.Read(file + "-missing")
	require.ErrorContains(t, err, "--oidc: ")
	none, err := oidc.Read("")
	require.NoError(t, err)
	require.Nil(t, none)
}

func TestAProviderThatIsNotThereIsRefused(t *testing.T) {
	_, err := oidc.Discover(t.Context(), oidc.Config{Issuer: "http://127.0.0.1:1", Client: "a", URL: "http://localhost"})
	require.ErrorContains(t, err, "--oidc: issuer http://127.0.0.1:1: ")
}

// trip is a server that persons are sent back to, which keeps with what they come.
type trip struct {
	*testing.T

	at       string
	provider *oidc.Provider
	came     url.Values
}

func user(name string, isVerified bool) oidctest.User {
	return oidctest.User{Username: name, Password: "pass-of-" + name, Email: name + "@example.com", EmailVerified: isVerified}
}

func begin(t *testing.T, more string) *trip {
	t.Helper()
	r := &trip{T: t}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { r.came = q.URL.Query() }))
	t.Cleanup(server.Close)
	r.at = server.URL
	issuer := oidctest.Start(t, r.at+oidc.CallbackPath, map[string]oidctest.User{
		"1": user("ann", true), "2": user("bob", false),
		"3": user("cy", true),
	}, map[string][]string{"1": {"sre", "staff"}, "2": {"staff"}})
	folder := t.TempDir()
	secret := oidctest.Secret
	if strings.HasPrefix(more, "# wrong secret") {
		secret = "wrong"
	}
	require.NoError(t, os.WriteFile(filepath.Join(folder, "secret"), []byte(secret+"\n"), 0o600))
	file := filepath.Join(folder, "oidc.yaml")
	require.NoError(t, os.WriteFile(file, []byte("issuer: "+issuer+"\nclient: "+oidctest.Client+"\nsecret: secret\nurl: "+r.at+
		"\nscopes: [email, profile]\nroles: {approver: [sre], viewer: [staff]}\n"+more), 0o600))
	config, err := oidc.Read(file)
	require.NoError(t, err)
	r.provider, err = oidc.Discover(t.Context(), *config)
	require.NoError(t, err)
	return r
}

// signIn is what a person does at the provider, from where to sends them.
func (r *trip) signIn(to, name string) {
	r.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(r, err)
	browser := &http.Client{Jar: jar}
	form, err := browser.Get(to)
	require.NoError(r, err)
	defer form.Body.Close()
	page, err := io.ReadAll(form.Body)
	require.NoError(r, err)
	id := regexp.MustCompile(`name="id" value="([^"]+)"`).FindSubmatch(page)
	require.NotNil(r, id, string(page))
	sent, err := browser.PostForm(form.Request.URL.String(),
		url.Values{"id": {string(id[1])}, "username": {name}, "password": {"pass-of-" + name}})
	require.NoError(r, err)
	require.NoError(r, sent.Body.Close())
	require.Equal(r, oidc.CallbackPath, sent.Request.URL.Path)
}

func TestThePersonIsWhoTheProviderKnows(t *testing.T) {
	r := begin(t, "")
	a, to := r.provider.Begin("state")
	r.signIn(to, "ann")
	require.Equal(t, "state", r.came.Get("state"))
	p, err := r.provider.Finish(t.Context(), a, r.came.Get("code"))
	require.NoError(t, err)
	require.Equal(t, bearer.Person{Name: "ann@example.com", Role: bearer.Approver}, p)

	_, err = r.provider.Finish(t.Context(), a, r.came.Get("code"))
	require.EqualError(t, err, "the provider does not accept the code of this sign-in; try again")

	a, to = r.provider.Begin("state")
	r.signIn(to, "cy")
	_, err = r.provider.Finish(t.Context(), a, r.came.Get("code"))
	require.Equal(t, oidc.StrangerError{"cy@example.com is in none of the groups that may look here"}, err)

	a, to = r.provider.Begin("state")
	r.signIn(to, "bob")
	_, err = r.provider.Finish(t.Context(), a, r.came.Get("code"))
	require.EqualError(t, err, "the provider has not verified the address bob@example.com")
}

func TestACodeFitsNoOtherSignIn(t *testing.T) {
	r := begin(t, "name: preferred_username\n")
	_, to := r.provider.Begin("state")
	r.signIn(to, "ann")
	other, _ := r.provider.Begin("state") // another PKCE verifier
	_, err := r.provider.Finish(t.Context(), other, r.came.Get("code"))
	require.EqualError(t, err, "the provider does not accept the code of this sign-in; try again")

	a, to := r.provider.Begin("state")
	to = regexp.MustCompile(`nonce=[^&]+`).ReplaceAllString(to, "nonce=of-somebody-else")
	r.signIn(to, "ann")
	_, err = r.provider.Finish(t.Context(), a, r.came.Get("code"))
	require.EqualError(t, err, "the provider's token belongs to another sign-in")

	a, to = r.provider.Begin("state")
	r.signIn(to, "ann")
	p, err := r.provider.Finish(t.Context(), a, r.came.Get("code"))
	require.NoError(t, err)
	require.Equal(t, bearer.Person{Name: "ann", Role: bearer.Approver}, p)
}

func TestAWrongSecretIsToldApart(t *testing.T) {
	r := begin(t, "# wrong secret\n")
	a, to := r.provider.Begin("state")
	r.signIn(to, "ann")
	_, err := r.provider.Finish(t.Context(), a, r.came.Get("code"))
	require.ErrorContains(t, err, "the provider does not accept this server (invalid_client)")
}
