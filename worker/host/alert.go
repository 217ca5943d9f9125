package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// webhookLimit bounds one attempt to reach the webhook.
const webhookLimit = 10 * time.Second

// alerted counts alerts by the state of the undo, with or without a webhook.
const alerted = "unwind_alerts"

// alert reports undos that need a person to the webhook. Temporal retries it until they are
// accepted.
func (b builtin) alert(ctx context.Context, alerts []protocol.Alert) error {
	if activity.GetInfo(ctx).Attempt == 1 {
		for _, a := range alerts {
			activity.GetMetricsHandler(ctx).WithTags(map[string]string{"state": string(a.State)}).Counter(alerted).Inc(1)
		}
	}
	if b.config.Webhook == nil {
		return nil
	}
	return postJSON(ctx, *b.config.Webhook, secrets(b.config.Secrets), alerts)
}

// postJSON sends v as JSON. Errors name only the host of the address, since its path or query is
// often a key.
func postJSON(ctx context.Context, w WebhookConfig, secrets secrets, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, webhookLimit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return nonRetryable(errors.New("the webhook's address cannot be used"))
	}
	r.Header.Set("Content-Type", "application/json")
	if w.Header != "" {
		value, err := secrets.read(string(w.Secret))
		if err != nil {
			return fmt.Errorf("the webhook's header: secret %s: %w", w.Secret, err)
		}
		r.Header.Set(w.Header, value)
	}
	// A redirected POST would become a GET of another page.
	once := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := once.Do(r)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	if err != nil {
		return fmt.Errorf("the webhook at %s did not answer: %w", r.URL.Host, err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode < http.StatusMultipleChoices {
		return nil
	}
	// No status is final: a key is renewed, a page that asks to sign in goes away, and somebody waits
	// to be told.
	return fmt.Errorf("the webhook at %s answered %s", r.URL.Host, answer.Status)
}
