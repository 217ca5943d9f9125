package page

import (
	"crypto/rand"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/seed-62bf7108/unwind/starter/bearer"
)

const (
	sessionCookie = "unwind-session"
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
	token bearer.Digest
	until time.Time
}

func newSessions() *sessions {
	return &sessions{all: map[string]session{}, tries: map[string]*rate.Limiter{}}
}

// mayTry reports whether somebody at an address may try another token now.
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

func (s *sessions) open(token bearer.Digest, now time.Time) (id string) {
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
	s.all[id] = session{token, now.Add(sessionLimit)}
	return id
}

func (s *sessions) find(id string, now time.Time) (token bearer.Digest, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, found := s.all[id]
	return one.token, found && now.Before(one.until)
}

func (s *sessions) close(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, id)
}

// person is who sends a request; false if that is not known.
func (s *Server) person(r *http.Request) (bearer.Person, bool) {
	if len(s.Tokens) == 0 {
		return s.Anybody, true
	}
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return bearer.Person{}, false
	}
	token, found := s.sessions.find(cookie.Value, time.Now())
	if !found {
		return bearer.Person{}, false
	}
	return s.Tokens.Find(token)
}

func (s *Server) showSignIn(w http.ResponseWriter, r *http.Request) {
	s.render(w, r, http.StatusOK, "signin", view{Title: "Sign in"})
}

func (s *Server) signIn(w http.ResponseWriter, r *http.Request) {
	if !s.sessions.mayTry(r.RemoteAddr) {
		w.Header().Set("Retry-After", "1")
		s.render(w, r, http.StatusTooManyRequests, "signin",
			view{Title: "Sign in", Problem: "Too many tries; wait a second."})
		return
	}
	token := bearer.DigestOf(r.PostFormValue("token"))
	if _, known := s.Tokens.Find(token); !known {
		s.render(w, r, http.StatusUnauthorized, "signin",
			view{Title: "Sign in", Problem: "This server does not know that token."})
		return
	}
	http.SetCookie(w, cookieOf(r, sessionCookie, s.sessions.open(token, time.Now()), int(sessionLimit.Seconds())))
	http.Redirect(w, r, "/", http.StatusSeeOther)
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
