package environment

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// TakenBack is a rollback that has taken back what a task had changed.
type TakenBack struct {
	Environment string `json:"environment"`
	// Checkpoint is the one that it went back to, Safety the one that has what the task had changed.
	Checkpoint string    `json:"checkpoint"`
	Safety     string    `json:"safety"`
	Parts      []string  `json:"parts"`
	At         time.Time `json:"at"`
}

// Rollbacks are those that an environment has gone through, the newest first. They stay known when
// their checkpoints are dropped.
type Rollbacks struct {
	All []Rollback `json:"all,omitempty"`
	// Since is the time after which all are known; zero: always.
	Since time.Time `json:"known_since,omitzero"`
}

// Rollback is one that an environment has gone through.
type Rollback struct {
	// Safety is the checkpoint that it has taken first, at At. To is where it went, taken at Created.
	Safety  string    `json:"safety"`
	At      time.Time `json:"at"`
	To      string    `json:"to"`
	Created time.Time `json:"created_at"`
	// Parts are those that it put back, Past the tasks whose changes it has taken back, and MorePast is
	// how many more there are.
	Parts    []string    `json:"parts"`
	Past     []TaskWrote `json:"past,omitempty"`
	MorePast int         `json:"more_past,omitempty"`
	// Own is what it has taken back of the task that asked for it.
	Own *TaskWrote `json:"own,omitempty"`
}

// maxRollbacks is how many rollbacks stay known, and maxPastInAll how many tasks in all of them: they
// have to fit into an answer.
const (
	maxRollbacks = 100
	maxPastInAll = 1000
)

// Add adds those that the checkpoints of an environment tell of, and drops the oldest that do not fit.
func (r *Rollbacks) Add(stored []Stored) {
	for _, s := range stored {
		isIt := func(have Rollback) bool { return have.Safety == s.ID }
		if s.RolledBackTo == "" || !s.Created.After(r.Since) || slices.ContainsFunc(r.All, isIt) {
			continue
		}
		r.All = append(r.All, Rollback{Safety: s.ID, At: s.Created, To: s.RolledBackTo, Created: s.RolledBackToCreated,
			Parts: s.PutBack, Past: s.Past, MorePast: s.MorePast, Own: s.Own})
	}
	slices.SortFunc(r.All, func(a, b Rollback) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Safety, b.Safety)) })
	tasks := 0
	for i, each := range r.All {
		if tasks += len(each.passed()); i > 0 && (i >= maxRollbacks || tasks > maxPastInAll) {
			r.All, r.Since = r.All[:i], each.At
			return
		}
	}
}

// TakenBack tells by which rollbacks what tasks had changed is taken back now: the tasks by their
// ids, the newest rollback first. Going forward again ends that. A task that has asked for a
// rollback itself has had nothing taken back by it. See [Rollbacks.Unknown].
func (v View) TakenBack() map[string][]TakenBack {
	found := map[string][]TakenBack{}
	for _, r := range v.Rollbacks.All {
		for _, t := range r.passed() {
			for _, p := range t.Parts {
				if by := v.Rollbacks.takenBackBy(t.Task, p, time.Time{}); by != nil && by.ownTask() != t.Task {
					found[t.Task] = addPart(found[t.Task], v.Document.Name, *by, p.Part)
				}
			}
		}
	}
	for _, all := range found {
		slices.SortFunc(all, func(a, b TakenBack) int { return b.At.Compare(a.At) })
	}
	return found
}

// Unknown says what is not known of what rollbacks have taken back of tasks, the oldest of which began
// at a time.
func (v View) Unknown(oldest time.Time) (notes []string) {
	if oldest.Before(v.Rollbacks.Since) {
		notes = append(notes, fmt.Sprintf(
			"what rollbacks of environment %s have taken back of tasks that began before %s is not known any more",
			v.Document.Name, v.Rollbacks.Since.UTC().Format(time.RFC3339)))
	}
	for _, r := range v.Rollbacks.All {
		if r.MorePast > 0 && oldest.Before(r.At) {
			notes = append(notes, fmt.Sprintf("the rollback of environment %s to %s at %s has gone past %s, which are not told",
				v.Document.Name, r.To, r.At.UTC().Format(time.RFC3339), activities.CountOf(r.MorePast, "more task")))
		}
	}
	return notes
}

// takenBackBy is the rollback by which a part did not have, before a time, what a task had changed
// then; nil: it had it, or that is not known. The zero time is now. What a rollback has put back is
// as it was when the checkpoint was taken that it went back to.
func (r Rollbacks) takenBackBy(task string, wrote PartWrote, before time.Time) *Rollback {
	for i, each := range r.All {
		older := Rollbacks{All: r.All[i+1:]}
		switch {
		case !slices.Contains(each.Parts, wrote.Part) || !before.IsZero() && !each.At.Before(before):
			continue
		case wrote.At.After(each.At):
			return nil
		case !wrote.At.After(each.Created):
			return older.takenBackBy(task, wrote, each.Created)
		case !each.hasPassed(task, wrote.Part): // it had been undone
			return nil
		}
		earlier := older.takenBackBy(task, wrote, each.At)
		if earlier == nil || earlier.ownTask() == task && earlier.To != each.To { // a rollback is a change as well
			return &r.All[i]
		}
		return earlier // it was not there any more
	}
	return nil
}

// passed are the tasks whose changes the rollback has taken back, with the one that asked for it.
func (r Rollback) passed() []TaskWrote {
	if r.Own == nil {
		return r.Past
	}
	return append(slices.Clip(r.Past), *r.Own)
}

func (r Rollback) hasPassed(task, part string) bool {
	return slices.ContainsFunc(r.passed(), func(t TaskWrote) bool {
		return t.Task == task && slices.Contains(t.Names(), part)
	})
}

// ownTask is the task that has asked for the rollback, if that has taken back changes of its own.
func (r Rollback) ownTask() string {
	if r.Own == nil {
		return ""
	}
	return r.Own.Task
}

func addPart(all []TakenBack, environment string, r Rollback, part string) []TakenBack {
	i := slices.IndexFunc(all, func(t TakenBack) bool { return t.Safety == r.Safety })
	switch {
	case i < 0:
		return append(all, TakenBack{Environment: environment, Checkpoint: r.To, Safety: r.Safety,
			Parts: []string{part}, At: r.At})
	case !slices.Contains(all[i].Parts, part):
		all[i].Parts = append(all[i].Parts, part)
		slices.Sort(all[i].Parts)
	}
	return all
}
