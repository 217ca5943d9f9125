package workflows

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// StepCheck checks steps before a session accepts them, with all that the worker knows of its actions. It is not called in a replay,
// so it may change with the worker.
type StepCheck func(task.Addition) error

// session is the state that a session has besides the schedule of its task.
type session struct {
	document           json.RawMessage            // that it was opened with, without steps
	places             map[string]protocol.Places // of the hosts asked so far, by task queue; only looked up, never ranged over
	named              int                        // counts the steps that the session has named
	compiling          int                        // counts the requests whose steps are being compiled, or whose context is being confirmed
	naming             map[string]bool            // the ids of the steps that are being compiled; only looked up
	used               idSet                      // the ids of steps: a token is made of each, so none is ever used again
	seen               requestIDs                 // those of the last requests
	loose              []string                   // the steps that no other one needs, in order
	looseAt            int                        // rollbacks.undone when loose was right; -1 if it never was
	answers            answers
	outputs            []string        // the ids of the steps of earlier runs whose outputs are kept, the oldest first
	dropped            int             // counts steps that a report leaves out
	first              json.RawMessage // the steps that it was opened with
	redos              redos
	contexts           []protocol.Context  // the oldest first
	forgotten          []protocol.Context  // that their hosts may still have
	giving, forgetting []activities.Digest // of contexts that are being confirmed, and removed
	notes              []protocol.Note     // the oldest first
}

// newSession makes the session of a document; nil if the document opens none.
func newSession(document json.RawMessage) *session {
	var fields map[string]json.RawMessage
	if json.Unmarshal(document, &fields) != nil || fields["session"] == nil {
		return nil
	}
	first := fields["steps"]
	delete(fields, "steps")
	delete(fields, "$schema")
	raw, _ := json.Marshal(fields)
	return &session{
		document: raw, places: map[string]protocol.Places{}, naming: map[string]bool{}, used: idSet{}, looseAt: -1, first: first, redos: redos{written: map[string]json.RawMessage{}},
	}
}

// begin takes up the settings that the session was compiled with.
func (t *agentTask) beginSession(ctx workflow.Context) {
	settings := t.compiled.Session
	if settings == nil {
		return
	}
	t.schedule.open, t.schedule.live = true, true
	t.parks.agentDecides = settings.AgentDecides
	t.executor.silence = silence{
		limit: settings.Idle, gone: settings.Gone, heard: workflow.Now(ctx), isBusy: t.isBusy, alert: t.alertSilence,
	}
	for _, s := range t.schedule.steps {
		t.session.used.add("step", s.step.ID)
	}
	t.session.redos.keep(t.session.first, t.compiled.Steps)
}

// isBusy reports whether the agent of a session waits for it, or for a person. One that may decide itself is waited for.
func (t *agentTask) isBusy() bool {
	return t.executor.running > 0 || t.parks.isOpen() && !t.parks.agentDecides || t.rollbacks.hasDue() || t.session.compiling > 0
}

// atRest reports whether all requests are over, and otherwise what is not.
func (t *agentTask) atRest() (unfinished string, rests bool) {
	for _, s := range t.schedule.steps {
		if !s.isOver() {
			return fmt.Sprintf("step %s is %s", s.step.ID, s.view.State), false
		}
	}
	switch {
	case t.rollbacks.hasDue():
		return "a rollback is under way", false
	case t.session.compiling > 0:
		return "another request is being checked", false
	}
	return "", true
}

// checkTakes refuses a change of a session that no longer accepts any.
func (t *agentTask) checkTakes() error {
	switch {
	case t.session == nil:
		return protocol.RefuseRequestf(protocol.NotASession, "task %q takes no steps while it runs: it has no session: in its document", t.compiled.Name)
	case t.phase == protocol.Compiling && t.ending.cause == nil:
		return nil
	case t.ending.cause != nil:
		return protocol.RefuseRequestf(protocol.SessionOver, "the session goes no further: %s", t.ending.cause.Text)
	case t.phase != protocol.Forward || !t.schedule.open:
		return protocol.RefuseRequestf(protocol.SessionOver, "the session goes no further: it was told to finish; open another")
	}
	return nil
}

func (t *agentTask) checkRests() error {
	if what, rests := t.atRest(); !rests {
		return protocol.RefuseRequestf(protocol.SessionBusy, "%s: wait for it, roll it back, or abort the session", what)
	}
	return nil
}

