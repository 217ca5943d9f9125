package activities

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
)

// HTTPCheck requires that an address answers a GET request as it should. It runs on the worker's
// host, follows no redirect, and uses no proxy.
type HTTPCheck struct {
	// URL is http or https. Its host must be one that the worker's config allows.
	URL string `json:"url"`
	// Status is the status of the answer. Defaults to 200.
	Status int `json:"status,omitempty"`
	// Contains is a text that the body must have.
	Contains string `json:"contains,omitempty"`
	// At is a JSON Pointer into the body, Equals the value that must stand there. Both default to
	// nothing being asked.
	At     string          `json:"at,omitempty"`
	Equals json.RawMessage `json:"equals,omitempty"`
}

// maxBody is how many bytes of an answer a check reads.
const maxBody = 1 << 20

var checkClient = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true}, // the check has a time limit
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// checkAddress refuses an address that the worker's config does not allow.
func (c HTTPCheck) checkAddress(ctx context.Context) *Error {
	u, err := url.Parse(c.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return Errorf(Refused, "http: %q is not a URL that begins with http:// or https://", c.URL)
	}
	if u.User != nil {
		return Errorf(Refused, "http: the URL names a user; leave that out, since it stands in the history")
	}
	host, port := u.Hostname(), cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	allowed := checkRightsOf(ctx).addresses
	for _, a := range allowed {
		if a == "*" || a == host || a == net.JoinHostPort(host, port) {
			return nil
		}
	}
	return Errorf(Refused, "http: this worker does not allow %s in a check; checkAddresses in its config allows %s",
		net.JoinHostPort(host, port), orNone(allowed))
}

func (c HTTPCheck) ask(ctx context.Context) error {
	if err := c.checkAddress(ctx); err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL, nil)
	if err != nil {
		return Errorf(Refused, "http: %v", err)
	}
	answer, err := checkClient.Do(request)
	if err != nil {
		return Errorf(CheckFailed, "no answer: %v", err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxBody+1))
	if err != nil {
		return Errorf(CheckFailed, "%s: the answer broke off: %v", c.URL, err)
	}
	fail := func(format string, args ...any) error {
		return &Error{Type: CheckFailed, Message: c.URL + ": " + fmt.Sprintf(format, args...),
			Output: Tail(MaskerFrom(ctx).String(string(body)), 500)}
	}
	if want := cmp.Or(c.Status, http.StatusOK); answer.StatusCode != want {
		return fail("the status is %d, want %d", answer.StatusCode, want)
	}
	if len(body) > maxBody {
		return fail("the body is longer than %s, which is all that a check reads", CountOf(maxBody, "byte"))
	}
	if !bytes.Contains(body, []byte(c.Contains)) {
		return fail("the body does not contain %q", c.Contains)
	}
	if c.At == "" && len(c.Equals) == 0 {
		return nil
	}
	return JSONCheck{At: c.At, Equals: c.Equals}.compareBody(ctx, c.URL, body)
}
