package notices

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/seed-62bf7108/unwind/activities"
)

// post sends a body to the address that a secret holds. Errors name only the host of the address,
// since its path or query is often a key. No status is final: a key is renewed, a page that asks to
// sign in goes away, and somebody waits to be told.
func (d Desk) post(ctx context.Context, address string, body []byte, header map[string]string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil || r.URL.Host == "" || r.URL.Scheme != "https" && r.URL.Scheme != "http" {
		return errors.New("the secret that is its url holds no address that begins with https:// or http://")
	}
	r.Header.Set("Content-Type", "application/json")
	for name, value := range header {
		r.Header.Set(name, value)
	}
	// A redirected POST would become a GET of another page.
	once := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := once.Do(r)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	if err != nil {
		return fmt.Errorf("%s did not answer: %w", r.URL.Host, err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode < http.StatusMultipleChoices {
		return nil
	}
	return fmt.Errorf("%s answered %s", r.URL.Host, answer.Status)
}

// postJSON sends v as JSON.
func (d Desk) postJSON(ctx context.Context, address string, v any, header map[string]string) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return d.post(ctx, address, body, header)
}

// secret reads a secret of a channel, for the field that names it.
func (d Desk) secret(field string, name activities.OwnSecret) (string, error) {
	value, err := d.Read(name)
	if err != nil {
		return "", fmt.Errorf("%s: secret %s: %w", field, name, err)
	}
	return value, nil
}
