package faults

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
)

// script is how the service misbehaves in one trial. Steps are named; an empty name is none.
type script struct {
	// lies acts and then answers an error, at each call.
	lies string
	// hangs acts and then never answers its first times calls.
	hangs string
	times int
	// refuses is refused for good, and does not act.
	refuses string
	// down is the step whose taking back fails its first downFor calls.
	down    string
	downFor int
}

// addition is what a step asks the service to add, or to take back. Trial and step name a counter.
type addition struct {
	Trial string `json:"trial"`
	Step  string `json:"step"`
	// Key makes it once: the journal of the service is by key.
	Key string `json:"key"`
}

// removal is the response to taking an addition back.
type removal struct {
	// Had says that there was an addition to take back.
	Had bool `json:"had"`
	// Value is the counter's new value.
	Value int `json:"value"`
}

// keyState is what the journal says of a key.
type keyState string

const (
	untouched keyState = ""
	added     keyState = "added"
	takenBack keyState = "taken back"
	voided    keyState = "voided" // taken back before it was added: it is never added
)

// counters is a service with a journal, in which what is left over can be counted. It outlives all
// workers.
type counters struct {
	server *httptest.Server
	id     string // of the journal

	mu      sync.Mutex
	journal map[string]keyState
	values  map[string]map[string]int // by trial and step
	acted   map[string]map[string]int // the same: how often it was added to
	scripts map[string]script         // by trial
	calls   map[string]int            // by trial, path and step
	caught  map[string]chan struct{}  // by trial: see catch
}

func newCounters() *counters {
	c := &counters{
		id: rand.Text(), journal: map[string]keyState{}, values: map[string]map[string]int{},
		acted:   map[string]map[string]int{},
		scripts: map[string]script{}, calls: map[string]int{}, caught: map[string]chan struct{}{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /journal", func(w http.ResponseWriter, _ *http.Request) { answer(w, c.id) })
	mux.HandleFunc("POST /add", c.handle(c.serveAdd))
	mux.HandleFunc("POST /take-back", c.handle(c.takeBack))
	mux.HandleFunc("POST /look", c.handle(c.serveLook))
	c.server = httptest.NewServer(mux)
	return c
}

func (c *counters) close() {
	c.server.CloseClientConnections()
	c.server.Close()
}

// openTrial makes the counters of a trial, and how they misbehave.
func (c *counters) openTrial(trial string, s script) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.values[trial], c.acted[trial] = map[string]int{}, map[string]int{}
	c.scripts[trial], c.caught[trial] = s, make(chan struct{}, s.times+s.downFor)
}

// catch yields one for each call of the trial that has acted and hangs, or whose taking back is
// down.
func (c *counters) catch(trial string) chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.caught[trial]
}

// count is how often a step of a trial has added, and by how much its counter is off now.
func (c *counters) count(trial, step string) (acted, value int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.acted[trial][step], c.values[trial][step]
}

func answer(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) } // who does not read it has gone

func (c *counters) handle(do func(http.ResponseWriter, *http.Request, addition, script, int)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var a addition
		if err := json.NewDecoder(r.Body).Decode(&a); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		call := a.Trial + r.URL.Path + " " + a.Step
		c.calls[call]++
		s, n := c.scripts[a.Trial], c.calls[call]
		c.mu.Unlock()
		do(w, r, a, s, n)
	}
}

// serveAdd adds one, once per key; n is the number of the step's call.
func (c *counters) serveAdd(w http.ResponseWriter, r *http.Request, a addition, s script, n int) {
	if a.Step == s.refuses {
		http.Error(w, "refused: there is no such thing", http.StatusUnprocessableEntity)
		return
	}
	if state := c.addOnce(a); state != added {
		http.Error(w, "the key is "+string(state), http.StatusConflict)
		return
	}
	if a.Step == s.hangs && n <= s.times {
		c.catch(a.Trial) <- struct{}{}
		<-r.Context().Done()
		return
	}
	if a.Step == s.lies {
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	answer(w, struct{}{})
}

func (c *counters) addOnce(a addition) keyState {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.journal[a.Key] == untouched {
		c.journal[a.Key] = added
		c.values[a.Trial][a.Step]++
		c.acted[a.Trial][a.Step]++
	}
	return c.journal[a.Key]
}

// takeBack takes an addition back, and makes one that comes later impossible.
func (c *counters) takeBack(w http.ResponseWriter, _ *http.Request, a addition, s script, n int) {
	if a.Step == s.down && n <= s.downFor {
		c.catch(a.Trial) <- struct{}{}
		http.Error(w, fmt.Sprintf("down, for the time %d", n), http.StatusServiceUnavailable)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.journal[a.Key] {
	case added:
		c.journal[a.Key] = takenBack
		c.values[a.Trial][a.Step]--
	case untouched:
		c.journal[a.Key] = voided
	case takenBack, voided:
	}
	answer(w, removal{Had: c.journal[a.Key] == takenBack, Value: c.values[a.Trial][a.Step]})
}

func (c *counters) serveLook(w http.ResponseWriter, _ *http.Request, a addition, _ script, _ int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	answer(w, c.journal[a.Key])
}
