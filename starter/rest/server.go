package rest

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/seed-62bf7108/unwind/internal/httpserve"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/workflows/environment"
)

// Server serves the environments of a namespace.
type Server struct {
	// Client reaches them.
	Client *tasks.Client
	// Owners maps bearer tokens to whose they are. Empty: no token is asked for.
	Owners map[string]string
	// Version is that of the program.
	Version string
}

// Serve serves until ctx ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	return httpserve.Serve(ctx, l, s.Handler())
}

// Handler answers requests.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	config := huma.DefaultConfig("Unwind environments", s.Version)
	// no page whose scripts come from elsewhere, and no links in each answer
	config.DocsPath, config.SchemasPath, config.CreateHooks = "", "", nil
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer"}}
	if len(s.Owners) > 0 {
		config.Security = []map[string][]string{{"token": {}}}
	}
	api := humago.New(mux, config)
	api.UseMiddleware(s.authenticate(api))
	s.register(api)
	return http.NewCrossOriginProtection().Handler(s.checkHost(mux))
}

// checkHost refuses names that are not of this machine where no token is asked for: a page of
// somebody else could give its own name this address, and read what is here.
func (s *Server) checkHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			name = r.Host
		}
		if ip := net.ParseIP(strings.Trim(name, "[]")); len(s.Owners) == 0 && name != "localhost" && ip == nil {
			http.Error(w, fmt.Sprintf("host %q is not known here: use localhost, or the address", name), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ownerKey is that of the owner in a request's context.
type ownerKey struct{}

// authenticate finds whose a token is, in a time that reveals nothing of it.
func (s *Server) authenticate(api huma.API) func(huma.Context, func(huma.Context)) {
	return func(c huma.Context, next func(huma.Context)) {
		if len(s.Owners) == 0 {
			next(c)
			return
		}
		borne, _ := strings.CutPrefix(c.Header("Authorization"), "Bearer ")
		is, owner, known := sha256.Sum256([]byte(borne)), "", 0
		for token, whose := range s.Owners {
			want := sha256.Sum256([]byte(token))
			if subtle.ConstantTimeCompare(is[:], want[:]) == 1 {
				owner, known = whose, 1
			}
		}
		if known == 0 {
			c.SetHeader("WWW-Authenticate", "Bearer")
			_ = huma.WriteErr(api, c, http.StatusUnauthorized, "give a bearer token that this server knows")
			return
		}
		next(huma.WithValue(c, ownerKey{}, owner))
	}
}

// find finds an environment that the request may use.
func (s *Server) find(ctx context.Context, app string) (environment.View, error) {
	v, err := s.Client.Environment(ctx, app)
	if err != nil {
		return v, problem(err)
	}
	if owner, asked := ctx.Value(ownerKey{}).(string); asked && v.Document.Owner != owner {
		return environment.View{}, huma.Error404NotFound(fmt.Sprintf("there is no environment %q", app))
	}
	return v, nil
}

// checkApp refuses environments that a request may not use, before it is answered.
func (s *Server) checkApp(api huma.API) func(huma.Context, func(huma.Context)) {
	return func(c huma.Context, next func(huma.Context)) {
		if _, err := s.find(c.Context(), c.Param("app_id")); err != nil {
			refused := problem(err)
			_ = huma.WriteErr(api, c, refused.GetStatus(), refused.Error())
			return
		}
		next(c)
	}
}

// problem gives an error its status.
func problem(err error) huma.StatusError {
	if known, is := errors.AsType[huma.StatusError](err); is {
		return known
	}
	refused, isRefused := errors.AsType[*tasks.EnvironmentRefusal](err)
	_, isUsage := errors.AsType[usage.Error](err)
	switch {
	case isRefused && refused.Why == environment.Unknown:
		return huma.Error404NotFound(err.Error())
	case isRefused && (refused.Why == environment.Pinned || refused.Why == environment.Busy):
		return huma.Error409Conflict(err.Error())
	case isRefused || isUsage:
		return huma.Error422UnprocessableEntity(err.Error())
	}
	return huma.Error500InternalServerError(err.Error())
}
