package page

import (
	"net/http"

	"github.com/seed-62bf7108/unwind/starter/bearer"
	"github.com/seed-62bf7108/unwind/starter/tasks"
)

// tracePage is the page of what has happened in a task.
type tracePage struct {
	Run    tasks.Run
	Events []tasks.Event
}

func (s *Server) showTrace(w http.ResponseWriter, r *http.Request, p bearer.Person) {
	t, err := s.Client.Describe(r.Context(), r.PathValue("task"))
	body := tracePage{Run: t}
	if err == nil {
		body.Events, err = s.Client.Trace(r.Context(), t)
	}
	if err != nil {
		s.fail(w, r, p, statusOf(err), err.Error())
		return
	}
	s.render(w, r, http.StatusOK, "trace", view{Title: "Trace of " + t.ID, Person: p, Body: body})
}
