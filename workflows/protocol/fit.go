package protocol

import (
	"fmt"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/payload"
)

const (
	// MaxReport is the largest size of a report, which is in the history as the result or in the
	// failure.
	MaxReport = 1_000_000
	// maxAnswer bounds the answer to an update: a server lets ten be under way, and all may be
	// answered in one message of at most 4 MB, beside the arguments of the activities that are
	// scheduled in the same workflow task, and a report.
	maxAnswer = 200_000
)

// Parts of a State. The report takes what they leave.
const (
	maxShownGates = 256 << 10
	maxShownParks = 128 << 10
	maxShownSteps = 384 << 10
	maxShownList  = 64 << 10 // any other list
)

// Fit shortens s to what a query may answer.
func (s *State) Fit() {
	s.Cause = ShortCause(s.Cause)
	gates, parks := s.Gates, s.Parks
	s.Gates, s.Parks = payload.KeepFirst(gates, maxShownGates), payload.KeepFirst(parks, maxShownParks)
	s.MoreGates, s.MoreParks = len(gates)-len(s.Gates), len(parks)-len(s.Parks)
	var cuts []payload.Cut
	for _, n := range payload.Shorter {
		cuts = append(cuts, payload.Cut{What: "texts of steps", Make: func() { s.Steps = clipViews(s.Steps, n) }})
	}
	s.Omitted = payload.Shorten(&s.Steps, maxShownSteps,
		append(cuts,
			payload.Cut{What: "the first steps",
				Make: func() { s.Steps = payload.KeepLast(s.Steps, maxShownSteps, payload.SizeOfItem) }})...)
	s.Omitted = append(s.Omitted, keepLastOf(&s.Ignored, "ignored signal")...)
	if s.Session != nil {
		s.Omitted = append(s.Omitted, s.Session.fit()...)
	}
	for i := range s.Gates { // one alone can be too long
		s.Omitted = append(s.Omitted, payload.Shorten(&s.Gates[i], maxShownGates, cutsOfGate(&s.Gates[i])...)...)
	}
	if r := s.Report; r != nil {
		s.Report = nil
		s.Report = fitReport(r, min(payload.Max-payload.SizeOf(s), MaxReport))
	}
}

// Fit shortens n to what a query may answer.
func (n *StepNow) Fit() {
	payload.Shorten(n, payload.Max, payload.Cut{Make: func() {
		n.Step = clipViews([]StepView{n.Step}, payload.MaxWhy)[0]
		n.Gate = n.Gate.short(payload.MaxWhy)
	}})
}

func cutsOfGate(g *GateView) (cuts []payload.Cut) {
	for _, n := range payload.Shorter {
		cuts = append(cuts, payload.Cut{What: "a part of a change that waits", Make: func() { *g = *g.short(n) }})
	}
	return cuts
}

// clipViews returns views whose texts have at most n characters.
func clipViews(views []StepView, n int) []StepView {
	views = slices.Clone(views)
	for i := range views {
		v := &views[i]
		v.Summary, v.Error, v.Waiting = payload.Clip(v.Summary, n), payload.Clip(v.Error, n), payload.Clip(v.Waiting, n)
		v.Notes, v.Tried, v.Outputs = payload.ClipLast(v.Notes, n),
			shortenTried(v.Tried[max(0, len(v.Tried)-payload.MaxTexts):], n), nil
	}
	return views
}

// fit shortens the lists of a session, each to its part.
func (v *SessionView) fit() (omitted []string) {
	return slices.Concat(
		keepLastOf(&v.Savepoints, "savepoint"), keepLastOf(&v.Contexts, "earlier context"),
		keepLastOf(&v.Notes, "earlier note"),
		keepLastOf(&v.TakenBack, "earlier rollback"), keepLastOf(&v.Since, "earlier step since the last context"),
	)
}

// keepLastOf keeps the last of a list that fit into its part, and says how many others there are.
func keepLastOf[T any](list *[]T, what string) (omitted []string) {
	before := len(*list)
	*list = payload.KeepLast(*list, maxShownList, payload.SizeOfItem)
	if more := before - len(*list); more > 0 {
		return []string{activities.CountOf(more, what)}
	}
	return nil
}

