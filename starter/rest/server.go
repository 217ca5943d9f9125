package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/seed-62bf7108/unwind/internal/httpserve"
	"github.com/seed-62bf7108/unwind/starter/bearer"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/workflows/environment"
)

// Server serves the environments of a namespace.
type Server struct {
	// Client reaches them.
	Client *tasks.Client
	// Tokens are those of owners of environments. Empty: no token is asked for.
	Tokens bearer.Tokens
	// Version is that of the program.
	Version string
}

// Handler answers requests.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	config := huma.DefaultConfig("Unwind environments", s.Version)
	// no page whose scripts come from elsewhere, and no links in each answer
	config.DocsPath, config.SchemasPath, config.CreateHooks = "", "", nil
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer"}}
	if len(s.Tokens) > 0 {
		config.Security = []map[string][]string{{"token": {}}}
	}
	api := humago.New(mux, config)
	api.UseMiddleware(s.authenticate(api))
	s.register(api)
	guarded := http.NewCrossOriginProtection().Handler(mux)
	if len(s.Tokens) == 0 {
		return httpserve.RefuseOtherHosts(guarded)
	}
	return guarded
}

// personKey is that of whoever bears the token in a request's context.
type personKey struct{}

// authenticate finds whose a token is. Who is no operator only looks.
func (s *Server) authenticate(api huma.API) func(huma.Context, func(huma.Context)) {
	return func(c huma.Context, next func(huma.Context)) {
		if len(s.Tokens) == 0 {
			next(c)
			return
		}
		borne, _ := strings.CutPrefix(c.Header("Authorization"), "Bearer ")
		p, known := s.Tokens.Find(bearer.DigestOf(borne))
		switch {
		case !known:
			c.SetHeader("WWW-Authenticate", "Bearer")
			_ = huma.WriteErr(api, c, http.StatusUnauthorized, "give a bearer token that this server knows")
		case c.Method() != http.MethodGet && !p.MayOperate():
			_ = huma.WriteErr(api, c, http.StatusForbidden, "the role of this token, "+string(p.Role)+", only looks")
		default:
			next(huma.WithValue(c, personKey{}, p))
		}
	}
}

// find finds an environment that the request may use.
func (s *Server) find(ctx context.Context, app string) (environment.View, error) {
	v, err := s.Client.Environment(ctx, app)
	if err != nil {
		return v, problem(err)
	}
	if p, asked := ctx.Value(personKey{}).(bearer.Person); asked && v.Document.Owner != p.Name {
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
