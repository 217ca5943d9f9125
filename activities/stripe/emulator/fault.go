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
	// DropBefore closes the connection without acting.
	DropBefore Effect = iota + 1
	// DropAfter acts, saves the answer, and closes the connection without sending it.
	DropAfter
	// FailAfter acts, and answers and saves a status 500.
	FailAfter
	// FailBefore answers and saves a status 500 without acting.
	FailBefore
	// RateLimit answers 429 with Retry-After without acting.
	RateLimit
	// Decline answers 402 card_declined without acting.
	Decline
	// Garble answers 502 with an HTML page, as a proxy would, without acting.
	Garble
	// Hold keeps the request, while the client waits in vain, until Deliver carries it out.
	Hold
	// Wait keeps the request, with its key in use, until the channel Until is closed; then it is
	// served as usual.
	Wait
)

// Fault breaks the requests that it matches.
type Fault struct {
	// On selects requests.
	On func(Received) bool
	// Do is what happens to them.
	Do Effect
	// Times is how many requests are broken; zero means all.
	Times int
	// RetryAfter is what RateLimit answers, rounded down to seconds.
	RetryAfter time.Duration
	// Until ends a Wait.
	Until <-chan struct{}
	// Seen is called for each request before it is broken, and for a Wait once its key is in use, by
	// this request or another one.
	Seen func(Received)
}

// Received is what a Fault sees of a request.
type Received struct{ Method, Path, Key string }

// Request matches a method and a path pattern, in which * stands for one path element.
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

// Mend removes all faults.
func (e *Emulator) Mend() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.faults = nil
}

// Deliver carries out every held request, in order, and returns the statuses of the answers that
// nobody receives.
func (e *Emulator) Deliver() []int {
	e.mu.Lock()
	held := e.held
	e.held = nil
	e.mu.Unlock()
	var statuses []int
	for _, c := range held {
		statuses = append(statuses, e.answerCall(c, nil).status)
	}
	return statuses
}

// Held returns how many requests wait to be delivered.
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

func (f *Fault) seen(c *call) {
	if f.Seen != nil {
		f.Seen(Received{c.method, c.path, c.key})
	}
}

// seenWaiting calls the Seen of a Wait, without the lock.
func (e *Emulator) seenWaiting(c *call, f *Fault) {
	if f == nil || f.Do != Wait {
		return
	}
	e.mu.Unlock()
	defer e.mu.Lock()
	f.seen(c)
}

// serve answers a call, or breaks it.
func (e *Emulator) serve(w http.ResponseWriter, r *http.Request, c *call, f *Fault) {
	if f == nil {
		e.writeAnswer(w, e.answerCall(c, nil))
		return
	}
	if f.Do != Wait {
		f.seen(c)
	}
	switch f.Do {
	case DropBefore:
		dropConnection()
	case DropAfter:
		e.answerCall(c, nil)
		dropConnection()
	case RateLimit:
		a := (&apiError{status: http.StatusTooManyRequests, kind: "invalid_request_error", code: "rate_limit",
			message: "Too many requests"}).answer()
		a.headers = map[string]string{"Retry-After": strconv.Itoa(int(f.RetryAfter.Seconds()))}
		e.writeAnswer(w, a)
	case Garble:
		e.writeAnswer(w,
			answer{status: http.StatusBadGateway, body: []byte("<html><body>Bad Gateway</body></html>"),
				headers: map[string]string{"Content-Type": "text/html"}})
	case Hold:
		e.mu.Lock()
		e.held = append(e.held, c)
		e.mu.Unlock()
		select {
		case <-r.Context().Done():
		case <-e.stop:
		}
		dropConnection()
	default: // FailAfter, FailBefore, Decline, Wait: they affect what the key holds
		e.writeAnswer(w, e.answerCall(c, f))
	}
}

// dropConnection closes the connection without an answer.
func dropConnection() { panic(http.ErrAbortHandler) }
