package activities

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// World is a kind of thing that steps change: the actions over it and the journal that they share.
type World struct {
	// Name is the part of the actions' names before the first dot.
	Name string
	// Actions are its verbs.
	Actions []Action
	// Journal returns the random id of the world's journal on this worker, making the journal at the
	// first call, and a new epoch of the journal after a tilde: see journal.Journal.Mark. It goes into
	// Entry.Place; the actions of the world alone interpret it, refuse an id that is not theirs with
	// WrongPlace, and an epoch that they do not know, since the journal was rewound, with
	// DamagedRecord.
	Journal func(ctx context.Context) (string, error)
	// Watch reacts to what happens to the world's resources outside its actions, until ctx ends. A
	// worker runs it while it serves the world, and waits for its end. Nil if nothing has to be
	// watched.
	Watch func(ctx context.Context)
	// Records lists what the journal holds, for retention and for finding orphans. Nil if the world
	// keeps nothing on the worker.
	Records Records
	// Notices are what a worker says about the world when it starts: what is not as safe here as it
	// could be.
	Notices []string
	// Prepare is called when a worker starts, before it takes a step. It prepares what the first step
	// would wait for, and fails if the world cannot do what its config requires. Nil if there is
	// nothing to prepare.
	Prepare func(ctx context.Context) error
}

// Registry holds the actions that a worker knows.
type Registry struct {
	worlds  map[string]World
	actions map[string]Action
	specs   []Spec // sorted by name
}

// NewRegistry makes a registry of worlds. It panics on a name that is taken or does not belong to
// its world, which is a mistake in the program, not in its input.
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
			if _, resets := a.(Resetter); resets != (s.Reset != "") {
				panic(fmt.Sprintf("activities: action %q must both say and have a Reset, or neither", s.Name))
			}
			if _, commits := a.(Committer); commits != s.Commits {
				panic(fmt.Sprintf("activities: action %q must both say and have a Commit, or neither", s.Name))
			}
			if _, preflights := a.(Preflighter); preflights != s.Preflights {
				panic(fmt.Sprintf("activities: action %q must both say and have a Preflight, or neither", s.Name))
			}
			for _, name := range s.UndoOutputs {
				if _, named := s.Outputs[name]; !named {
					panic(fmt.Sprintf("activities: the undo of action %q needs the output %q, which its Outputs do not name", s.Name,
						name))
				}
			}
			r.actions[s.Name] = a
			r.specs = append(r.specs, s)
		}
	}
	slices.SortFunc(r.specs, func(a, b Spec) int { return strings.Compare(a.Name, b.Name) })
	return r
}

// Watch runs the watches of all worlds until ctx ends, and returns when they have ended.
func (r *Registry) Watch(ctx context.Context) {
	var wg sync.WaitGroup
	for _, w := range r.worlds {
		if w.Watch != nil {
			wg.Go(func() { w.Watch(ctx) })
		}
	}
	wg.Wait()
}

// Action returns the action with that name, or nil.
func (r *Registry) Action(name string) Action { return r.actions[name] }

// Specs lists all actions by name, as they were when the registry was made: each step of a session
// asks for them twice, and to make the schemas takes as long as all else that a worker does for it.
func (r *Registry) Specs() []Spec { return slices.Clone(r.specs) }

// Notices returns the notices of all worlds.
func (r *Registry) Notices() []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(r.worlds)) {
		all = append(all, r.worlds[name].Notices...)
	}
	return all
}

// Records returns the journals that can be listed, by the name of their world.
func (r *Registry) Records() map[string]Records {
	all := map[string]Records{}
	for name, w := range r.worlds {
		if w.Records != nil {
			all[name] = w.Records
		}
	}
	return all
}

// journalLimit is how long a world may take to return its journal's id.
const journalLimit = 5 * time.Second

// Journals returns the journal id of every world by its name, and what is wrong with worlds that
// return none: an engine that does not answer must not block the other worlds. All are asked at
// once.
func (r *Registry) Journals(ctx context.Context) (ids, problems map[string]string) {
	ctx, cancel := context.WithTimeout(ctx, journalLimit)
	defer cancel()
	type answer struct {
		world, id string
		err       error
	}
	answers := make(chan answer, len(r.worlds)) // buffered for all, so that a late one does not block
	problems = map[string]string{}
	for name, w := range r.worlds {
		problems[name] = fmt.Sprintf("the world did not answer within %s", journalLimit)
		go func() {
			id, err := w.journalID(ctx)
			answers <- answer{name, id, err}
		}()
	}
	ids = map[string]string{}
	for range r.worlds {
		select {
		case a := <-answers:
			if a.err != nil {
				problems[a.world] = a.err.Error()
				continue
			}
			delete(problems, a.world)
			ids[a.world] = a.id
		case <-ctx.Done(): // not every world respects it
			return ids, problems
		}
	}
	return ids, problems
}

// journalID returns the journal's id. It turns a panic, which would end the whole worker, into an
// error.
func (w World) journalID(ctx context.Context) (id string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("world %s panicked: %v", w.Name, p)
		}
	}()
	return w.Journal(ctx)
}

// WorldOf returns the world in an action's name: "file" for "file.write".
func WorldOf(action string) string {
	world, _, _ := strings.Cut(action, ".")
	return world
}
