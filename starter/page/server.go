package page

import (
	"context"
	"embed"
	"io/fs"
	"net/http"
	"net/url"
	"strings"

	"github.com/seed-62bf7108/unwind/internal/httpserve"
	"github.com/seed-62bf7108/unwind/starter/bearer"
	"github.com/seed-62bf7108/unwind/starter/oidc"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/worker/signers"
)

// Server serves the pages of a namespace.
type Server struct {
	// Client reaches the tasks.
	Client *tasks.Client
	// Tokens are those of persons who sign in with one.
	Tokens bearer.Tokens
	// Provider knows persons who sign in there; nil: none does.
	Provider *oidc.Provider
	// Queue is that of the workers whose standing approvals are shown.
	Queue string
	// Signers are those whose passkeys sign decisions here; nil: nobody signs in a browser.
	Signers *signers.Signers
	// Anybody is whoever looks, where nobody signs in; nil: everybody has to.
	Anybody *bearer.Person

	inbox    *inbox
	sessions *sessions
	streams  chan struct{}
}

// maxStreams is how many pages are kept up to date at once; others show what was when they were
// loaded.
const maxStreams = 200

//go:embed assets
var assets embed.FS

// Handler answers the requests of browsers. It looks for what waits until ctx ends.
func (s *Server) Handler(ctx context.Context) http.Handler {
	s.inbox, s.sessions, s.streams = newInbox(s.Client), newSessions(), make(chan struct{}, maxStreams)
	go s.inbox.watch(ctx)
	mux := http.NewServeMux()
	files, _ := fs.Sub(assets, "assets") // it is there: it was embedded
	mux.Handle("GET /assets/", http.StripPrefix("/assets/", http.FileServerFS(files)))
	mux.HandleFunc("GET /signin", s.showSignIn)
	mux.HandleFunc("POST /signin", s.signIn)
	if s.Provider != nil {
		mux.HandleFunc("GET /signin/provider", s.goToProvider)
		mux.HandleFunc("GET "+oidc.CallbackPath, s.comeBack)
	}
	mux.HandleFunc("POST /signout", s.signOut)
	type handler func(http.ResponseWriter, *http.Request, bearer.Person)
	may := func(pattern string, allowed func(bearer.Person) bool, do handler) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			p, known := s.person(r)
			switch {
			case !known:
				http.Redirect(w, r, signInFor(r), http.StatusSeeOther)
			case !allowed(p):
				s.fail(w, r, p, http.StatusForbidden, "your role, "+string(p.Role)+", does not let you do this")
			default:
				do(w, r, p)
			}
		})
	}
	all := func(bearer.Person) bool { return true }
	may("GET /{$}", all, s.showInbox)
	may("GET /tasks", all, s.showTasks)
	may("GET /tasks/{task}", all, s.showTask)
	may("GET /tasks/{task}/steps/{step}", all, s.showStep)
	may("GET /tasks/{task}/trace", all, s.showTrace)
	may("GET /allowances", all, s.showAllowances)
	may("GET /stream", all, s.stream)
	may("POST /decide", bearer.Person.MayDecide, s.decideMany)
	may("POST /tasks/{task}/steps/{step}", bearer.Person.MayDecide, s.decide)
	may("POST /allowances/{id}", bearer.Person.MayDecide, s.revoke)
	if s.Signers != nil {
		may("POST /tasks/{task}/steps/{step}/challenge", bearer.Person.MayDecide, s.challenge)
		may("GET /passkey", bearer.Person.MayDecide, s.showPasskey)
		may("POST /passkey", bearer.Person.MayDecide, s.enroll)
	}
	may("POST /tasks/{task}", bearer.Person.MayOperate, s.operate)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		p, _ := s.person(r)
		s.fail(w, r, p, http.StatusNotFound, "there is no such page")
	})
	guarded := http.NewCrossOriginProtection().Handler(secure(mux))
	if s.Anybody != nil {
		return httpserve.RefuseOtherHosts(guarded)
	}
	return guarded
}

// signInFor is where somebody signs in who then wants to see the page that r asks for.
func signInFor(r *http.Request) string {
	if r.Method != http.MethodGet || r.URL.Path == "/" || r.URL.Path == "/stream" {
		return "/signin"
	}
	return "/signin?" + url.Values{"to": {r.URL.RequestURI()}}.Encode()
}

// contentPolicy lets a page load what is served beside it, and nothing else.
var contentPolicy = strings.Join([]string{"default-src 'none'", "style-src 'self'", "script-src 'self'",
	"img-src 'self'", "connect-src 'self'", "form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'"}, "; ")

// secure says to the browser what a page may do, and that nothing of it is to be stored.
func secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		next.ServeHTTP(w, r)
	})
}

// maxForm is how large a form may be.
const maxForm = 1 << 20
