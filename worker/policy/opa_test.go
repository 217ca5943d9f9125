package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// answering is an OPA that answers as a test says, and a policy that asks it.
func answering(t testing.TB, rules string, answer http.HandlerFunc) *Policy {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return load(t, rules+"opa: {url: '"+server.URL+"/v1/data/unwind/verdict', timeout: 20s}\n")
}

// saying answers with a status and a text.
func saying(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestVerdictsOfOPA(t *testing.T) {
	for body, want := range map[string]string{
		`{"result": "allow"}`: "allow opa:unwind/verdict",
		`{"result": "ask"}`:   "ask opa:unwind/verdict 1 person",
		`{"result": "deny"}`:  "deny opa:unwind/verdict",
		`{"result": "none"}`:  none,
		`{"result": {"verdict": "deny", "why": "no\nnights"}, "decision_id": "4ca6"}`:                                            "deny opa:unwind/verdict (no nights, decision 4ca6)",
		`{"result": {"verdict": "allow"}, "decision_id": "4ca6", "warning": {"code": "x"}}`:                                      "allow opa:unwind/verdict (decision 4ca6)",
		`{"result": {"verdict": "ask", "from": [{"group": "dba", "persons": 2}, {"group": "sre"}], "within": "4h", "why": "w"}}`: "ask opa:unwind/verdict (w) 2 of dba (ann, bob), one of sre (cy, ann) 4h0m0s",
		`{"result": {"verdict": "ask", "why": "` + strings.Repeat("x", 300) + `"}}`:                                              "ask opa:unwind/verdict (" + strings.Repeat("x", 200) + ") 1 person",
		`{"result": {"verdict": "deny", "why": "a\u202eb"}}`:                                                                     `deny opa:unwind/verdict (a\u202eb)`,
	} {
		require.Equal(t, want, describe(answering(t, groups, saying(200, body)).Judge(t.Context(), deletion(7))), body)
	}
	p := answering(t, groups+"rules: [{name: high, when: 'true', then: ask, from: [{group: dba}], within: 1h}]\n",
		saying(200, `{"result": {"verdict": "ask", "from": [{"group": "sre"}], "within": "4h"}}`))
	require.Equal(t, "ask high opa:unwind/verdict one of dba (ann, bob), one of sre (cy, ann) 1h0m0s", describe(p.Judge(t.Context(), deletion(7))),
		"it counts as one more rule")
}

// Whatever is no verdict asks, and never allows; what denies, denies.
func TestWhatIsNoVerdictOfOPAAsks(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		why    string
	}{
		"undefined":        {saying(200, `{}`), "the document is undefined: no policy there has a verdict about this"},
		"null":             {saying(200, `{"result": null}`), `"" is no verdict; it must be allow, ask, deny or none`},
		"another word":     {saying(200, `{"result": "Allow"}`), `"Allow" is no verdict; it must be allow, ask, deny or none`},
		"true":             {saying(200, `{"result": true}`), "the verdict cannot be read: json: cannot unmarshal bool into Go value of type policy.verdictJSON"},
		"a set":            {saying(200, `{"result": ["allow"]}`), "the verdict cannot be read: json: cannot unmarshal array"},
		"no verdict":       {saying(200, `{"result": {"why": "x"}}`), `"" is no verdict`},
		"an unknown field": {saying(200, `{"result": {"verdict": "allow", "form": []}}`), `the verdict cannot be read: json: unknown field "form"`},
		"allowed by whom":  {saying(200, `{"result": {"verdict": "allow", "from": [{"group": "dba"}]}}`), "it allows, and has from or within, which only a verdict that asks has"},
		"a wrong group":    {saying(200, `{"result": {"verdict": "ask", "from": [{"group": "dab"}]}}`), `answer:1: from[0].group: "dab" is none of groups; did you mean dba?`},
		"too many persons": {saying(200, `{"result": {"verdict": "ask", "from": [{"group": "dba", "persons": 3}]}}`), "answer:1: from: if all approve there would be 2 of 3"},
		"a wrong time":     {saying(200, `{"result": {"verdict": "ask", "within": "soon"}}`), `within: "soon" must be a time of at least 1s`},
		"no JSON":          {saying(200, `<html>`), "the answer cannot be read: invalid character '<'"},
		"a list":           {saying(200, `[]`), "the answer cannot be read: json: cannot unmarshal array"},
		"half of it":       {saying(200, `{"result": "allow"`), "the answer cannot be read: unexpected end of JSON input"},
		"two":              {saying(200, `{"result": "allow"} {}`), "the answer cannot be read: invalid character '{' after top-level value"},
		"nothing":          {saying(200, ``), "the answer cannot be read: unexpected end of JSON input"},
		"too long":         {saying(200, `{"result": "allow"}`+strings.Repeat(" ", maxAnswer)), "the answer is longer than 65536 bytes"},
		"a fault":          {saying(500, `{"result": "allow"}`), "the status is 500"},
		"no right":         {saying(401, `{"code": "unauthorized"}`), "the status is 401"},
		"created":          {saying(201, `{"result": "allow"}`), "the status is 201"},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/elsewhere" {
				_, _ = io.WriteString(w, `{"result": "allow"}`)
				return
			}
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, "the status is 307"},
		"broken off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"result": "allow"}`)
		}, "unexpected EOF"},
		"no answer": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			r := answering(t, groups, c.answer).Judge(t.Context(), deletion(7))
			require.Equal(t, activities.Asked, r.Verdict)
			require.Equal(t, "opa:unwind/verdict", r.Rules[0].Name)
			require.Contains(t, r.Rules[0].Why, "it gave no verdict: "+c.why)
			require.Equal(t, anybody, r.Demands)
		})
	}
	for _, denied := range []string{`{"verdict": "deny", "form": []}`, `{"verdict": "deny", "within": "soon"}`, `{"verdict": "deny", "from": [{"group": "dab"}]}`} {
		require.Equal(t, activities.Denies, answering(t, groups, saying(200, `{"result": `+denied+`}`)).Judge(t.Context(), deletion(7)).Verdict)
	}
}

