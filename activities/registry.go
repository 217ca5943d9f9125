package activities

import (
	"context"
	"fmt"
	"sort"
	"strings"
)

// World is a kind of thing that steps change: the actions over it and the journal that they share.
type World struct {
	// Name is the part of the actions' names before the first dot.
	Name string
	// Actions are its verbs.
	Actions []Action
	// Journal returns the random id of the world's journal on this worker, making the journal at the first call. It goes
	// into Entry.Place; the actions of the world alone interpret it, and refuse an id that is not theirs with WrongPlace.
	Journal func(ctx context.Context) (string, error)
}

// Registry holds the actions that a worker knows.
type Registry struct {
	worlds  map[string]World
	actions map[string]Action
}

// NewRegistry makes a registry of worlds. It panics on a name that is taken or does not belong to its world: a mistake in
// the program, not in its input.
func NewRegistry(worlds ...World) *Registry {
	r := &Registry{worlds: map[string]World{}, actions: map[string]Action{}}
	for _, w := range worlds {
		if _, taken := r.worlds[w.Name]; taken || w.Name == "" || w.Journal == nil {
			panic(fmt.Sprintf("activities: world %q is registered twice or has no journal", w.Name))
		}
		r.worlds[w.Name] = w
		for _, a := range w.Actions {
			s := a.Spec()
			if WorldOf(s.Name) != w.Name || r.actions[s.Name] != nil {
				panic(fmt.Sprintf("activities: action %q is registered twice or outside its world %q", s.Name, w.Name))
			}
			r.actions[s.Name] = a
		}
	}
	return r
}

// Action returns the action of that name, or nil.
func (r *Registry) Action(name string) Action { return r.actions[name] }

// Specs lists all actions by name.
func (r *Registry) Specs() []Spec {
	specs := make([]Spec, 0, len(r.actions))
	for _, a := range r.actions {
		specs = append(specs, a.Spec())
	}
	sort.Slice(specs, func(i, j int) bool { return specs[i].Name < specs[j].Name })
	return specs
}

// Journals returns the journal id of every world by its name, and what is wrong with the worlds that have none to tell:
// an engine that does not answer keeps nobody from working in the other worlds.
func (r *Registry) Journals(ctx context.Context) (ids, problems map[string]string) {
	ids, problems = map[string]string{}, map[string]string{}
	for name, w := range r.worlds {
		id, err := w.Journal(ctx)
		if err != nil {
			problems[name] = err.Error()
			continue
		}
		ids[name] = id
	}
	return ids, problems
}

// WorldOf is the world of an action's name: "file" of "file.write".
func WorldOf(action string) string {
	world, _, _ := strings.Cut(action, ".")
	return world
}
