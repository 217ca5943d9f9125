package mcp

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Serve serves clients over streamable HTTP until ctx ends. With a token, each request must bear it.
func (s *Server) Serve(ctx context.Context, l net.Listener, token string) error {
	server := &http.Server{Handler: s.handler(token), ReadHeaderTimeout: 10 * time.Second}
	stopped := context.AfterFunc(ctx, func() {
		calm, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if server.Shutdown(calm) != nil {
			_ = server.Close()
		}
	})
	defer stopped()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (s *Server) handler(token string) http.Handler {
	// Stateless: nothing is kept between requests, as the protocol of 2026-07-28 has it.
	var h http.Handler = sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s.server }, &sdk.StreamableHTTPOptions{
		Stateless: true, PropagateRequestCancellation: true,
	})
	if token != "" {
		h = auth.RequireBearerToken(verify(token), &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})(h)
	}
	return http.NewCrossOriginProtection().Handler(h)
}

// verify takes one token, in a time that tells nothing of it.
func verify(token string) auth.TokenVerifier {
	want := sha256.Sum256([]byte(token))
	return func(_ context.Context, borne string, _ *http.Request) (*auth.TokenInfo, error) {
		if is := sha256.Sum256([]byte(borne)); subtle.ConstantTimeCompare(is[:], want[:]) == 0 {
			return nil, auth.ErrInvalidToken
		}
		return &auth.TokenInfo{}, nil
	}
}
