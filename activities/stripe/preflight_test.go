package stripe

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// Nothing is sent: there is no server at this address.
func TestPreflightLooksAtTheKeyAndTheRequest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		key    string
		with   map[string]any
		later  []string
		checks []activities.Check
		want   []string
	}{
		"fine":   {key: "sk_test_x", with: map[string]any{"name": "Ada"}},
		"no key": {with: map[string]any{"name": "Ada"}, want: []string{"the Stripe key: there is none"}},
		"a live key": {key: "sk_live_x", with: map[string]any{"name": "Ada"},
			want: []string{"the Stripe key is a live one"}},
		"our metadata": {key: "sk_test_x", with: map[string]any{"metadata": map[string]string{markPrefix + "x": "y"}},
			want: []string{"are Unwind's own"}},
		"a later part": {key: "sk_test_x", with: map[string]any{}, later: []string{"name"}},
		"a staged check": {key: "sk_test_x", checks: []activities.Check{{When: activities.Staged}},
			want: []string{"Stripe stages nothing"}},
		"a command check": {key: "sk_test_x", checks: []activities.Check{{Command: &activities.CommandCheck{}}},
			want: []string{"no command can run in Stripe"}},
		"several mistakes": {key: "sk_live_x", checks: []activities.Check{{When: activities.Staged}},
			want: []string{"is a live one", "stages nothing"}},
	} {
		w, err := New(Config{BaseURL: "http://127.0.0.1:1", Key: func() (string, error) {
			if c.key == "" {
				return "", errors.New("there is none")
			}
			return c.key, nil
		}})
		require.NoError(t, err)
		with, err := json.Marshal(c.with)
		require.NoError(t, err)
		if c.with == nil {
			with = json.RawMessage(`{}`)
		}
		refusals, err := activities.NewRegistry(w).Preflight(t.Context(), activities.Host{}, "stripe.customer.create",
			activities.Outlook{Step: activities.Step{ID: "s", With: with, Checks: c.checks}, Later: c.later})
		require.NoError(t, err, name)
		require.Len(t, refusals, len(c.want), "%s: %v", name, refusals)
		for i, want := range c.want {
			require.Contains(t, refusals[i].Message, want, name)
		}
	}
}
