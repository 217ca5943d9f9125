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

	"github.com/seed-62bf7108/unwind/workflows"
)

// webhookLimit bounds one attempt to tell the webhook.
const webhookLimit = 10 * time.Second

// alerted counts the alerts, by what state the undo is in, with or without a webhook.
const alerted = "unwind_alerts"

// alert tells the webhook about an undo that needs a person. Temporal sends it again until it is taken.
func (b builtin) alert(ctx context.Context, a workflows.Alert) error {
	if activity.GetInfo(ctx).Attempt == 1 {
		activity.GetMetricsHandler(ctx).WithTags(map[string]string{"state": string(a.State)}).Counter(alerted).Inc(1)
	}
	if b.config.Webhook == nil {
		return nil
	}
	return post(ctx, *b.config.Webhook, secrets(b.config.Secrets), a)
}

// post sends v as JSON. No error tells more of the address than the host: a path or query of a webhook is often its key.
func post(ctx context.Context, w WebhookConfig, secrets secrets, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, webhookLimit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return refused(errors.New("the webhook's address cannot be used"))
	}
	r.Header.Set("Content-Type", "application/json")
	if w.Header != "" {
		value, err := secrets.Secret(w.Secret)
		if err != nil {
			return fmt.Errorf("the webhook's header: secret %s: %w", w.Secret, err)
		}
		r.Header.Set(w.Header, value)
	}
	// A redirected POST is a GET of another page: nobody was told.
	once := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := once.Do(r)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	if err != nil {
		return fmt.Errorf("the webhook at %s does not answer: %w", r.URL.Host, err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode < http.StatusMultipleChoices {
		return nil
	}
	err = fmt.Errorf("the webhook at %s answers %s", r.URL.Host, answer.Status)
	switch {
	case answer.StatusCode == http.StatusRequestTimeout, answer.StatusCode == http.StatusTooManyRequests,
		answer.StatusCode >= http.StatusInternalServerError:
		return err
	}
	return refused(err)
}
