package page

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/seed-62bf7108/unwind/starter/bearer"
	"github.com/seed-62bf7108/unwind/starter/oidc"
)

const (
	sessionCookie = "unwind-session"
	// attemptCookie, with a state behind it, has a sign-in that has begun at the provider.
	attemptCookie = "unwind-signin-"
	// attemptLimit is how long a person has at the provider.
	attemptLimit = 10 * time.Minute
	// sessionLimit is how long somebody stays signed in.
	sessionLimit = 12 * time.Hour
	// maxSessions is how many are signed in at once; then the one who came first has to sign in again.
	maxSessions = 10_000
)

// sessions are who is signed in. A server that starts again knows nobody.
type sessions struct {
	mu    sync.Mutex
	all   map[string]session
	tries map[string]*rate.Limiter // by address
}

type session struct {
	person bearer.Person
	until  time.Time
}

func newSessions() *sessions {
	return &sessions{all: map[string]session{}, tries: map[string]*rate.Limiter{}}
}

// mayTry reports whether somebody at an address may try to sign in again now.
func (s *sessions) mayTry(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.tries) >= maxSessions { // somebody has many addresses
		clear(s.tries)
	}
	if s.tries[host] == nil {
		s.tries[host] = rate.NewLimiter(rate.Every(time.Second), 10)
	}
	return s.tries[host].Allow()
}

func (s *sessions) open(p bearer.Person, now time.Time) (id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	oldest := ""
	for id, one := range s.all {
		if now.After(one.until) {
			delete(s.all, id)
		} else if oldest == "" || one.until.Before(s.all[oldest].until) {
			oldest = id
		}
	}
	if len(s.all) >= maxSessions {
		delete(s.all, oldest)
	}
	id = rand.Text()
	s.all[id] = session{p, now.Add(sessionLimit)}
	return id
}

func (s *sessions) find(id string, now time.Time) (p bearer.Person, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, found := s.all[id]
	return one.person, found && now.Before(one.until)
}

func (s *sessions) close(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, id)
}

// person is who sends a request; false if that is not known.
func (s *Server) person(r *http.Request) (bearer.Person, bool) {
	if s.Anybody != nil {
		return *s.Anybody, true
	}
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return bearer.Person{}, false
	}
	return s.sessions.find(cookie.Value, time.Now())
}

// signInPage has the ways to sign in.
type signInPage struct {
	// To is the page that the person wants to see.
	To               string
	Tokens, Provider bool
}

func (s *Server) showSignIn(w http.ResponseWriter, r *http.Request) {
	s.askToSignIn(w, r, http.StatusOK, "")
}

func (s *Server) askToSignIn(w http.ResponseWriter, r *http.Request, status int, problem string) {
	s.render(w, r, status, "signin", view{Title: "Sign in", Problem: problem,
		Body: signInPage{To: ownPath(r.FormValue("to")), Tokens: len(s.Tokens) > 0, Provider: s.Provider != nil}})
}

// maxPath is how long an address may be that a cookie has room for.
const maxPath = 2 << 10