// nameSteps returns steps with an id for each, and the ids.
func (t *agentTask) nameSteps(steps []json.RawMessage) (named json.RawMessage, ids []string, err error) {
	next := t.session.named
	all := make([]map[string]json.RawMessage, len(steps))
	written := map[string]bool{}
	for i, raw := range steps {
		if err := json.Unmarshal(raw, &all[i]); err != nil || all[i] == nil {
			return nil, nil, protocol.RefuseRequestf(protocol.BadRequest, "steps[%d]: must be a map with uses and with, as in a task file", i)
		}
		if id, has := all[i]["id"]; has {
			var text string
			_ = json.Unmarshal(id, &text) // what is no text is refused when the step is read
			if written[text] = true; t.session.used.has("step", text) {
				return nil, nil, protocol.RefuseRequestf(protocol.BadRequest, "steps.%s.id: the session has had a step %[1]q; choose another id, or leave it out", text)
			} else if t.session.naming[text] {
				return nil, nil, protocol.RefuseRequestf(protocol.BadRequest, "steps.%s.id: another request, which is being checked, has a step %[1]q; choose another id, or leave it out", text)
			}
		}
	}
	for i := range all {
		for all[i]["id"] == nil {
			next++
			if id := fmt.Sprintf("s%d", next); !written[id] && !t.session.naming[id] && !t.session.used.has("step", id) {
				all[i]["id"], _ = json.Marshal(id)
			}
		}
		var id string
		_ = json.Unmarshal(all[i]["id"], &id)
		ids = append(ids, id)
	}
	named, err = json.Marshal(all)
	return named, ids, err
}

// addition is steps with what the task knows about the steps that they build on. coming are the actions of steps, by id, that are
// to be added before them.
func (t *agentTask) addition(document, steps json.RawMessage, ids []string, coming map[string]string) (task.Addition, error) {
	a := task.Addition{Session: document, Steps: steps}
	needed, referred := task.Mentioned(steps)
	isMentioned := map[string]bool{}
	for _, id := range append(needed, referred...) {
		isMentioned[id] = !slices.Contains(ids, id)
	}
	if len(isMentioned) == 0 {
		return a, nil
	}
	a.Earlier = map[string]string{}
	for _, e := range t.saga.Entries() {
		if isMentioned[e.Step] {
			a.Earlier[e.Step] = e.Action
		}
	}
	for _, id := range slices.Sorted(maps.Keys(isMentioned)) {
		s := t.schedule.byID[id]
		switch {
		case coming[id] != "":
			a.Earlier[id] = coming[id]
		case !isMentioned[id] || s == nil:
		case s.view.State == protocol.RolledBack || s.view.State == protocol.LeftOut || s.view.State == protocol.StepFailed && !s.isSatisfied():
			return a, protocol.RefuseRequestf(protocol.BadRequest, "step %s is %s: nothing can build on it", id, s.view.State)
		default:
			a.Earlier[id] = s.step.Uses
		}
	}
	for _, id := range referred {
		_, isKept := t.runner.outputs[id]
		isKept = isKept || coming[id] != ""
		if _, isEarlier := a.Earlier[id]; isEarlier && !isKept && (t.schedule.byID[id] == nil || t.schedule.byID[id].isOver()) {
			return a, protocol.RefuseRequestf(protocol.BadRequest, "${{ steps.%s.outputs }}: the outputs of step %s are no longer kept; write the value itself", id, id)
		}
	}
	return a, nil
}

// compileSteps compiles the steps of a request, without adding them yet.
func (t *agentTask) compileSteps(ctx workflow.Context, steps []json.RawMessage) (task.Compiled, error) {
	named, ids, err := t.nameSteps(steps)
	if err != nil {
		return task.Compiled{}, err
	}
	a, err := t.addition(t.session.document, named, ids, nil)
	if err != nil {
		return task.Compiled{}, err
	}
	t.session.compiling++
	for _, id := range ids {
		t.session.naming[id] = true
	}
	defer func() {
		t.session.compiling--
		for _, id := range ids {
			delete(t.session.naming, id)
		}
	}()
	compiled, err := t.compileHere(ctx, "check the steps", a)
	if err != nil {
		return compiled, err
	}
	// Meanwhile others may have been added or undone.
	if err := t.checkTakes(); err != nil {
		return compiled, err
	}
	if err := t.checkSavepoints(compiled.Steps); err != nil {
		return compiled, err
	}
	if slices.ContainsFunc(ids, func(id string) bool { return t.session.used.has("step", id) }) {
		return compiled, protocol.RefuseRequestf(protocol.SessionBusy, "another request has used one of the ids %s at the same time: send it again", strings.Join(ids, ", "))
	}
	if _, err = t.addition(t.session.document, named, ids, nil); err == nil {
		err = t.admit(ctx, "steps", sizeOfSteps(compiled.Steps))
	}
	if err == nil {
		t.session.redos.keep(named, compiled.Steps)
	}
	return compiled, err
}

