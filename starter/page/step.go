package page

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/starter/bearer"
	"github.com/seed-62bf7108/unwind/starter/render"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// stepPage is the page of a step: what waits there, with all that a person needs to decide, else
// what it has done.
type stepPage struct {
	Run     tasks.Run
	Step    tasks.Step
	Outputs []string
	// Gate, Park and Undo are what waits for a person; nil if it does not.
	Gate *protocol.GateView
	Park *protocol.ParkView
	Undo *compensations.StepReport
	// Ways are the decisions that fit a park, and With are the parameters of the step.
	Ways []render.Way
	With string
	// Wrong says what is wrong with the parameters in With, and Typed is the reason that was typed
	// with them; empty if none were.
	Wrong, Typed string
	// Digest is that of what waits.
	Digest string
	// Sign are the command lines that sign a decision, where only signed ones count: a browser has no
	// SSH key. Passkeys are the names under which the person can sign here instead, and Lapsed says
	// which passkeys do not count. Enrolls says that passkeys can be made here, and Unreadable why it is
	// not known whose there are.
	Sign, Passkeys, Lapsed []string
	Enrolls                bool
	Unreadable             string
	// Silent says why it is not known what waits; empty if it is known.
	Silent string
	UI     string
}

// Decides says that decisions can be made on the page.
func (b stepPage) Decides() bool { return len(b.Sign) == 0 || len(b.Passkeys) > 0 }

// maxOutputLines is how many lines of outputs a page shows; the last ones.
const maxOutputLines = 400

func (s *Server) showStep(w http.ResponseWriter, r *http.Request, p bearer.Person) {
	v, status := s.stepView(r, p, r.PathValue("task"), r.PathValue("step"))
	s.render(w, r, status, pageOf(status, "step"), v)
}

func (s *Server) stepView(r *http.Request, p bearer.Person, id, step string) (view, int) {
	body, err := s.readStep(r.Context(), id, step)
	if err != nil {
		return view{Title: "Step " + step, Person: p, Problem: err.Error()}, statusOf(err)
	}
	s.addPasskeys(&body, p)
	v := view{Title: step + " of " + id, Person: p, Body: body}
	if !body.Run.Closed() && body.Park == nil { // what a person is typing must not be replaced
		v.Stream = streamOf(r)
	}
	return v, http.StatusOK
}

func (s *Server) readStep(ctx context.Context, id, step string) (b stepPage, err error) {
	if b.Run, err = s.Client.Describe(ctx, id); err != nil {
		return b, err
	}
	b.UI = s.Client.RunLink(b.Run.ID, b.Run.RunID)
	if !b.Run.Closed() {
		now, failed := s.Client.QueryStep(ctx, b.Run, step)
		b.Silent, _ = tasks.SilenceReason(failed, b.Run)
		if failed == nil {
			b.addWaiting(s.Client.Server, now)
			b.addSigning(s.Client.Server, now)
		}
	}
	if b.Digest != "" {
		return b, nil
	}
	b.Step, err = s.Client.Step(ctx, b.Run, step)
	b.Outputs = render.OutputLines(b.Step.Outputs, maxOutputLines)
	return b, err
}

// resolvable are the states of an undo that a person may decide about.
var resolvable = []compensations.UndoState{compensations.Parked, compensations.Waiting}

// addWaiting adds what waits at the step.
func (b *stepPage) addWaiting(server tasks.Server, now protocol.StepNow) {
	b.Step.StepView = now.Step
	switch {
	case now.Gate != nil:
		b.Gate, b.Digest, b.With = now.Gate, string(now.Gate.Digest), indented(now.With)
	case now.Park != nil:
		b.Park, b.Ways, b.Digest = now.Park, render.WaysForStep(*now.Park), string(now.Park.Digest)
		b.With = indented(now.Park.With)
	case now.Undo != nil && slices.Contains(resolvable, compensations.UndoState(now.Undo.State)):
		b.Undo, b.Digest = now.Undo, string(now.Undo.Digest)
		for _, way := range render.WaysToResolve(server, *now.Undo) {
			isEnd := way.Do == compensations.Skip || way.Do == compensations.Accept
			if now.Undo.State == string(compensations.Parked) || isEnd {
				b.Ways = append(b.Ways, way)
			}
		}
	}
}

// indented is JSON as a person edits it.
func indented(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return ""
	}
	return b.String()
}

// addSigning adds how a decision is signed, where only signed ones count.
func (b *stepPage) addSigning(server tasks.Server, now protocol.StepNow) {
	command := func(verb, more string) string {
		return fmt.Sprintf("%s %s %s %s%s", server.StarterCommand(), verb, terminal.ShellQuote(b.Run.ID),
			terminal.ShellQuote(now.Step.ID), more)
	}
	switch {
	case now.Gate != nil && now.Gate.Signed:
		b.Sign = []string{command("approve", ""), command("reject", " --why WHY"),
			command("resolve", " --do edit --with KEY=VALUE")}
	case now.Park != nil && now.Park.Signed, now.Undo != nil && now.Undo.Signed:
		for _, way := range b.Ways {
			b.Sign = append(b.Sign, command("resolve", " --do "+string(way.Do)))
		}
	}
}