// fitReport returns a report that shares nothing with r and has at most limit bytes.
func fitReport(r *compensations.Report, limit int) *compensations.Report {
	if r == nil {
		return nil
	}
	short := *r
	short.Steps, short.Notes, short.Cause = slices.Clone(r.Steps), slices.Clone(r.Notes), ShortCause(r.Cause)
	short.Fit(limit)
	payload.Shorten(&short, limit,
		payload.Cut{Make: func() { short.Notes = payload.ClipLast(short.Notes, payload.MaxName) }})
	return &short
}

func ShortCause(c *compensations.Cause) *compensations.Cause {
	if c == nil {
		return nil
	}
	short := *c
	short.Text = payload.Clip(c.Text, payload.MaxCause)
	return &short
}

// Fit shortens a to what an update may answer. Of each step it says that it waits for a person, of
// the first of these all about it.
func (a *Answer) Fit() {
	a.Cause = ShortCause(a.Cause)
	a.Steps, a.Undone, a.Waiting = slices.Clone(a.Steps), slices.Clone(a.Undone), slices.Clone(a.Waiting)
	eachStep := func(change func(i int, s *StepAnswer)) func() {
		return func() {
			for i := range a.Steps {
				change(i, &a.Steps[i])
			}
		}
	}
	first := slices.IndexFunc(a.Steps, func(s StepAnswer) bool { return s.Gate != nil || s.Park != nil })
	cuts := []payload.Cut{{What: "the middle of outputs",
		Make: eachStep(func(_ int, s *StepAnswer) { s.Outputs = CutOutputs(s.Outputs) })}}
	for _, n := range payload.Shorter {
		cuts = append(cuts,
			payload.Cut{What: "changes and parameters of steps that wait, except for the first",
				Make: eachStep(func(i int, s *StepAnswer) {
					if i != first {
						s.Gate, s.Park = s.Gate.short(n), s.Park.short(n)
					}
				})},
			payload.Cut{What: "texts of undos", Make: func() { shortenUndos(a.Undone, n); shortenUndos(a.Waiting, n) }},
			payload.Cut{What: "texts of steps", Make: eachStep(func(_ int, s *StepAnswer) { s.shorten(n) })})
	}
	cuts = append(cuts,
		payload.Cut{What: "outputs", Make: eachStep(func(_ int, s *StepAnswer) { s.Outputs = nil })},
		payload.Cut{What: "rows of the report", Make: func() { a.Report = fitReport(a.Report, maxAnswer/2) }},
		payload.Cut{What: "a part of the change that waits", Make: eachStep(func(_ int, s *StepAnswer) {
			s.Gate, s.Park = s.Gate.short(payload.MaxWhy), s.Park.short(payload.MaxWhy)
		})},
		payload.Cut{What: "steps and undos, which more counts", Make: a.dropRows})
	a.Omitted = payload.Shorten(a, maxAnswer-maxOmitted, cuts...)
}

// maxOmitted is how long it can be to say what is left out.
const maxOmitted = 1000

// dropRows keeps the rows of an answer that fit, and counts the others by their state: of steps
// first those that a person or the agent has to look at.
func (a *Answer) dropRows() {
	a.More = map[string]int{}
	part := (maxAnswer - payload.SizeOf(Answer{Request: a.Request, Cause: a.Cause, Context: a.Context,
		Report: a.Report})) / 5
	isDone := func(s StepAnswer) bool { return s.State == Done }
	kept := payload.KeepFirst(slices.DeleteFunc(slices.Clone(a.Steps), isDone), 2*part)
	if left := 2*part - payload.SizeOf(kept); left > 0 {
		kept = append(slices.Clip(kept),
			payload.KeepLast(slices.DeleteFunc(slices.Clone(a.Steps), func(s StepAnswer) bool { return !isDone(s) }), left,
				payload.SizeOfItem)...)
	}
	isKept := map[string]bool{}
	for _, s := range kept {
		isKept[s.ID] = true
	}
	a.Steps = slices.DeleteFunc(a.Steps, func(s StepAnswer) bool {
		if !isKept[s.ID] {
			a.More[string(s.State)]++
		}
		return !isKept[s.ID]
	})
	a.Undone, a.Waiting = a.keepUndos(a.Undone, part), a.keepUndos(a.Waiting, part)
	waitsFor := payload.KeepFirst(a.WaitsFor, part/2)
	if more := len(a.WaitsFor) - len(waitsFor); more > 0 {
		waitsFor = append(slices.Clip(waitsFor), fmt.Sprintf("and %d more", more))
	}
	a.WaitsFor = waitsFor
}

