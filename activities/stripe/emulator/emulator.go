package emulator

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Options configure an Emulator.
type Options struct {
	// Now is the emulator's clock. Defaults to time.Now.
	Now func() time.Time
	// Accounts names the account of each API key. Every other key that starts with "sk_test_" or
	// "rk_test_" belongs to Account.
	Accounts map[string]string
	// Account is the id of the account of most keys. Defaults to "acct_emulator".
	Account string
}

// Emulator is a stand-in for the Stripe API. It is safe for concurrent use.
type Emulator struct {
	options Options
	stop    chan struct{}

	mu       sync.Mutex
	accounts map[string]*account
	counters Counters
	faults   []*Fault
	held     []*call
	lastID   int
}

// account is what one Stripe account holds.
type account struct {
	id      string
	objects map[string]*object
	order   []*object
	keys    map[string]*keyRecord
}

// New makes an Emulator without objects.
func New(options Options) *Emulator {
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Account == "" {
		options.Account = "acct_emulator"
	}
	return &Emulator{options: options, accounts: map[string]*account{}, stop: make(chan struct{})}
}

// Server is a running Emulator.
type Server struct {
	// URL is the server's base URL: "http://127.0.0.1:4242".
	URL    string
	em     *Emulator
	server *http.Server
}

// Start serves the emulator on a TCP address; port 0 means a free one.
func (e *Emulator) Start(address string) (*Server, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("stripe emulator: %w", err)
	}
	s := &Server{URL: "http://" + l.Addr().String(), em: e,
		server: &http.Server{Handler: e, ReadHeaderTimeout: 10 * time.Second}}
	go s.server.Serve(l) //nolint:errcheck // ends with ErrServerClosed, at Close
	return s, nil
}

// Close stops the server, and ends every open request.
func (s *Server) Close() error {
	close(s.em.stop)
	return s.server.Close()
}

// call is one request, read in full so that it can be answered after its connection is gone.
type call struct {
	account string
	method  string
	path    string
	form    url.Values
	key     string
}

// answer is the response to a call; save says that its key keeps it.
type answer struct {
	status   int
	body     []byte
	headers  map[string]string
	replayed bool
	save     bool
}

// ServeHTTP serves the API below /v1/, and the emulator's own State at /_emulator.
func (e *Emulator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/_emulator" {
		e.serveState(w)
		return
	}
	c, problem := e.readCall(r)
	if problem != nil {
		e.writeAnswer(w, problem.answer())
		return
	}
	e.serve(w, r, c, e.faultFor(c))
}

func (e *Emulator) readCall(r *http.Request) (*call, *apiError) {
	key, _, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), " ")
	id := e.options.Accounts[key]
	if id == "" {
		if !strings.HasPrefix(key, "sk_test_") && !strings.HasPrefix(key, "rk_test_") {
			return nil, &apiError{status: http.StatusUnauthorized, kind: "invalid_request_error",
				message: "Invalid API Key provided"}
		}
		id = e.options.Account
	}
	if err := r.ParseForm(); err != nil {
		return nil, invalid("", "the body is no form: "+err.Error())
	}
	return &call{account: id, method: r.Method, path: strings.TrimSuffix(r.URL.Path, "/"), form: r.Form,
		key: r.Header.Get("Idempotency-Key")}, nil
}

func (e *Emulator) writeAnswer(w http.ResponseWriter, a answer) {
	e.mu.Lock()
	e.lastID++
	w.Header().Set("Request-Id", fmt.Sprintf("req_%d", e.lastID))
	e.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	for name, value := range a.headers {
		w.Header().Set(name, value)
	}
	if a.replayed {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	w.WriteHeader(a.status)
	w.Write(a.body) //nolint:errcheck // the client has gone
}

// accountFor returns an account's state. The caller holds e.mu.
func (e *Emulator) accountFor(id string) *account {
	a := e.accounts[id]
	if a == nil {
		a = &account{id: id, objects: map[string]*object{}, keys: map[string]*keyRecord{}}
		e.accounts[id] = a
	}
	return a
}

// apiError is an error as the API words it.
type apiError struct {
	status  int
	kind    string
	code    string
	param   string
	message string
	intent  *object
	// unsaved: the request was refused before it began, so its key stays free.
	unsaved bool
}

func (p *apiError) answer() answer {
	body := map[string]any{"type": p.kind, "message": p.message}
	if p.code != "" {
		body["code"] = p.code
	}
	if p.param != "" {
		body["param"] = p.param
	}
	if p.intent != nil {
		body["payment_intent"] = p.intent.fields
	}
	raw, err := json.Marshal(map[string]any{"error": body})
	if err != nil {
		panic(err) // maps of plain values
	}
	return answer{status: p.status, body: raw, save: !p.unsaved}
}

func invalid(param, message string) *apiError {
	return &apiError{status: http.StatusBadRequest, kind: "invalid_request_error", param: param, message: message,
		unsaved: true}
}

func rejected(status int, code, message string) *apiError {
	return &apiError{status: status, kind: "invalid_request_error", code: code, message: message}
}

func missing(what, id string) *apiError {
	return rejected(http.StatusNotFound, "resource_missing", fmt.Sprintf("No such %s: '%s'", what, id))
}
