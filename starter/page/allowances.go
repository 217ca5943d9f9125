package page

import (
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/starter/bearer"
	"github.com/seed-62bf7108/unwind/starter/render"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// allowancesPage is the page of what is approved ahead.
type allowancesPage struct {
	Given []givenAllowance
	// Command gives one: it may have to be signed, and a browser has no SSH key.
	Command string
}

// givenAllowance is a standing approval, with what a person is told of it.
type givenAllowance struct {
	activities.GivenAllowance

	By   string // and whether that is proved
	Over string // why it no longer counts; empty while it does
}

func (s *Server) showAllowances(w http.ResponseWriter, r *http.Request, p bearer.Person) {
	s.renderAllowances(w, r, p, http.StatusOK, "")
}

func (s *Server) renderAllowances(w http.ResponseWriter, r *http.Request, p bearer.Person, status int, problem string) {
	given, err := s.Client.Allowances(r.Context(), s.Queue)
	if err != nil {
		s.fail(w, r, p, http.StatusBadGateway, err.Error())
		return
	}
	body := allowancesPage{Command: s.Client.StarterCommand() + " allow"}
	for _, g := range given {
		body.Given = append(body.Given, givenAllowance{g, render.SaidBy(g), g.Over(time.Now())})
	}
	s.render(w, r, status, "allowances", view{Title: "Standing approvals", Person: p, Problem: problem, Body: body})
}

// revoke revokes a standing approval.
func (s *Server) revoke(w http.ResponseWriter, r *http.Request, p bearer.Person) {
	d := protocol.Disallowing{ID: r.PathValue("id"), Who: p.Name, Why: strings.TrimSpace(r.PostFormValue("why"))}
	if n := utf8.RuneCountInString(d.Why); n > payload.MaxName { // the keeper would cut it off
		s.renderAllowances(w, r, p, http.StatusUnprocessableEntity, fmt.Sprintf("why: %s, more than %d: nothing was revoked",
			activities.CountOf(n, "character"), payload.MaxName))
		return
	}
	g, err := s.Client.Disallow(r.Context(), s.Queue, d)
	if err != nil { // as it is now: somebody else may have revoked it
		s.renderAllowances(w, r, p, http.StatusConflict, err.Error())
		return
	}
	tell(w, r, "/allowances", "revoked: standing approval "+g.ID+" of agent "+g.Agent+"; no further step begins by it")
}
