package rest

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/starter/bearer"
)

// TestAPageOfSomebodyElseReadsNothing asks under a name that somebody has given this address.
func TestAPageOfSomebodyElseReadsNothing(t *testing.T) {
	for host, want := range map[string]int{"127.0.0.1:7381": http.StatusOK, "localhost:7381": http.StatusOK,
		"[::1]:7381": http.StatusOK, "shop.example:7381": http.StatusForbidden, "": http.StatusForbidden} {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/openapi.json", nil)
		request.Host = host
		answer := httptest.NewRecorder()
		(&Server{Anybody: &bearer.Person{}}).Handler().ServeHTTP(answer, request)
		require.Equal(t, want, answer.Code, host)
	}
}