// compileHere compiles steps for the places of the session, or refuses their request.
func (t *agentTask) compileHere(ctx workflow.Context, summary string, a task.Addition) (task.Compiled, error) {
	compiled, err := t.compileAdded(ctx, summary, a)
	if err == nil {
		err = locateSteps(ctx, compiled.Steps, t.session.places)
	}
	if err != nil {
		return compiled, protocol.RefuseRequestf(protocol.BadRequest, "%s", compensations.Reason(err))
	}
	return compiled, nil
}

// checkSavepoints refuses steps with a savepoint that there is already.
func (t *agentTask) checkSavepoints(steps []task.Step) error {
	for _, s := range steps {
		if _, isTaken := t.savepoints.places[s.Savepoint]; isTaken {
			return protocol.RefuseRequestf(protocol.BadRequest, "steps.%s.savepoint: there is a savepoint %q already; choose another", s.ID, s.Savepoint)
		}
	}
	return nil
}

// addSteps adds compiled steps to the schedule.
func (t *agentTask) addSteps(compiled task.Compiled) (ids []string) {
	first := len(t.schedule.steps)
	for _, step := range compiled.Steps {
		t.session.used.add("step", step.ID)
		t.session.named++
		t.schedule.size++
		t.schedule.place(t.appendStep(step, first))
		ids = append(ids, step.ID)
	}
	return ids
}

// appendStep puts a step behind all others. first is the index of the first step of its request.
func (t *agentTask) appendStep(step task.Step, first int) *stepRun {
	step.Needs = t.completeNeeds(step, first)
	s := t.addStep(step)
	if text := describeOmittedGate(step.Gate); text != "" {
		s.addNotes(text + ": it says gate: none")
	}
	return s
}

// maxOverlaps is how many steps with a common resource a step lists as its needs; beyond that it needs all before it.
const maxOverlaps = 50

// completeNeeds returns the needs of a step with those that its request could not know. first is the index of the first step of
// that request.
func (t *agentTask) completeNeeds(step task.Step, first int) []string {
	isGone := func(id string) bool { // one that never began is gone without an undo
		s := t.schedule.byID[id]
		return s != nil && (s.view.State == protocol.RolledBack || s.view.State == protocol.LeftOut)
	}
	if t.session.looseAt != t.rollbacks.undone || slices.ContainsFunc(t.session.loose, isGone) {
		t.findLoose()
	}
	needs := step.Needs
	follows := step.Follows
	if names := namesOf(step); !follows {
		var overlaps []string
		for _, e := range t.saga.Entries() {
			if e.Place.Queue == step.Place.Queue && namesIn(e).meets(names) {
				overlaps = append(overlaps, e.Step)
			}
		}
		for _, s := range t.schedule.steps[:first] {
			if s.seq == 0 && !s.isOver() && s.step.Place.Queue == step.Place.Queue && namesOf(s.step).meets(names) {
				overlaps = append(overlaps, s.step.ID)
			}
		}
		if follows = len(overlaps) > maxOverlaps; !follows {
			needs = append(overlaps, needs...)
		}
	}
	if follows {
		needs = append(slices.Clone(t.session.loose), needs...)
	}
	var distinct []string
	for _, id := range needs {
		if !slices.Contains(distinct, id) {
			distinct = append(distinct, id)
		}
	}
	t.session.loose = append(slices.DeleteFunc(t.session.loose, func(id string) bool { return slices.Contains(distinct, id) }), step.ID)
	return distinct
}

// findLoose finds the steps that no other one needs, after some were undone.
func (t *agentTask) findLoose() {
	isNeeded := map[string]bool{}
	var ids []string
	for _, e := range t.saga.Entries() {
		ids = append(ids, e.Step)
		for _, need := range e.Needs {
			isNeeded[need] = true
		}
	}
	for _, s := range t.schedule.steps {
		if s.seq > 0 || s.isOver() {
			continue
		}
		ids = append(ids, s.step.ID)
		for _, need := range s.step.Needs {
			isNeeded[need] = true
		}
	}
	t.session.loose = slices.DeleteFunc(ids, func(id string) bool { return isNeeded[id] })
	t.session.looseAt = t.rollbacks.undone
}

var savepointForm = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)

// checkSavepoint refuses a name that cannot be given to the present place.
func (t *agentTask) checkSavepoint(name string) error {
	from, isKnown := t.savepoints.places[name]
	switch {
	case !savepointForm.MatchString(name):
		return protocol.RefuseRequestf(protocol.BadRequest, "name: %q must have the form a-z, 0-9, _ and -, a letter first, at most 63", payload.Clip(name, payload.MaxName))
	case isKnown && from != t.saga.Last()+1:
		return protocol.RefuseRequestf(protocol.BadRequest, "name: there is a savepoint %q already; choose another, or roll back to it", name)
	}
	return t.checkRests()
}