// ownPath is a page of this server, and the first one in the place of all that is none.
func ownPath(to string) string {
	u, err := url.Parse(to)
	isOwn := err == nil && u.Scheme == "" && u.Host == "" && strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "//")
	if !isOwn || len(to) > maxPath || strings.Contains(to, `\`) {
		return "/"
	}
	return to
}

// mayTry reports whether the sender may try to sign in again now, and otherwise answers.
func (s *Server) mayTry(w http.ResponseWriter, r *http.Request) bool {
	if s.sessions.mayTry(r.RemoteAddr) {
		return true
	}
	w.Header().Set("Retry-After", "1")
	s.askToSignIn(w, r, http.StatusTooManyRequests, "Too many tries; wait a second.")
	return false
}

func (s *Server) signIn(w http.ResponseWriter, r *http.Request) {
	if !s.mayTry(w, r) {
		return
	}
	p, known := s.Tokens.Find(bearer.DigestOf(r.PostFormValue("token")))
	if !known {
		s.askToSignIn(w, r, http.StatusUnauthorized, "This server does not know that token.")
		return
	}
	s.letIn(w, r, p, ownPath(r.PostFormValue("to")))
}

func (s *Server) letIn(w http.ResponseWriter, r *http.Request, p bearer.Person, to string) {
	http.SetCookie(w, cookieOf(r, sessionCookie, s.sessions.open(p, time.Now()), int(sessionLimit.Seconds())))
	http.Redirect(w, r, to, http.StatusSeeOther) //nolint:gosec // ownPath lets no other server through
}

// attempt is a sign-in that has begun at the provider. The browser that has begun it keeps it in a
// cookie that no script reads; this server, which anybody may ask to begin one, keeps nothing.
type attempt struct {
	oidc.Attempt

	// To is the page that the person wants to see.
	To string
}

// goToProvider sends a person to the provider.
func (s *Server) goToProvider(w http.ResponseWriter, r *http.Request) {
	state := rand.Text()
	begun, to := s.Provider.Begin(state)
	kept, _ := json.Marshal(attempt{begun, ownPath(r.FormValue("to"))}) // texts only
	http.SetCookie(w, cookieOf(r, attemptCookie+state, base64.RawURLEncoding.EncodeToString(kept),
		int(attemptLimit.Seconds())))
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// takeAttempt takes the sign-in that has begun under a state in the browser of a request.
func takeAttempt(w http.ResponseWriter, r *http.Request, state string) (a attempt, found bool) {
	cookie, err := r.Cookie(attemptCookie + state)
	if state == "" || err != nil {
		return a, false
	}
	http.SetCookie(w, cookieOf(r, attemptCookie+state, "", -1))
	kept, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	return a, err == nil && json.Unmarshal(kept, &a) == nil
}

// comeBack lets in whom the provider has sent back, into the browser that has gone there: otherwise
// somebody could sign in a person as somebody else.
func (s *Server) comeBack(w http.ResponseWriter, r *http.Request) {
	begun, found := takeAttempt(w, r, r.FormValue("state"))
	if !found {
		s.askToSignIn(w, r, http.StatusUnauthorized, "This sign-in was not begun here, or took too long; try again.")
		return
	}
	if refused := r.FormValue("error"); refused != "" {
		s.askToSignIn(w, r, http.StatusUnauthorized,
			"The provider has not signed you in: "+cmp.Or(r.FormValue("error_description"), refused))
		return
	}
	p, err := s.Provider.Finish(r.Context(), begun.Attempt, r.FormValue("code"))
	switch _, isStranger := errors.AsType[oidc.StrangerError](err); {
	case isStranger:
		s.askToSignIn(w, r, http.StatusForbidden, err.Error())
	case err != nil:
		s.askToSignIn(w, r, http.StatusUnauthorized, err.Error())
	default:
		s.letIn(w, r, p, ownPath(begun.To))
	}
}

func (s *Server) signOut(w http.ResponseWriter, r *http.Request) {
	if cookie, err := r.Cookie(sessionCookie); err == nil {
		s.sessions.close(cookie.Value)
	}
	http.SetCookie(w, cookieOf(r, sessionCookie, "", -1))
	http.Redirect(w, r, "/signin", http.StatusSeeOther)
}

// cookieOf makes a cookie that no script reads. A link from elsewhere, such as from a notice, sends
// it; a form or a script from elsewhere does not. Behind a proxy with TLS it travels encrypted only.
func cookieOf(r *http.Request, name, value string, age int) *http.Cookie {
	isTLS := r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https"
	return &http.Cookie{ //nolint:gosec // without TLS it has to travel as it is
		Name: name, Value: value, Path: "/", MaxAge: age, HttpOnly: true, Secure: isTLS, SameSite: http.SameSiteLaxMode,
	}
}
