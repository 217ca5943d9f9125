package command

import (
	"net/http"
	"regexp"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// bearing sends a token with each request.
type bearing string

func (b bearing) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

func TestMCPOverHTTPTakesOnlyWhoBearsTheToken(t *testing.T) {
	t.Setenv("MCP_TEST_TOKEN", "a-token-that-is-secret")
	d := newLoneDesk(t)
	r := d.begin("mcp", "--listen", "127.0.0.1:0", "--token", "env:MCP_TEST_TOKEN")
	d.prints(r, "MCP at http://")
	url := regexp.MustCompile(`http://\S+`).FindString(r.out.String())
	connect := func(as bearing, protocol string) (agent, error) {
		c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
			&sdk.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: as}, DisableStandaloneSSE: true,
				MaxRetries: -1},
			&sdk.ClientSessionOptions{ProtocolVersion: protocol})
		return agent{d, c}, err
	}
	for _, protocol := range []string{"", "2025-06-18"} {
		_, err := connect("another-token-altogether", protocol)
		require.Error(t, err)
		a, err := connect("a-token-that-is-secret", protocol)
		require.NoError(t, err)
		s := a.open()
		a.does("fake_set", arguments{"session": s, "with": set("a", "x")})
		b, err := connect("a-token-that-is-secret", protocol)
		require.NoError(t, err)
		b.does("abort", arguments{"session": s})
		require.Empty(t, d.world.get("a"))
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	}
	asked, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, http.NoBody)
	require.NoError(t, err)
	answered, err := http.DefaultClient.Do(asked)
	require.NoError(t, err)
	require.NoError(t, answered.Body.Close())
	require.Equal(t, http.StatusUnauthorized, answered.StatusCode)
	r.stop()
	require.Equal(t, statusOK, d.ended(r).status)
}
