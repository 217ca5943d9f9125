package page

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/starter/bearer"
)

// streamOf is the address that keeps the page of a request up to date.
func streamOf(r *http.Request) string {
	return "/stream?" + url.Values{"of": {r.URL.RequestURI()}}.Encode()
}

// streamAgain is how often a page is looked at again while somebody has it open, and streamLimit is
// for how long: then the browser asks anew, and its person must still be signed in.
const (
	streamAgain = time.Second
	streamLimit = 10 * time.Minute
)

// stream tells a page what it looks like now, as server-sent events, whenever that is not what it
// shows. The request says what that is.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, p bearer.Person) {
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		http.Error(w, "too many pages are open; this one stays as it was loaded", http.StatusServiceUnavailable)
		return
	}
	of, err := url.ParseRequestURI(r.FormValue("of"))
	if err != nil {
		http.Error(w, "of: it is the address of no page", http.StatusUnprocessableEntity)
		return
	}
	at := r.Clone(r.Context())
	at.URL, at.Form, at.PostForm, at.Method = of, nil, nil, http.MethodGet
	w.Header().Set("Content-Type", "text/event-stream")
	flusher := http.NewResponseController(w)
	ticks, end := time.NewTicker(streamAgain), time.After(streamLimit)
	defer ticks.Stop()
	for shown := cmp.Or(r.Header.Get("Last-Event-ID"), r.FormValue("shown")); ; {
		v, ok := s.viewAt(at, p)
		if !ok {
			return
		}
		if now := v.shown(); now != shown {
			shown = now
			lines := strings.ReplaceAll(string(v.main), "\n", "\ndata: ")
			_, err := fmt.Fprintf(w, "id: %s\ndata: %s\n\n", now, lines) //nolint:gosec // a template has escaped it
			if err != nil || flusher.Flush() != nil {
				return
			}
		}
		select {
		case <-r.Context().Done():
			return
		case <-end:
			return
		case <-ticks.C:
		}
	}
}

// viewAt is the page at an address, with its body; false if it is none that is kept up to date.
func (s *Server) viewAt(r *http.Request, p bearer.Person) (v view, ok bool) {
	name, status := "inbox", http.StatusOK
	parts := strings.Split(strings.Trim(r.URL.EscapedPath(), "/"), "/")
	for i := range parts {
		parts[i], _ = url.PathUnescape(parts[i]) // what is no part of a path names nothing
	}
	switch {
	case r.URL.Path == "/":
		v = s.inboxView(r, p)
	case len(parts) == 2 && parts[0] == "tasks":
		name = "task"
		v, status = s.taskView(r, p, parts[1])
	case len(parts) == 4 && parts[0] == "tasks" && parts[2] == "steps":
		name = "step"
		v, status = s.stepView(r, p, parts[1], parts[3])
		if body, is := v.Body.(stepPage); is && body.Silent != "" { // what is shown may still wait
			return v, false
		}
	default:
		return v, false
	}
	return v, status == http.StatusOK && v.write(name) == nil
}
