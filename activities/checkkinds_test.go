package activities_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

func TestASyntaxCheckReadsTheFormatsWithoutATool(t *testing.T) {
	for format, c := range map[string]struct{ good, bad, says string }{
		"json": {`{"a": 1}`, `{"a": 1,}`, "/target is not JSON: invalid character '}'"},
		"yaml": {"a: [1]\n---\nb: 2\n", "a: 1\n b: 2\n", "/target is not YAML: yaml:"},
		"toml": {"[a]\nb = 1\n", "[a]\nb = \n", "/target is not TOML: toml:"},
		"hcl":  {"a \"b\" {\n  c = 1\n}\n", "a \"b\" {\n", "/target is not HCL: :1,7-8: Unclosed configuration block"},
		"sh":   {"if true; then echo a; fi\n", "if true; then echo a\n", "/target is not a POSIX shell script: 1:1:"},
		"bash": {"a=(1 2)\n", "a=(1 2\n", "/target is not a Bash script: 1:3:"},
	} {
		t.Run(format, func(t *testing.T) {
			check := []activities.Check{{Syntax: &activities.SyntaxCheck{Format: format}}}
			look := func(text string) error {
				return activities.RunChecks(t.Context(), check, activities.Staged, activities.Staged, scene(text))
			}
			require.NoError(t, look(c.good))
			err := look(c.bad)
			require.Equal(t, activities.CheckFailed, activities.TypeOf(err))
			require.ErrorContains(t, err, "check 1 (syntax, staged): "+c.says)
		})
	}
	posix := []activities.Check{{Syntax: &activities.SyntaxCheck{Format: "sh"}}}
	require.Error(t, activities.RunChecks(t.Context(), posix, activities.Live, activities.Live, scene("a=(1 2)\n")))
	double := []activities.Check{{Syntax: &activities.SyntaxCheck{Format: "yaml"}}}
	require.ErrorContains(t, activities.RunChecks(t.Context(), double, activities.Live, activities.Live,
		scene("a: 1\na: 2\n")), "already defined")
}

func TestAnHTTPCheckAsksOnlyWhatTheWorkerAllows(t *testing.T) {
	asked := 0
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	t.Cleanup(elsewhere.Close)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, elsewhere.URL, http.StatusFound)
		case "/busy":
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			_, _ = w.Write([]byte(`{"status": "up"}`))
		}
	}))
	t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		allowed string
		check   activities.HTTPCheck
		says    string // nothing: it holds
	}{
		"host":     {at.Hostname(), activities.HTTPCheck{URL: server.URL}, ""},
		"any":      {"*", activities.HTTPCheck{URL: server.URL, Contains: "up", At: "/status", Equals: []byte(`"up"`)}, ""},
		"port":     {at.Host, activities.HTTPCheck{URL: server.URL + "/busy", Status: 503}, ""},
		"status":   {at.Host, activities.HTTPCheck{URL: server.URL + "/busy"}, "the status is 503, want 200"},
		"contains": {at.Host, activities.HTTPCheck{URL: server.URL, Contains: "down"}, `the body does not contain "down"`},
		"value":    {at.Host, activities.HTTPCheck{URL: server.URL, At: "/status", Equals: []byte(`1`)}, `/status is "up", want 1`},
		"redirect": {at.Host, activities.HTTPCheck{URL: server.URL + "/away"}, "the status is 302, want 200"},
		"other port": {at.Hostname() + ":1", activities.HTTPCheck{URL: server.URL},
			"this worker does not allow " + at.Host + " in a check; checkAddresses in its config allows " + at.Hostname() + ":1"},
		"scheme": {"*", activities.HTTPCheck{URL: "file:///etc/passwd"}, "is not a URL that begins with http:// or https://"},
		"user":   {"*", activities.HTTPCheck{URL: "http://ann:secret@localhost/"}, "the URL names a user"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := activities.WithCheckAddresses(t.Context(), []string{c.allowed})
			checks := []activities.Check{{HTTP: &c.check}}
			require.NoError(t, activities.RunChecks(ctx, checks, activities.Staged, activities.Staged, scene("")),
				"what is staged answers nothing")
			err := activities.RunChecks(ctx, checks, activities.Live, activities.Staged, scene(""))
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "secret")
		})
	}
	require.Zero(t, asked)
	require.ErrorContains(t, activities.CheckAllowed(t.Context(), []activities.Check{
		{HTTP: &activities.HTTPCheck{URL: server.URL}}}), "check[0].http: this worker does not allow")
}

// silent is a scene whose commands never end by themselves.
type silent struct{ scene }

func (silent) Run(ctx context.Context, _ []string) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestACheckThatDoesNotAnswerFailsAtItsTimeLimit(t *testing.T) {
	for name, c := range map[string]struct {
		timeout, within, want time.Duration
		says                  string
	}{
		"its own": {5 * time.Second, 0, 5 * time.Second, "it did not answer within 5s"},
		"default": {0, 0, time.Minute, "it did not answer within 1m0s"},
		"each of several tries": {5 * time.Second, 12 * time.Second, 12 * time.Second,
			"it did not hold within 12s (3 tries); at last: it did not answer within 5s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, began := activities.WithCheckCommands(t.Context(), []string{"*"}), time.Now()
				err := activities.RunChecks(ctx, []activities.Check{{Timeout: c.timeout, Within: c.within,
					Command: &activities.CommandCheck{Run: []string{"hang"}}}}, activities.Live, activities.Live, silent{})
				require.ErrorContains(t, err, c.says)
				require.Equal(t, activities.CheckFailed, activities.TypeOf(err))
				require.Equal(t, c.want, time.Since(began))
			})
		})
	}
}
