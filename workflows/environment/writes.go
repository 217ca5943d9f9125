package environment

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// Which tasks have changed a part is known where the part is: by the undo records of their steps. So
// nothing has to be told to an environment, and nothing can be forgotten on the way. What a worker has
// forgotten is not known, and said so.

// WritesRequest is the argument of WritesActivity.
type WritesRequest struct {
	Environment string         `json:"environment"`
	Parts       []NamedForTask `json:"parts"`
}

// NamedForTask is a part as a step would name it that puts it back.
type NamedForTask struct {
	Part string          `json:"part"`
	Uses string          `json:"uses"`
	With json.RawMessage `json:"with"`
}

// Writes are what the records of a host know.
type Writes struct {
	All []Write `json:"all"`
	// Since is the time from which on nothing is forgotten, Unread is what could not be read.
	Since  time.Time `json:"since"`
	Unread []string  `json:"unread,omitempty"`
	// Blind are parts of whose own world the records could not be listed now.
	Blind []string `json:"blind,omitempty"`
}

// Write is the last change of a part by a task of what stands or may stand.
type Write struct {
	Task string    `json:"task"`
	Part string    `json:"part"`
	At   time.Time `json:"at"`
	// Open: the task has not ended. Otherwise Ended is when it did; zero if the server no longer knows.
	Open  bool      `json:"open,omitempty"`
	Ended time.Time `json:"ended,omitzero"`
}

// Tasks are those that have changed parts of an environment, the newest first.
type Tasks struct {
	Tasks []TaskWrote `json:"tasks"`
	// Since is the time from which on all of them are known; before that, some may be forgotten.
	Since time.Time `json:"known_since"`
	// Unread says which records could not be read, and Silent are the hosts that have not answered.
	Unread []string `json:"unread,omitempty"`
	Silent []string `json:"silent,omitempty"`
	// Blind are parts of whose own world the records could not be listed now.
	Blind []string `json:"blind,omitempty"`
}

// TaskWrote is a task that has changed parts, by its last change of any of them.
type TaskWrote struct {
	Task  string      `json:"task"`
	Parts []PartWrote `json:"parts"`
	At    time.Time   `json:"at"`
	Open  bool        `json:"open,omitempty"`
	Ended time.Time   `json:"ended,omitzero"`
}

// PartWrote is the last change of a part by a task.
type PartWrote struct {
	Part string    `json:"part"`
	At   time.Time `json:"at"`
}

// Names are the parts that the task has changed.
func (t TaskWrote) Names() (names []string) {
	for _, p := range t.Parts {
		names = append(names, p.Part)
	}
	return names
}

func (t *TaskWrote) add(p PartWrote) {
	i := slices.IndexFunc(t.Parts, func(have PartWrote) bool { return have.Part == p.Part })
	switch {
	case i < 0:
		t.Parts = append(t.Parts, p)
		slices.SortFunc(t.Parts, func(a, b PartWrote) int { return cmp.Compare(a.Part, b.Part) })
	case p.At.After(t.Parts[i].At):
		t.Parts[i].At = p.At
	}
	if p.At.After(t.At) {
		t.At = p.At
	}
}

// maxEnded is how many writes of tasks that have ended a host tells of, and maxPast how many tasks a
// rollback: all of them would not fit into an answer.
const (
	maxEnded = 1000
	maxPast  = 100
)

// Merge adds a write: of each task and part only the last is told.
func (w *Writes) Merge(one Write) {
	i := slices.IndexFunc(w.All, func(have Write) bool { return have.Task == one.Task && have.Part == one.Part })
	if i < 0 {
		w.All = append(w.All, one)
		return
	}
	have := &w.All[i]
	have.Open = have.Open || one.Open
	if one.At.After(have.At) {
		have.At = one.At
	}
}

// Fit drops the oldest of the writes of tasks that have ended, where they are too many, and says so.
// Those of open ones all stay.
func (w *Writes) Fit() {
	slices.SortFunc(w.All, func(a, b Write) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Task, b.Task)) })
	ended, dropped := 0, 0
	w.All = slices.DeleteFunc(w.All, func(one Write) bool {
		if one.Open {
			return false
		}
		if ended++; ended > maxEnded {
			dropped++
		}
		return ended > maxEnded
	})
	if dropped > 0 {
		w.Unread = append(w.Unread, activities.CountOf(dropped, "earlier change")+" by tasks that have ended")
	}
}

// NamesOn are the parts on a host of an environment that is at home on another, or there.
func (d Document) NamesOn(host, home string) (all []NamedForTask) {
	for _, name := range d.partNames() {
		if p := d.Parts[name]; d.hostOf(p, home) == host {
			k, resource := p.kindOf()
			with, _ := json.Marshal(map[string]string{k.param: resource}) // texts
			all = append(all, NamedForTask{Part: name, Uses: k.restore, With: with})
		}
	}
	return all
}

// OnlyLooks reports whether an action keeps or reads parts, and changes none.
func OnlyLooks(action string) bool {
	return slices.ContainsFunc(kinds, func(k kind) bool {
		return slices.Contains([]string{k.capture, k.verify, k.compare}, action)
	})
}

// Add adds what a host has told.
func (t *Tasks) Add(w Writes) {
	if t.Since.Before(w.Since) {
		t.Since = w.Since
	}
	t.Unread, t.Blind = append(t.Unread, w.Unread...), append(t.Blind, w.Blind...)
	for _, each := range w.All {
		i := slices.IndexFunc(t.Tasks, func(have TaskWrote) bool { return have.Task == each.Task })
		if i < 0 {
			i = len(t.Tasks)
			t.Tasks = append(t.Tasks, TaskWrote{Task: each.Task, Ended: each.Ended})
		}
		have := &t.Tasks[i]
		have.Open = have.Open || each.Open
		have.add(PartWrote{each.Part, each.At})
	}
	slices.SortFunc(t.Tasks, newestFirst)
}

func newestFirst(a, b TaskWrote) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Task, b.Task)) }

// Past are the tasks whose changes a rollback to a checkpoint takes back: those that have changed one
// of its parts since it was taken, each with these parts only.
func (t Tasks) Past(to Checkpoint) (past []TaskWrote) {
	for _, each := range t.Tasks {
		gone := each
		gone.Parts, gone.At = nil, time.Time{}
		for _, p := range each.Parts {
			isIt := func(kept KeptPart) bool { return kept.Name == p.Part }
			if p.At.After(to.Created) && slices.ContainsFunc(to.Parts, isIt) {
				gone.add(p)
			}
		}
		if len(gone.Parts) > 0 {
			past = append(past, gone)
		}
	}
	slices.SortFunc(past, newestFirst)
	return past
}

// FitPast drops the oldest of the tasks that a rollback goes past where they are too many, and
// returns how many.
func FitPast(past []TaskWrote) (fits []TaskWrote, more int) {
	fits = past[:min(len(past), maxPast)]
	return fits, len(past) - len(fits)
}

// Unknown says what is not known of the tasks whose changes a rollback to a checkpoint takes back.
func (t Tasks) Unknown(to Checkpoint) (notes []string) {
	if to.Created.Before(t.Since) {
		notes = append(notes, "which tasks have changed its parts before "+t.Since.UTC().Format(time.RFC3339)+
			" is not known any more")
	}
	for _, what := range t.Unread {
		notes = append(notes, "which tasks have changed its parts is not known for all: "+what)
	}
	return notes
}