func TestAnOPAThatDoesNotAnswerAsksWhomThePolicySays(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	const from = "from: [{group: dba}]}\n"
	p := load(t, groups+"opa: {url: 'http://"+gone.Addr().String()+"/v1/data/x', "+from)
	require.Equal(t, fmt.Sprintf("ask opa:x (it gave no verdict: dial tcp %s: connect: connection refused) one of dba (ann, bob)", gone.Addr()),
		describe(p.Judge(t.Context(), deletion(7))))

	silent, err := net.Listen("tcp", "127.0.0.1:0") // it is connected to, and says nothing
	require.NoError(t, err)
	defer silent.Close()
	p = load(t, groups+"opa: {url: 'http://"+silent.Addr().String()+"/v1/data/x', timeout: 50ms, "+from)
	require.Equal(t, "ask opa:x (it gave no verdict: no answer within 50ms) one of dba (ann, bob)", describe(p.Judge(t.Context(), deletion(7))))

	secure := httptest.NewUnstartedServer(saying(200, `{"result": "allow"}`))
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS() // its certificate is nobody's
	defer secure.Close()
	p = load(t, groups+"opa: {url: '"+secure.URL+"/v1/data/x', "+from)
	r := p.Judge(t.Context(), deletion(7))
	require.Equal(t, activities.Asked, r.Verdict)
	require.Contains(t, r.Rules[0].Why, "failed to verify certificate")

	p.engines[0].(*opa).client = secure.Client()
	require.Equal(t, activities.Allows, p.Judge(t.Context(), deletion(7)).Verdict)
}

// A call that ends does not wait for an answer.
func TestAQuestionEndsWithItsCall(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := answering(t, "", func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a server sees that its client has gone once it has read all
		cancel()
		<-r.Context().Done()
	})
	require.Equal(t, "ask opa:unwind/verdict (it gave no verdict: context canceled) 1 person", describe(p.Judge(ctx, deletion(7))))
}

