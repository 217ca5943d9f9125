package activities_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
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

// A parser that exhausts the stack would end the worker.
func TestASyntaxCheckRefusesWhatNestsTooDeeply(t *testing.T) {
	for name, c := range map[string]struct{ format, text string }{
		"lists":  {"hcl", "a = " + strings.Repeat("[", 60_000)},
		"signs":  {"hcl", "a = " + strings.Repeat("-", 1_000_000)},
		"shells": {"sh", strings.Repeat("(", 1_000_000)},
		"ifs":    {"bash", strings.Repeat("if ", 1_000_000)},
	} {
		t.Run(name, func(t *testing.T) {
			err := activities.RunChecks(t.Context(), []activities.Check{{Syntax: &activities.SyntaxCheck{Format: c.format}}},
				activities.Live, activities.Live, scene(c.text))
			require.Equal(t, activities.CheckFailed, activities.TypeOf(err))
			require.ErrorContains(t, err, "use a command check")
		})
	}
}

func TestAnHTTPCheckEndsWithAServerThatDoesNot(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for part := []byte(strings.Repeat("x", 1<<16)); r.URL.Path == "/endless"; {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	ctx := activities.WithCheckAddresses(t.Context(), []string{"*"})
	for path, says := range map[string]string{
		"/endless": "the body is longer than 1048576 bytes", "/silent": "it did not answer within 100ms"} {
		limit := time.Minute
		if path == "/silent" {
			limit = 100 * time.Millisecond
		}
		err := activities.RunChecks(ctx, []activities.Check{{Timeout: limit, HTTP: &activities.HTTPCheck{URL: server.URL + path}}},
			activities.Live, activities.Live, scene(""))
		require.ErrorContains(t, err, says)
	}
}

// What an entry of the config names is compared as text: another form of the same address, and a
// name that resolves to it, are not it.
func TestAnotherFormOfAnAllowedAddressIsNotAllowed(t *testing.T) {
	ctx := activities.WithCheckAddresses(t.Context(), []string{"127.0.0.1", "[::1]:80"})
	for _, address := range []string{"http://[::ffff:127.0.0.1]/", "http://127.1/", "http://2130706433/", "http://0x7f.0.0.1/",
		"http://127.0.0.1.nip.io/", "http://localhost/", "http://[::1]:81/", "http://[::1%25lo]/", "http://[0::1]/",
		"http://127.0.0.1@example.com/", "http://example.com#127.0.0.1"} {
		err := activities.RunChecks(ctx, []activities.Check{{HTTP: &activities.HTTPCheck{URL: address}}},
			activities.Live, activities.Live, scene(""))
		require.Equal(t, activities.Refused, activities.TypeOf(err), address)
	}
}

// An action that looks at nothing in advance, and one of a world that runs commands elsewhere.
func TestAnAddressIsRefusedBeforeAnythingIsTouched(t *testing.T) {
	refusals, err := activities.NewRegistry().Preflight(t.Context(), activities.Host{}, "any.action", activities.Outlook{
		Step: activities.Step{Checks: []activities.Check{{HTTP: &activities.HTTPCheck{URL: "http://10.0.0.1/"}}}}})
	require.NoError(t, err)
	require.Len(t, refusals, 1)
	require.Contains(t, refusals[0].Message, "check[0].http: this worker does not allow 10.0.0.1:80")
}