func (a *Answer) keepUndos(all []compensations.StepReport, limit int) []compensations.StepReport {
	kept := payload.KeepFirst(all, limit)
	for _, u := range all[len(kept):] {
		a.More[u.State]++
	}
	return kept
}

// shorten shortens the texts of a step to n characters.
func (s *StepAnswer) shorten(n int) {
	s.Summary, s.Error, s.Notes = payload.Clip(s.Summary, n), payload.Clip(s.Error, n), payload.ClipLast(s.Notes, n)
	if s.Undone != nil {
		undone := []compensations.StepReport{*s.Undone}
		shortenUndos(undone, n)
		s.Undone = &undone[0]
	}
}

func shortenUndos(undos []compensations.StepReport, n int) {
	for i := range undos {
		undos[i].Shorten(n)
	}
}

// short returns g with the texts about its change shortened. The digests, which decide, stay.
func (g *GateView) short(n int) *GateView {
	if g == nil {
		return nil
	}
	short := *g
	short.Change = shortChange(g.Change, n)
	return &short
}

func shortChange(c activities.Change, n int) activities.Change {
	c.Summary, c.Diff, c.Undo = payload.Clip(c.Summary, n), activities.HeadDiff(c.Diff, n), payload.Clip(c.Undo, n)
	c.Losses, c.Facts, c.Keys, c.Schema = payload.ClipFirst(c.Losses, n), payload.ClipFirst(c.Facts, n),
		payload.ClipFirst(c.Keys, n), payload.ClipFirst(c.Schema, n)
	c.Counts = c.Counts[:min(len(c.Counts), payload.MaxTexts)]
	return c
}

// Fit shortens p to what a workflow may return.
func (p *Plan) Fit() {
	var cuts []payload.Cut
	for _, n := range payload.Shorter {
		cuts = append(cuts, payload.Cut{What: "a part of the changes", Make: func() {
			for i := range p.Steps {
				s := &p.Steps[i]
				s.Unknown, s.Refused = payload.Clip(s.Unknown, n), payload.Clip(s.Refused, n)
				if s.Change != nil {
					change := shortChange(*s.Change, n)
					s.Change = &change
				}
			}
		}})
	}
	for _, what := range payload.Shorten(p, payload.Max-maxOmitted,
		append(cuts,
			payload.Cut{What: "the last steps", Make: func() { p.Steps = payload.KeepFirst(p.Steps, payload.Max/2) }})...) {
		p.Notes = append(p.Notes, "left out, for it would be too long: "+what)
	}
}

// Fit shortens v to what a workflow may return: it is refused all the same.
func (v *Validation) Fit() {
	kept := payload.KeepFirst(v.Refusals, payload.Max/2)
	if more := len(v.Refusals) - len(kept); more > 0 {
		v.Refusals, v.Unseen = kept, append(v.Unseen, "and "+activities.CountOf(more, "more refusal"))
	}
}

// short returns p with a shorter reason, and without its parameters.
func (p *ParkView) short(n int) *ParkView {
	if p == nil {
		return nil
	}
	short := *p
	short.Reason, short.With = payload.Clip(p.Reason, n), nil
	return &short
}

func shortenTried(tried []Tried, n int) []Tried {
	tried = slices.Clone(tried)
	for i := range tried {
		tried[i].Notes = payload.ClipAll(tried[i].Notes, n)
	}
	return tried
}