func TestWhatOPAIsAsked(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	var asked struct{ Input map[string]any }
	var request *http.Request
	p := answering(t, "", func(w http.ResponseWriter, r *http.Request) {
		request = r
		d := json.NewDecoder(r.Body)
		d.UseNumber()
		if err := d.Decode(&asked); err != nil {
			panic(err)
		}
		_, _ = io.WriteString(w, `{"result": "deny"}`)
	})
	require.Equal(t, "deny opa:unwind/verdict", describe(p.Judge(t.Context(), deletion(7))))
	require.Equal(t, http.MethodPost, request.Method)
	require.Equal(t, "/v1/data/unwind/verdict?provenance=true", request.RequestURI)
	require.Equal(t, "application/json", request.Header.Get("Content-Type"))
	require.Empty(t, request.Header.Get("Authorization"))
	input, err := json.Marshal(asked.Input)
	require.NoError(t, err)
	require.JSONEq(t, `{
		"task": {"id": "tidy-1", "agent": "bot"},
		"step": {"id": "tidy", "action": "postgres.exec", "world": "postgres", "host": "build-1"},
		"with": {"database": "shop", "sql": "DELETE FROM a", "id": 9007199254740993},
		"change": {"summary": "delete", "risk": "high", "strategy": "transaction", "undo": "put back", "horizon": "1h0m0s", "losses": ["a sequence"],
			"facts": ["no WHERE"], "schema": ["drop index"], "keys": ["postgres:shop"], "unchanged": false, "diffBytes": 40000,
			"counts": [{"of": "a", "added": 0, "removed": 7, "changed": 0, "before": 8}, {"of": "b", "added": 3, "removed": 0, "changed": 2, "before": 0}],
			"added": 3, "removed": 7, "changed": 2},
		"history": {"steps": 50, "by": {"file.write": 20, "postgres.exec": 30}, "added": 1, "removed": 2, "changed": 3},
		"time": "2026-01-05T12:00:00Z", "host": "build-1"}`, string(input))
	require.Contains(t, string(input), "9007199254740993")

	require.NoError(t, p.Bear(func() (string, error) { return "a-token", nil }))
	p.Judge(t.Context(), deletion(7))
	require.Equal(t, "Bearer a-token", request.Header.Get("Authorization"))
	require.NoError(t, p.Bear(func() (string, error) { return "", errors.New("its file is gone") }))
	require.Equal(t, "ask opa:unwind/verdict (it gave no verdict: its token: its file is gone) 1 person", describe(p.Judge(t.Context(), deletion(7))))
	require.ErrorContains(t, load(t, "rules: [{name: a, when: 'true', then: ask}]\n").Bear(nil), "the policy asks no OPA")
}

func TestAHistoryThatCannotBeReadIsNotAsked(t *testing.T) {
	c := deletion(7)
	c.History = func() (activities.History, error) { return activities.History{}, errors.New("a damaged note") }
	p := answering(t, "", func(http.ResponseWriter, *http.Request) { panic("it was asked") })
	require.Equal(t, "ask opa:unwind/verdict (it gave no verdict: what the task has done before cannot be read: a damaged note) 1 person",
		describe(p.Judge(t.Context(), c)))
}

func TestTheRevisionOfOPAIsItsVersion(t *testing.T) {
	for provenance, want := range map[string]string{
		`{"version": "1.22.3", "revision": "r1"}`:                         "rules opa:unwind/verdict@r1",
		`{"version": "1.22.3"}`:                                           "rules opa:unwind/verdict",
		`{"bundles": {"b": {"revision": "r2"}, "a": {"revision": "r1"}}}`: "rules opa:unwind/verdict@r1+r2",
		`{"revision": "` + strings.Repeat("x", 100) + `"}`:                "rules opa:unwind/verdict@" + strings.Repeat("x", 64),
	} {
		p := answering(t, "", saying(200, `{"result": "deny", "provenance": `+provenance+`}`))
		require.Equal(t, want, p.Judge(t.Context(), deletion(7)).Name())
	}
}

