package command

import (
	"net/http"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// statusUnder asks for a path of a server under the name of a host.
func statusUnder(t *testing.T, host, method, url string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	require.NoError(t, err)
	r.Host = host
	answer, err := http.DefaultTransport.RoundTrip(r)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	return answer.StatusCode
}

// A page of somebody else that gives its own name the address of a server here, which asks for no token,
// reads nothing and decides nothing.
func TestAnUnknownHostIsRefusedWhereThereAreNoTokens(t *testing.T) {
	d := newLoneDesk(t)
	open := d.servePage()
	guarded := d.servePage("ann a-token-of-some-length operator")
	for _, path := range []string{"/", "/tasks", "/tasks/a", "/stream", "/api/tasks", "/openapi.json", "/nowhere"} {
		for _, host := range []string{"shop.example", "shop.example:7381", "localhost.shop.example", ""} {
			if host == "" && path != "/" { // the client then writes the address
				continue
			}
			want := map[bool]int{true: http.StatusOK, false: http.StatusForbidden}[host == ""]
			require.Equal(t, want, statusUnder(t, host, http.MethodGet, open.url+path), "%s under %s", path, host)
		}
	}
	require.Equal(t, http.StatusForbidden, statusUnder(t, "shop.example", http.MethodPost, open.url+"/decide"))
	require.Equal(t, http.StatusOK, statusUnder(t, "localhost:7381", http.MethodGet, open.url+"/"))
	require.Equal(t, http.StatusOK, statusUnder(t, "unwind.example", http.MethodGet, guarded.url+"/openapi.json"))
	require.Equal(t, http.StatusUnauthorized, statusUnder(t, "unwind.example", http.MethodGet, guarded.url+"/api/tasks"))

	r := d.begin("mcp", "--listen", "127.0.0.1:0")
	d.prints(r, "MCP at http://")
	url := regexp.MustCompile(`http://\S+`).FindString(r.out.String())
	require.Equal(t, http.StatusForbidden, statusUnder(t, "shop.example", http.MethodPost, url))
	require.NotEqual(t, http.StatusForbidden, statusUnder(t, "localhost", http.MethodPost, url))
	r.stop()
	require.Equal(t, statusOK, d.ended(r).status)
}
