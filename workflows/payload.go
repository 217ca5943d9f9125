package workflows

import (
	"fmt"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

// What leaves a workflow goes in payloads, and a server refuses one of more than 2 MiB: a query is then answered by an error, and a
// workflow task fails for ever. So each is shortened where it is made, to so many bytes as JSON: first texts, then lists, and it says
// what it leaves out. What decides, such as digests, stays. A codec has the rest.
const (
	// maxPayload bounds the answer to a query, and whatever goes alone.
	maxPayload = 1_500_000
	// maxAnswer bounds the answer to an update: a server lets ten be under way, and all may be answered in one message of at most 4 MB,
	// beside the arguments of maxScheduled and a report.
	maxAnswer = 200_000
	// maxAlerted bounds the alerts that are sent at once.
	maxAlerted = 250_000
	// maxCause bounds the text of a cause, or of an error, in them.
	maxCause = 8_000
)

// Parts of a State. The report takes what they leave.
const (
	maxShownGates = 256 << 10
	maxShownParks = 128 << 10
	maxShownSteps = 384 << 10
	maxShownList  = 64 << 10 // any other list
)

// cut is one way to make a payload shorter: what says what it leaves out.
type cut struct {
	what string
	make func()
}

// shorten cuts a payload until it has at most limit bytes as JSON, and says what it has left out.
func shorten(payload any, limit int, cuts ...cut) (omitted []string) {
	size := sizeOf(payload)
	for _, c := range cuts {
		if size <= limit {
			break
		}
		c.make()
		before := size
		if size = sizeOf(payload); size < before && !slices.Contains(omitted, c.what) {
			omitted = append(omitted, c.what)
		}
	}
	return omitted
}

// keepFirst returns the first of items, at least one, whose sizes together stay within a limit.
func keepFirst[T any](items []T, limit int) []T {
	n := 0
	for total := 0; n < len(items); n++ {
		if total += sizeOf(items[n]) + len(","); total > limit && n > 0 {
			break
		}
	}
	return items[:n]
}

// fit shortens s to what a query may answer.
func (s *State) fit() {
	s.Cause = shortCause(s.Cause)
	gates, parks := s.Gates, s.Parks
	s.Gates, s.Parks = keepFirst(gates, maxShownGates), keepFirst(parks, maxShownParks)
	s.MoreGates, s.MoreParks = len(gates)-len(s.Gates), len(parks)-len(s.Parks)
	var cuts []cut
	for _, n := range shorter {
		cuts = append(cuts, cut{"texts of steps", func() { s.Steps = clipViews(s.Steps, n) }})
	}
	s.Omitted = shorten(&s.Steps, maxShownSteps, append(cuts, cut{"the first steps", func() { s.Steps = keepLast(s.Steps, maxShownSteps, sizeOfItem) }})...)
	s.Omitted = append(s.Omitted, keepLastOf(&s.Ignored, "ignored signal")...)
	if s.Session != nil {
		s.Omitted = append(s.Omitted, s.Session.fit()...)
	}
	for i := range s.Gates { // one alone can be too long
		s.Omitted = append(s.Omitted, shorten(&s.Gates[i], maxShownGates, cutsOfGate(&s.Gates[i])...)...)
	}
	if r := s.Report; r != nil {
		s.Report = nil
		s.Report = fitReport(r, min(maxPayload-sizeOf(s), maxReport))
	}
}

// shorter are the lengths to which texts are shortened, one after the other, in characters.
var shorter = []int{maxWhy, maxName, 40}

func cutsOfGate(g *GateView) (cuts []cut) {
	for _, n := range shorter {
		cuts = append(cuts, cut{"a part of a change that waits", func() { *g = *g.short(n) }})
	}
	return cuts
}

// clipViews returns views whose texts have at most n characters.
func clipViews(views []StepView, n int) []StepView {
	views = slices.Clone(views)
	for i := range views {
		v := &views[i]
		v.Summary, v.Error, v.Waiting = clip(v.Summary, n), clip(v.Error, n), clip(v.Waiting, n)
		v.Notes, v.Tried, v.Outputs = clipLast(v.Notes, n), shortenTried(v.Tried[max(0, len(v.Tried)-maxTexts):], n), nil
	}
	return views
}

// maxTexts is how many texts a list keeps that must be shortened.
const maxTexts = 3

// clipLast returns the last texts, with at most n characters each.
func clipLast(texts []string, n int) []string {
	return clipAll(texts[max(0, len(texts)-maxTexts):], n)
}

// fit shortens the lists of a session, each to its part.
func (v *SessionView) fit() (omitted []string) {
	return slices.Concat(
		keepLastOf(&v.Savepoints, "savepoint"), keepLastOf(&v.Contexts, "earlier context"), keepLastOf(&v.Notes, "earlier note"),
		keepLastOf(&v.TakenBack, "earlier rollback"), keepLastOf(&v.Since, "earlier step since the last context"),
	)
}

// keepLastOf keeps the last of a list that fit into its part, and says how many others there are.
func keepLastOf[T any](list *[]T, what string) (omitted []string) {
	before := len(*list)
	*list = keepLast(*list, maxShownList, sizeOfItem)
	if more := before - len(*list); more > 0 {
		return []string{activities.CountOf(more, what)}
	}
	return nil
}

func sizeOfItem[T any](item T) int { return sizeOf(item) + len(",") }

// fitReport returns a report that shares nothing with r and has at most limit bytes.
func fitReport(r *compensations.Report, limit int) *compensations.Report {
	if r == nil {
		return nil
	}
	short := *r
	short.Steps, short.Notes, short.Cause = slices.Clone(r.Steps), slices.Clone(r.Notes), shortCause(r.Cause)
	short.Fit(limit)
	shorten(&short, limit, cut{make: func() { short.Notes = clipLast(short.Notes, maxName) }})
	return &short
}

func shortCause(c *compensations.Cause) *compensations.Cause {
	if c == nil {
		return nil
	}
	short := *c
	short.Text = clip(c.Text, maxCause)
	return &short
}

// fit shortens a to what an update may answer. Of each step it says that it waits for a person, of the first of these all about it.
func (a *Answer) fit() {
	a.Cause = shortCause(a.Cause)
	a.Steps, a.Undone, a.Waiting = slices.Clone(a.Steps), slices.Clone(a.Undone), slices.Clone(a.Waiting)
	eachStep := func(change func(i int, s *StepAnswer)) func() {
		return func() {
			for i := range a.Steps {
				change(i, &a.Steps[i])
			}
		}
	}
	first := slices.IndexFunc(a.Steps, func(s StepAnswer) bool { return s.Gate != nil || s.Park != nil })
	cuts := []cut{{"the middle of outputs", eachStep(func(_ int, s *StepAnswer) { s.Outputs = CutOutputs(s.Outputs) })}}
	for _, n := range shorter {
		cuts = append(cuts,
			cut{"changes and parameters of steps that wait, except for the first", eachStep(func(i int, s *StepAnswer) {
				if i != first {
					s.Gate, s.Park = s.Gate.short(n), s.Park.short(n)
				}
			})},
			cut{"texts of undos", func() { shortenUndos(a.Undone, n); shortenUndos(a.Waiting, n) }},
			cut{"texts of steps", eachStep(func(_ int, s *StepAnswer) { s.shorten(n) })})
	}
	cuts = append(cuts,
		cut{"outputs", eachStep(func(_ int, s *StepAnswer) { s.Outputs = nil })},
		cut{"rows of the report", func() { a.Report = fitReport(a.Report, maxAnswer/2) }},
		cut{"a part of the change that waits", eachStep(func(_ int, s *StepAnswer) { s.Gate, s.Park = s.Gate.short(maxWhy), s.Park.short(maxWhy) })},
		cut{"steps and undos, which more counts", a.dropRows})
	a.Omitted = shorten(a, maxAnswer-maxOmitted, cuts...)
}

// maxOmitted is how long it can be to say what is left out.
const maxOmitted = 1000

// dropRows keeps the rows of an answer that fit, and counts the others by their state: of steps first those that a person or the agent
// has to look at.
func (a *Answer) dropRows() {
	a.More = map[string]int{}
	part := (maxAnswer - sizeOf(Answer{Request: a.Request, Cause: a.Cause, Context: a.Context, Report: a.Report})) / 5
	isDone := func(s StepAnswer) bool { return s.State == Done }
	kept := keepFirst(slices.DeleteFunc(slices.Clone(a.Steps), isDone), 2*part)
	if left := 2*part - sizeOf(kept); left > 0 {
		kept = append(slices.Clip(kept), keepLast(slices.DeleteFunc(slices.Clone(a.Steps), func(s StepAnswer) bool { return !isDone(s) }), left, sizeOfItem)...)
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
	waitsFor := keepFirst(a.WaitsFor, part/2)
	if more := len(a.WaitsFor) - len(waitsFor); more > 0 {
		waitsFor = append(slices.Clip(waitsFor), fmt.Sprintf("and %d more", more))
	}
	a.WaitsFor = waitsFor
}

func (a *Answer) keepUndos(all []compensations.StepReport, limit int) []compensations.StepReport {
	kept := keepFirst(all, limit)
	for _, u := range all[len(kept):] {
		a.More[u.State]++
	}
	return kept
}

// shorten shortens the texts of a step to n characters.
func (s *StepAnswer) shorten(n int) {
	s.Summary, s.Error, s.Notes = clip(s.Summary, n), clip(s.Error, n), clipLast(s.Notes, n)
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
	c.Summary, c.Diff, c.Undo = clip(c.Summary, n), activities.HeadDiff(c.Diff, n), clip(c.Undo, n)
	c.Losses, c.Facts, c.Keys, c.Schema = clipFirst(c.Losses, n), clipFirst(c.Facts, n), clipFirst(c.Keys, n), clipFirst(c.Schema, n)
	c.Counts = c.Counts[:min(len(c.Counts), maxTexts)]
	return c
}

// fit shortens p to what a workflow may return.
func (p *Plan) fit() {
	var cuts []cut
	for _, n := range shorter {
		cuts = append(cuts, cut{"a part of the changes", func() {
			for i := range p.Steps {
				s := &p.Steps[i]
				s.Unknown, s.Refused = clip(s.Unknown, n), clip(s.Refused, n)
				if s.Change != nil {
					change := shortChange(*s.Change, n)
					s.Change = &change
				}
			}
		}})
	}
	for _, what := range shorten(p, maxPayload-maxOmitted, append(cuts, cut{"the last steps", func() { p.Steps = keepFirst(p.Steps, maxPayload/2) }})...) {
		p.Notes = append(p.Notes, "left out, for it would be too long: "+what)
	}
}

// fit shortens v to what a workflow may return: it is refused all the same.
func (v *Validation) fit() {
	kept := keepFirst(v.Refusals, maxPayload/2)
	if more := len(v.Refusals) - len(kept); more > 0 {
		v.Refusals, v.Unseen = kept, append(v.Unseen, "and "+activities.CountOf(more, "more refusal"))
	}
}

// clipFirst returns the first texts, with at most n characters each, and counts the others.
func clipFirst(texts []string, n int) []string {
	short := clipAll(texts[:min(len(texts), maxTexts)], n)
	if more := len(texts) - maxTexts; more > 0 {
		short = append(short, fmt.Sprintf("and %d more", more))
	}
	return short
}

// short returns p with a shorter reason, and without its parameters.
func (p *ParkView) short(n int) *ParkView {
	if p == nil {
		return nil
	}
	short := *p
	short.Reason, short.With = clip(p.Reason, n), nil
	return &short
}
