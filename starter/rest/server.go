package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
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
	// Tokens are those of owners of environments.
	Tokens bearer.Tokens
	// Anybody is whoever sends a request, where no token is asked for; nil: one always is.
	Anybody *bearer.Person
	// Queue is the shared task queue whose standing approvals it shows.
	Queue string
	// Version is that of the program.
	Version string
}

// Handler answers requests.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	config := huma.DefaultConfig("Unwind", s.Version)
	// no page whose scripts come from elsewhere, and no links in each answer
	config.DocsPath, config.SchemasPath, config.CreateHooks = "", "", nil
	config.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", nameSchema)
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer"}}
	if s.Anybody == nil {
		config.Security = []map[string][]string{{"token": {}}}
	}
	api := humago.New(mux, config)
	api.UseMiddleware(s.authenticate(api))
	s.register(api)
	s.registerTasks(api)
	s.registerAllowances(api)
	guarded := http.NewCrossOriginProtection().Handler(mux)
	if s.Anybody != nil {
		return httpserve.RefuseOtherHosts(guarded)
	}
	return guarded
}

// nameSchema names the schema of a type. What belongs to environments says so: tasks have steps as
// well.
func nameSchema(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.PkgPath() == reflect.TypeFor[environment.View]().PkgPath() {
		return "Environment" + name
	}
	return name
}

// personKey is that of whoever bears the token in a request's context.
type personKey struct{}

// authenticate finds whose a token is. A viewer only looks.
func (s *Server) authenticate(api huma.API) func(huma.Context, func(huma.Context)) {
	return func(c huma.Context, next func(huma.Context)) {
		if s.Anybody != nil {
			next(huma.WithValue(c, personKey{}, *s.Anybody))
			return
		}
		borne, _ := strings.CutPrefix(c.Header("Authorization"), "Bearer ")
		p, known := s.Tokens.Find(bearer.DigestOf(borne))
		switch {
		case !known:
			c.SetHeader("WWW-Authenticate", "Bearer")
			_ = huma.WriteErr(api, c, http.StatusUnauthorized, "give a bearer token that this server knows")
		case c.Method() != http.MethodGet && !p.MayDecide():
			refuseRole(api, c, p)
		default:
			next(huma.WithValue(c, personKey{}, p))
		}
	}
}

// checkOperator refuses whoever only decides what others have begun.
func checkOperator(api huma.API) func(huma.Context, func(huma.Context)) {
	return func(c huma.Context, next func(huma.Context)) {
		if p := personOf(c.Context()); c.Method() != http.MethodGet && !p.MayOperate() {
			refuseRole(api, c, p)
			return
		}
		next(c)
	}
}

func refuseRole(api huma.API, c huma.Context, p bearer.Person) {
	_ = huma.WriteErr(api, c, http.StatusForbidden, "the role of this token, "+string(p.Role)+", does not let it do this")
}

// personOf is who sends a request.
func personOf(ctx context.Context) bearer.Person {
	p, _ := ctx.Value(personKey{}).(bearer.Person) // authenticate has put it there
	return p
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
