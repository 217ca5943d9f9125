package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/yamlfile"
)

// dataPath is where OPA's REST API has its documents.
const dataPath = "/v1/data/"

// Limits on a question.
const (
	usualTimeout = time.Second
	maxTimeout   = 30 * time.Second
	maxAnswer    = 64 << 10 // bytes
	maxIdentity  = 64       // bytes of a revision, or of a decision's id
)

// writtenOPA is a server of the Open Policy Agent that is asked for a verdict.
type writtenOPA struct {
	// URL is that of the document with the verdict: https, or http on this machine.
	URL string `yaml:"url"`
	// Timeout bounds a question, answer included. Defaults to 1s.
	Timeout time.Duration `yaml:"timeout"`
	// From are whose approval is asked for where its answer names nobody, and where there is none.
	// Defaults to one person, whoever it is.
	From []writtenDemand `yaml:"from"`
}

// opa asks a server of the Open Policy Agent. Whatever is no verdict asks.
type opa struct {
	url     string
	name    string
	timeout time.Duration
	demands []activities.Demand
	groups  map[string][]string
	client  *http.Client
	// token is sent as a bearer token, where there is one.
	token func() (string, error)
}

func (l *loader) readOPA(w writtenOPA) *opa {
	o := &opa{timeout: w.Timeout, groups: l.groups, demands: l.readDemands("opa.from", w.From), client: &http.Client{
		// No proxy, and no connection that may have gone stale.
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if !l.has("opa.timeout") {
		o.timeout = usualTimeout
	} else if w.Timeout < time.Millisecond || w.Timeout > maxTimeout {
		l.badf("opa.timeout", "%s must be between 1ms and %s: a step waits for the answer", w.Timeout, maxTimeout)
	}
	u, err := url.Parse(w.URL)
	if err != nil {
		l.badf("opa.url", "%q is no URL: %v", w.URL, err)
		return o
	}
	_, name, isData := strings.Cut(u.Path, dataPath)
	switch {
	case u.User != nil || u.RawQuery != "" || u.Fragment != "": // first, so that no password is shown
		l.badf("opa.url", "%q must have no user, query or fragment; leave that out", u.Redacted())
	case u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "":
		l.badf("opa.url", "%q must be a URL, as in http://127.0.0.1:8181/v1/data/unwind/verdict", w.URL)
	case !isData || strings.Trim(name, "/") == "":
		l.badf("opa.url", "%q names no document; write its path after %s, as in /v1/data/unwind/verdict", w.URL, dataPath)
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		l.badf("opa.url", "%q is of another machine, so anybody between could answer; use https, or an OPA on this machine",
			w.URL)
	}
	o.name = "opa:" + strings.Trim(name, "/")
	u.RawQuery = url.Values{"provenance": {"true"}}.Encode()
	o.url = u.String()
	return o
}

func isLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

func (o *opa) String() string { return o.name }

func (o *opa) rules() []string { return []string{o.name} }

// sees implements engine: nobody here knows what it looks at.
func (o *opa) sees(string) bool { return true }

func (o *opa) asks(why string) finding {
	return finding{verdict: activities.Asked, demands: o.demands,
		rule: activities.RuleMatch{Name: o.name, Why: shown(why)}}
}

// decide implements engine.
func (o *opa) decide(ctx context.Context, in inputs) []finding {
	a, err := o.ask(ctx, in)
	f, isMet := finding{}, true
	if err == nil {
		f, isMet, err = o.read(a.Result)
	}
	if err != nil {
		if f.verdict != activities.Denies {
			f = o.asks("it gave no verdict: " + err.Error())
		}
		f.isUnanswered = true
	}
	f.rule.Version = a.revision()
	if id := cut(a.DecisionID, maxIdentity); id != "" {
		f.rule.Why = strings.TrimPrefix(f.rule.Why+", decision "+id, ", ")
	}
	if !isMet {
		return nil
	}
	return []finding{f}
}

// answer is what OPA's data API answers.
type answer struct {
	Result     json.RawMessage `json:"result"`
	DecisionID string          `json:"decision_id"`
	Provenance struct {
		Revision string `json:"revision"`
		Bundles  map[string]struct {
			Revision string `json:"revision"`
		} `json:"bundles"`
	} `json:"provenance"`
}

// revision is that of the policies that have decided; empty if the answer does not say it.
func (a answer) revision() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(a.Provenance.Bundles)) {
		all = append(all, a.Provenance.Bundles[name].Revision)
	}
	if len(all) == 0 {
		all = []string{a.Provenance.Revision}
	}
	return cut(strings.Join(all, "+"), maxIdentity)
}

