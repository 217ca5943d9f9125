package activities

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// Place is where a step's effects and journal live.
type Place struct {
	// Queue is the task queue of all attempts of the step and of its undo.
	Queue string `json:"queue"`
	// Host is the host that serves Queue; empty for the shared queue.
	Host string `json:"host,omitempty"`
	// Journal is the random id of the journal and its epoch, from World.Journal. A world refuses any
	// other id with WrongPlace, and an epoch that its journal does not know with DamagedRecord.
	Journal string `json:"journal"`
	// Signed means that its worker takes only signed decisions.
	Signed bool `json:"signed,omitempty"`
}

var epochs = regexp.MustCompile(`~[0-9a-f]+\.[0-9]+`)

// WithoutEpochs returns the place for what concerns steps of different epochs.
func (p Place) WithoutEpochs() Place {
	p.Journal = epochs.ReplaceAllString(p.Journal, "")
	return p
}

// JournalOf is the journal that the place names for a resource of its world, such as a database, in
// a list NAME=ID,...; empty if it names none.
func (p Place) JournalOf(name string) string {
	for each := range strings.SplitSeq(p.Journal, ",") {
		if of, id, _ := strings.Cut(each, "="); of == name {
			return id
		}
	}
	return ""
}

// NeverBegan is the outcome of the undo of a step on a database that did not answer when the task was
// compiled: its place names journals, and none of that database, and every forward is refused
// without.
func NeverBegan(e Entry, d Decision) (u Undone, is bool) {
	var p struct {
		Database string `json:"database"`
	}
	if d.Done || !strings.Contains(e.Place.Journal, "=") || json.Unmarshal(e.Params, &p) != nil ||
		e.Place.JournalOf(p.Database) != "" {
		return u, false
	}
	return Undone{Outcome: Nothing, Observed: fmt.Sprintf("the step never began: its entry names no journal of database "+
		"%s, which did not answer when the task was compiled, and no forward acts without", p.Database)}, true
}
