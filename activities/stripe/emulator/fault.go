package emulator

import (
	"net/http"
	"path"
	"strconv"
	"time"
)

// Effect is what a Fault does to a request.
type Effect int

// The effects.
const (
	// DropBefore closes the connection before anything was done.
	DropBefore Effect = iota + 1
	// DropAfter does what was asked, saves the answer, and closes the connection without sending it.
	DropAfter
	// FailAfter does what was asked, and answers 500, which is what its key then holds.
	FailAfter
	// FailBefore does nothing and answers 500, which is what its key then holds.
	FailBefore
	// RateLimit does nothing and answers 429 with Retry-After.
	RateLimit
	// Decline answers 402 card_declined without doing anything.
	Decline
	// Garble answers 502 with a page of HTML, as a proxy would, without doing anything.
	Garble
	// Hold does nothing while the client waits; Deliver hands the request on, when the client is long gone.
	Hold
	// Wait keeps the request, and its key in use, until the channel Until is closed; then it is served as usual.
	Wait
)

// Fault breaks the requests that it matches.
type Fault struct {
	// On says which.
	On func(Received) bool
	// Do says how.
	Do Effect
	// Times is how often, then never again; zero: always.
	Times int
	// RetryAfter is what RateLimit answers, in whole seconds.
	RetryAfter time.Duration
	// Until ends a Wait.
	Until <-chan struct{}
	// Seen is called for each request that it breaks, before it does.
	Seen func(Received)
}

// Received is what a Fault may look at.
type Received struct{ Method, Path, Key string }

// Request matches a method and a path pattern, in which * stands for one element.
func Request(method, pattern string) func(Received) bool {
	return func(r Received) bool {
		ok, _ := path.Match(pattern, r.Path)
		return ok && r.Method == method
	}
}

// Inject adds a fault. Of several that match, the one injected first acts.
func (e *Emulator) Inject(f Fault) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if f.Times == 0 {
		f.Times = -1
	}
	e.faults = append(e.faults, &f)
}

// Mend takes away all faults.
func (e *Emulator) Mend() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.faults = nil
}

// Deliver hands on every request that was held, in order, and returns the status that each would have been answered.
func (e *Emulator) Deliver() []int {
	e.mu.Lock()
	held := e.held
	e.held = nil
	e.mu.Unlock()
	var statuses []int
	for _, c := range held {
		statuses = append(statuses, e.act(c, nil).status)
	}
	return statuses
}

// Held is how many requests wait to be delivered.
func (e *Emulator) Held() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.held)
}

func (e *Emulator) faultFor(c *call) *Fault {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, f := range e.faults {
		if f.Times != 0 && f.On(Received{c.method, c.path, c.key}) {
			f.Times = max(f.Times-1, -1)
			return f
		}
	}
	return nil
}

// serve answers a call, or breaks it.
func (e *Emulator) serve(w http.ResponseWriter, r *http.Request, c *call, f *Fault) {
	if f == nil {
		e.write(w, e.act(c, nil))
		return
	}
	if f.Seen != nil {
		f.Seen(Received{c.method, c.path, c.key})
	}
	switch f.Do {
	case DropBefore:
		drop()
	case DropAfter:
		e.act(c, nil)
		drop()
	case RateLimit:
		a := (&apiError{status: http.StatusTooManyRequests, kind: "invalid_request_error", code: "rate_limit", message: "Too many requests"}).answer()
		a.headers = map[string]string{"Retry-After": strconv.Itoa(int(f.RetryAfter.Seconds()))}
		e.write(w, a)
	case Garble:
		e.write(w, answer{status: http.StatusBadGateway, body: []byte("<html><body>Bad Gateway</body></html>"), headers: map[string]string{"Content-Type": "text/html"}})
	case Hold:
		e.mu.Lock()
		e.held = append(e.held, c)
		e.mu.Unlock()
		select {
		case <-r.Context().Done():
		case <-e.stop:
		}
		drop()
	default: // FailAfter, FailBefore, Decline, Wait: they have to do with what the key holds
		e.write(w, e.act(c, f))
	}
}

// drop closes the connection without an answer.
func drop() { panic(http.ErrAbortHandler) }