func (o *opa) ask(ctx context.Context, in inputs) (a answer, err error) {
	seen, err := in.tree(true)
	if err != nil {
		return a, err
	}
	question, err := json.Marshal(map[string]any{"input": written(seen)})
	if err != nil {
		return a, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, o.url, bytes.NewReader(question))
	if err != nil {
		return a, err
	}
	request.Header.Set("Content-Type", "application/json")
	if o.token != nil {
		token, err := o.token()
		if err != nil {
			return a, fmt.Errorf("its token: %w", err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := o.client.Do(request)
	if failed, is := errors.AsType[*url.Error](err); is {
		err = failed.Err // which does not repeat the URL
	}
	if err != nil {
		return a, o.late(ctx, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return a, o.late(ctx, err)
	case response.StatusCode != http.StatusOK:
		return a, fmt.Errorf("the status is %d", response.StatusCode)
	case len(body) > maxAnswer:
		return a, fmt.Errorf("the answer is longer than %s", activities.CountOf(maxAnswer, "byte"))
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return answer{}, fmt.Errorf("the answer cannot be read: %w", err)
	}
	return a, nil
}

// late says that the time was up, if it was.
func (o *opa) late(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %s", o.timeout)
	}
	return err
}

// written is the tree as JSON has it: times as in RFC 3339, durations as in 1h30m0s.
func written(value any) any {
	switch v := value.(type) {
	case time.Duration:
		return v.String()
	case map[string]any:
		fields := make(map[string]any, len(v))
		for name, of := range v {
			fields[name] = written(of)
		}
		return fields
	default:
		return value
	}
}

// verdictJSON is a verdict as OPA gives it, or a text alone.
type verdictJSON struct {
	Verdict string          `json:"verdict"`
	Why     string          `json:"why"`
	From    []writtenDemand `json:"from"`
	Within  string          `json:"within"`
}

// read understands a verdict; "none" is none. If there is an error, it is not understood, and a
// deny is one all the same.
func (o *opa) read(result json.RawMessage) (f finding, isMet bool, err error) {
	if len(result) == 0 {
		return f, true, errors.New("the document is undefined: no policy there has a verdict about this")
	}
	var v verdictJSON
	if json.Unmarshal(result, &v.Verdict) != nil {
		d := json.NewDecoder(bytes.NewReader(result))
		d.DisallowUnknownFields()
		err = d.Decode(&v)
	}
	f = o.asks(v.Why)
	f.verdict = activities.Verdict(v.Verdict)
	switch {
	case err != nil:
		err = fmt.Errorf("the verdict cannot be read: %w", err)
	case v.Verdict == none:
		return f, false, nil
	case !slices.Contains(activities.Verdicts, f.verdict):
		err = fmt.Errorf("%q is no verdict; it must be allow, ask, deny or none", v.Verdict)
	case f.verdict == activities.Allows && (len(v.From) > 0 || v.Within != ""):
		err = errors.New("it allows, and has from or within, which only a verdict that asks has")
	case f.verdict == activities.Asked:
		err = o.readDemands(&f, v)
	}
	return f, true, err
}

// readDemands reads whom a verdict asks, and for how long, as of a rule in the file.
func (o *opa) readDemands(f *finding, v verdictJSON) (err error) {
	if v.Within != "" {
		if f.within, err = time.ParseDuration(v.Within); err != nil || f.within < time.Second {
			return fmt.Errorf("within: %q must be a time of at least 1s, as in 4h", v.Within)
		}
	}
	if len(v.From) == 0 {
		return nil
	}
	l := loader{file: "answer", groups: o.groups, places: yamlfile.Places{}}
	f.demands = l.readDemands("from", v.From)
	return errors.Join(l.problems...)
}