// bearSavepoints moves a savepoint whose entry was undone to the next entry.
func (t *agentTask) bearSavepoints() {
	top := 0
	if entries := t.saga.Entries(); len(entries) > 0 {
		top = entries[len(entries)-1].Seq
	}
	t.savepoints.bear(top)
}

// scope works out what a request to roll back undoes: everything from a sequence number on, or one step.
func (t *agentTask) scope(r protocol.SessionRollback) (from int, only string, err error) {
	if err := t.checkNewBranch(r); err != nil {
		return 0, "", err
	}
	switch {
	case (r.To == "") == (r.Step == ""):
		return 0, "", protocol.RefuseRequestf(protocol.BadRequest, "exactly one of to and step must be given")
	case r.To != "":
		from, isKnown := t.savepoints.places[r.To]
		if !isKnown {
			return 0, "", protocol.RefuseRequestf(protocol.BadRequest, "to: there is no savepoint %q; there are %s", r.To, listed(t.savepoints.names()))
		}
		if from <= t.pivot.seq {
			return 0, "", protocol.RefuseRequestf(protocol.BadRequest, "to: a pivot that is done stands after savepoint %q: it is never undone", r.To)
		}
		return from, "", nil
	}
	if s := t.schedule.byID[r.Step]; s != nil && (!s.isOver() || s.rollback != nil) {
		return math.MaxInt, r.Step, nil
	}
	if !slices.ContainsFunc(t.saga.Entries(), func(e activities.Entry) bool { return e.Step == r.Step }) {
		return 0, "", protocol.RefuseRequestf(protocol.BadRequest, "step: the ledger has no step %q: it was never done, is undone already, or stands before a pivot", payload.Clip(r.Step, payload.MaxName))
	}
	return math.MaxInt, r.Step, nil
}

func listed(names []string) string {
	const most = 20
	switch {
	case len(names) == 0:
		return "none"
	case len(names) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// alertSilence alerts a person that the agent is gone.
func (t *agentTask) alertSilence(ctx workflow.Context, why string) {
	t.notes = append(t.notes, why+": a person was asked")
	t.details.markStale()
	t.sendAlert(ctx, compensations.StepReport{State: string(protocol.AgentGone), Reason: why + ": finish it, abort it, or go on with it"})
}

// idSet is a set of ids that keeps 8 bytes of each: an id that is mistaken for another is refused, which is harmless.
type idSet map[[8]byte]bool

func hashID(kind, id string) [8]byte {
	sum := sha256.Sum256([]byte(kind + "\x00" + id))
	return [8]byte(sum[:8])
}

func (s idSet) add(kind, id string) { s[hashID(kind, id)] = true }

func (s idSet) has(kind, id string) bool { return s[hashID(kind, id)] }

// bytes are the ids in a fixed order.
func (s idSet) bytes() []byte {
	ids := slices.Collect(maps.Keys(s))
	slices.SortFunc(ids, func(a, b [8]byte) int { return cmp.Compare(string(a[:]), string(b[:])) })
	return slices.Concat(sliceAll(ids)...)
}

// maxRequestIDs is how many requests a session knows again. Nobody repeats one after so many others.
const maxRequestIDs = 10_000

// requestIDs are the ids of the last requests, 8 bytes of each, the oldest first.
type requestIDs struct {
	known idSet
	order [][8]byte
}

func (r *requestIDs) has(id string) bool { return r.known.has("request", id) }

func (r *requestIDs) add(id string) {
	if r.known == nil {
		r.known = idSet{}
	}
	r.known.add("request", id)
	r.order = append(r.order, hashID("request", id))
	if len(r.order) > maxRequestIDs {
		delete(r.known, r.order[0])
		r.order = r.order[1:]
	}
}

// drop forgets the id of a request that was refused.
func (r *requestIDs) drop(id string) {
	hash := hashID("request", id)
	delete(r.known, hash)
	r.order = slices.DeleteFunc(r.order, func(o [8]byte) bool { return o == hash })
}

func (r *requestIDs) bytes() []byte { return slices.Concat(sliceAll(r.order)...) }

func requestIDsOf(raw []byte) requestIDs {
	r := requestIDs{known: idSetOf(raw)}
	for id := range slices.Chunk(raw, 8) {
		r.order = append(r.order, [8]byte(id))
	}
	return r
}

func sliceAll(ids [][8]byte) [][]byte {
	all := make([][]byte, len(ids))
	for i := range ids {
		all[i] = ids[i][:]
	}
	return all
}

func idSetOf(raw []byte) idSet {
	s := idSet{}
	for id := range slices.Chunk(raw, 8) {
		s[[8]byte(id)] = true
	}
	return s
}
