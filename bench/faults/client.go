package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
)

// service is the counters as a worker sees them: at a URL.
type service string

func (s service) addValue(ctx context.Context, a addition) error {
	return s.sendRequest(ctx, "/add", a, nil)
}

func (s service) takeBack(ctx context.Context, a addition) (t removal, err error) {
	return t, s.sendRequest(ctx, "/take-back", a, &t)
}

func (s service) findKey(ctx context.Context, a addition) (state keyState, err error) {
	return state, s.sendRequest(ctx, "/look", a, &state)
}

func (s service) sendRequest(ctx context.Context, path string, a addition, v any) error {
	body, err := json.Marshal(a)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, string(s)+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	return doRequest(r, v)
}

// journal is the id of the service's journal.
func (s service) journal(ctx context.Context) (id string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, string(s)+"/journal", nil)
	if err != nil {
		return "", err
	}
	return id, doRequest(r, &id)
}

// doRequest tells what is final from what may be tried again.
func doRequest(r *http.Request, v any) error {
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	text := strings.TrimSpace(string(raw))
	switch {
	case answer.StatusCode == http.StatusConflict:
		return activities.Errorf(activities.Fenced, "%s", text)
	case answer.StatusCode < 300:
		if v == nil {
			return nil
		}
		return json.Unmarshal(raw, v)
	case answer.StatusCode < 500:
		return activities.Errorf(activities.ActionDenied, "%s", text)
	}
	return fmt.Errorf("%s: %s", answer.Status, text)
}
