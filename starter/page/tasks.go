package page

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-62bf7108/unwind/starter/bearer"
	"github.com/seed-62bf7108/unwind/starter/tasks"
)

// tasksPage is the page of all tasks.
type tasksPage struct {
	Tasks         []listedTask
	Agent, Status string
	Statuses      []string
	More          string // leads to a longer list; empty: it is whole
	Unknown       []string
}

// listedTask is a task in the list, with its state in a word or two.
type listedTask struct {
	tasks.Listed

	State string
}

const (
	// manyTasks is how many tasks a list has at first, and maxTasks how many at most: who looks for an
	// older one filters.
	manyTasks = 50
	maxTasks  = 1000
)

func (s *Server) showTasks(w http.ResponseWriter, r *http.Request, p bearer.Person) {
	f := tasks.Filter{Agent: strings.TrimSpace(r.FormValue("agent")), Limit: manyTasks, Brief: true}
	if status := r.FormValue("status"); slices.Contains(tasks.Statuses, status) {
		f.Status = status
	}
	if n, err := strconv.Atoi(r.FormValue("limit")); err == nil {
		f.Limit = min(max(n, 1), maxTasks)
	}
	list, err := s.Client.List(r.Context(), f)
	if err != nil {
		s.fail(w, r, p, http.StatusBadGateway, err.Error())
		return
	}
	body := tasksPage{Agent: f.Agent, Status: f.Status, Statuses: tasks.Statuses, Unknown: list.Unknown}
	for _, t := range list.Tasks {
		body.Tasks = append(body.Tasks, listedTask{t, stateOf(t)})
	}
	if list.More && f.Limit < maxTasks {
		query := r.URL.Query()
		query.Set("limit", strconv.Itoa(min(2*f.Limit, maxTasks)))
		body.More = "/tasks?" + query.Encode()
	}
	s.render(w, r, http.StatusOK, "tasks", view{Title: "Tasks", Person: p, Body: body})
}

// stateOf is how a task stands.
func stateOf(t tasks.Listed) string {
	switch {
	case t.Now != "":
		return t.Now
	case len(t.TakenBack) > 0:
		return "taken back"
	case t.Ended != "":
		return t.Ended
	case t.Paused:
		return "paused"
	case t.Stuck:
		return "stuck"
	case t.Parked != "":
		return "waits for a person"
	case t.Gate != "":
		return "waits at a gate"
	}
	return t.Status
}
