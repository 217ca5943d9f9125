package mcp

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-62bf7108/unwind/internal/httpserve"
)

// Serve serves clients over streamable HTTP until ctx ends. With a token, each request must bear
// it.
func (s *Server) Serve(ctx context.Context, l net.Listener, token string) error {
	return httpserve.Serve(ctx, l, s.handler(token))
}

func (s *Server) handler(token string) http.Handler {
	here := func(*http.Request) *sdk.Server { return s.server }
	// Stateless: nothing is kept between requests, as the protocol of 2026-07-28 has it.
	var h http.Handler = sdk.NewStreamableHTTPHandler(here,
		&sdk.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true})
	if s.Elicit {
		sessions := sdk.NewStreamableHTTPHandler(here,
			&sdk.StreamableHTTPOptions{PropagateRequestCancellation: true, SessionTimeout: idleLimit})
		h = byVersion{now: h, before: sessions}
	}
	if token != "" {
		h = auth.RequireBearerToken(verify(token), &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})(h)
	}
	return http.NewCrossOriginProtection().Handler(h)
}

// idleLimit ends the connection of a client of an earlier protocol that is silent; its next request
// makes a new one.
const idleLimit = time.Hour

// byVersion serves clients of earlier protocols apart: their users can be asked only where the
// server keeps a connection.
type byVersion struct{ now, before http.Handler }

// stateless is the first version of the protocol that knows no connections.
const stateless = "2026-07-28"

func (b byVersion) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Mcp-Protocol-Version") >= stateless {
		b.now.ServeHTTP(w, r)
	} else {
		b.before.ServeHTTP(w, r)
	}
}

// verify accepts one token, in a time that reveals nothing of it.
func verify(token string) auth.TokenVerifier {
	want := sha256.Sum256([]byte(token))
	return func(_ context.Context, borne string, _ *http.Request) (*auth.TokenInfo, error) {
		if is := sha256.Sum256([]byte(borne)); subtle.ConstantTimeCompare(is[:], want[:]) == 0 {
			return nil, auth.ErrInvalidToken
		}
		return &auth.TokenInfo{}, nil
	}
}