func TestABadOPAIsRefused(t *testing.T) {
	for opa, want := range map[string]string{
		"{}": `policy.yaml:2: opa.url: "" must be a URL, as in http://127.0.0.1:8181/v1/data/unwind/verdict`,
		"{url: 'http://127.0.0.1:8181/v1/data', token: x}":   "opa.token: there is no such field",
		"{url: 'ftp://a/v1/data/x'}":                         `opa.url: "ftp://a/v1/data/x" must be a URL`,
		"{url: 'http://[::1/v1/data/x'}":                     `opa.url: "http://[::1/v1/data/x" is no URL`,
		"{url: 'http://opa.example/v1/data/x'}":              `opa.url: "http://opa.example/v1/data/x" is of another machine, so anybody between could answer; use https`,
		"{url: 'https://u:p@a/v1/data/x'}":                   `opa.url: "https://u:xxxxx@a/v1/data/x" must have no user, query or fragment`,
		"{url: 'https://a/v1/data/x?pretty'}":                `must have no user, query or fragment`,
		"{url: 'https://a/v1/data/'}":                        `opa.url: "https://a/v1/data/" names no document`,
		"{url: 'https://a/v0/data/x'}":                       `names no document; write its path after /v1/data/`,
		"{url: 'https://a/v1/data/x', timeout: 0s}":          "opa.timeout: 0s must be between 1ms and 30s",
		"{url: 'https://a/v1/data/x', timeout: 31s}":         "opa.timeout: 31s must be between 1ms and 30s",
		"{url: 'https://a/v1/data/x', from: [{group: dab}]}": `opa.from[0].group: "dab" is none of groups; did you mean dba?`,
		"": "opa: has no value",
	} {
		_, err := Load(write(t, groups+"opa: "+opa+"\n"), "build-1")
		require.ErrorContains(t, err, want, opa)
	}
	p := load(t, "opa: {url: 'https://a/prefix/v1/data/x/y/'}\n")
	require.Equal(t, []string{"opa:x/y"}, p.Engines())
	require.Equal(t, "https://a/prefix/v1/data/x/y/?provenance=true", p.engines[0].(*opa).url)
	require.Equal(t, time.Second, p.engines[0].(*opa).timeout)
	load(t, "opa: {url: 'http://[::1]:8181/v1/data/x'}\n")
	load(t, "opa: {url: 'http://localhost/v1/data/x'}\n")
}

// What OPA gives no verdict about was not tried.
func TestExamplesAreTriedWithOPA(t *testing.T) {
	const examples = "examples:\n  - {name: low, want: none}\n  - {name: high, change: {risk: high}, want: deny, rules: ['opa:unwind/verdict']}\n" +
		"  - {name: medium, change: {risk: medium}, want: ask}\n"
	p := answering(t, examples, func(w http.ResponseWriter, r *http.Request) {
		var asked struct{ Input struct{ Change Change } }
		raw, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(raw, &asked)
		verdict, known := map[string]string{"low": "none", "high": "deny"}[asked.Input.Change.Risk]
		if known {
			_, _ = fmt.Fprintf(w, `{"result": %q}`, verdict)
			return
		}
		_, _ = io.WriteString(w, `{}`)
	})
	require.Equal(t, []Tried{{Example: "low"}, {Example: "high"}, {Example: "medium",
		Untried: "opa:unwind/verdict: it gave no verdict: the document is undefined: no policy there has a verdict about this"}}, p.TryExamples(t.Context()))
}

// OPA may look at all there is: it is asked about the past only where all of it is known.
func TestOPAIsAskedOnlyAboutAKnownPast(t *testing.T) {
	p := answering(t, "", saying(200, `{"result": "deny"}`))
	known := Past{Case: deletion(7), Time: usualTime, IsPlanned: true}
	unknown := known
	unknown.IsPlanned = false
	all, err := p.JudgePast(t.Context(), []Past{known, unknown})
	require.NoError(t, err)
	require.Equal(t, "deny opa:unwind/verdict", describe(all[0]))
	require.Equal(t, "ask opa:unwind/verdict (it looks at what the history of the task does not tell: change) 1 person",
		describe(all[1]))
}
