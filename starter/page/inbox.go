package page

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// inbox knows what waits for a person in a namespace. It asks the server every second, and a task
// only when what the server lists of it has changed, or was read long ago: a page is shown from
// memory, however much waits.
type inbox struct {
	client *tasks.Client
	looked atomic.Int64 // when somebody looked last, in Unix seconds

	wake chan struct{} // has it read at once

	mu    sync.Mutex
	tasks map[string]waiting // by id
	// settled is when something was decided, by its digest: until its task is asked after that, it only
	// seems to wait.
	settled map[activities.Digest]time.Time
	at      time.Time     // when it was read last
	read    chan struct{} // closed once it is read the next time
	more    bool          // there are more than are known
	err     error
}

// waiting is a task that waits for a person.
type waiting struct {
	listed tasks.Listed
	items  []item
	read   time.Time
}

// item is one thing that waits.
type item struct {
	Task, Name, Agent string
	Step, Action      string
	Kind              kind
	Summary, Why      string
	Risk              activities.Risk
	Waits             string // whose approvals are missing
	Digest            activities.Digest
	Signed            bool // only signed decisions count
	Keys              []string
	// Until is when a gate counts as rejected; zero for what waits for as long as it takes.
	Until time.Time
}

// kind says what waits.
type kind string

const (
	gate     kind = "gate"         // a step before it runs
	failed   kind = "failed step"  // a step that has failed, and was undone
	undo     kind = "undo"         // an undo that needs a decision: the task is half undone
	stuck    kind = "stuck task"   // it can start no step
	silent   kind = "silent task"  // no worker says what waits
	unlisted kind = "further step" // beyond what a task shows
)

const (
	// lookAgain is how often the server is asked, while somebody looks.
	lookAgain = time.Second
	// readAgain is when a task is asked again of which the server lists nothing new, and maxAgain how
	// many of these are asked at a look: those that wait longest for it. All of them at once would hold
	// up what is new.
	readAgain = 30 * time.Second
	maxAgain  = 50
	// idleAfter is when nobody has looked for so long that nothing is asked.
	idleAfter = 2 * time.Minute
	// maxWaiting is how many tasks are known that wait; the page says so when there are more.
	maxWaiting = 5000
	// maxAsked is how many tasks are asked at once, and askLimit how long each has to answer.
	maxAsked = 8
	askLimit = 2 * time.Second
	// lookLimit is when a look begins to ask no further task: the others have their turn at the next,
	// which lists anew what waits. Else many tasks that no worker answers for would hide what is new.
	lookLimit = 5 * time.Second
	// patience is how long a page waits for a list that nobody has kept up to date.
	patience = 2 * time.Second
)

func newInbox(c *tasks.Client) *inbox {
	impatient := *c
	impatient.SilenceLimit = askLimit
	return &inbox{client: &impatient, tasks: map[string]waiting{}, settled: map[activities.Digest]time.Time{},
		wake: make(chan struct{}, 1), read: make(chan struct{})}
}

// watch keeps the inbox until ctx ends.
func (b *inbox) watch(ctx context.Context) {
	ticks := time.NewTicker(lookAgain)
	defer ticks.Stop()
	for {
		if time.Since(time.Unix(b.looked.Load(), 0)) < idleAfter {
			b.refresh(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		case <-b.wake:
		}
	}
}

// refresh asks the server which tasks wait, and those that have changed for what. What a task has
// answered is shown at once, however long others take.
func (b *inbox) refresh(ctx context.Context) {
	listed, more, err := b.client.ListWaiting(ctx, maxWaiting)
	news, again := b.list(listed, more, err)
	end := time.Now().Add(lookLimit)
	isWhole := b.askEach(ctx, news, end)
	b.askEach(ctx, again, end)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil && isWhole { // otherwise it is no finding: what was known stays, and the page says so
		b.at = time.Now()
	}
	close(b.read)
	b.read = make(chan struct{})
}

// askEach asks tasks for what waits, and says whether it has asked all of them before the end.
func (b *inbox) askEach(ctx context.Context, asked []tasks.Listed, end time.Time) (all bool) {
	var answering errgroup.Group
	answering.SetLimit(maxAsked)
	n := 0
	for ; n < len(asked) && time.Now().Before(end); n++ {
		t := asked[n]
		answering.Go(func() error {
			w := b.ask(ctx, t)
			b.mu.Lock()
			defer b.mu.Unlock()
			b.tasks[t.ID] = w
			return nil
		})
	}
	_ = answering.Wait() // none fails
	return n == len(asked)
}

// list takes over which tasks wait, and returns those that have to be asked for what: of which there is
// news, and those whose turn it is again.
func (b *inbox) list(listed []tasks.Listed, more bool, err error) (news, again []tasks.Listed) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err = err; err != nil {
		return nil, nil
	}
	b.more = more
	maps.DeleteFunc(b.settled, func(_ activities.Digest, at time.Time) bool { return time.Since(at) > readAgain })
	before := b.tasks
	b.tasks = make(map[string]waiting, len(listed))
	for _, t := range listed {
		w, isThere := before[t.ID]
		if isThere {
			b.tasks[t.ID] = w
		}
		switch {
		case !isThere, !sameWait(w.listed, t), w.read.IsZero(), len(b.waits(w)) < len(w.items):
			news = append(news, t)
		case time.Since(w.read) > readAgain:
			again = append(again, t)
		}
	}
	slices.SortStableFunc(again, func(x, y tasks.Listed) int { return before[x.ID].read.Compare(before[y.ID].read) })
	return news, again[:min(len(again), maxAgain)]
}

// sameWait says that the server lists nothing new of a task.
func sameWait(a, b tasks.Listed) bool {
	return a.RunID == b.RunID && a.Gate == b.Gate && a.Parked == b.Parked && a.Stuck == b.Stuck && a.Pending == b.Pending
}

// settle takes what was decided from the list at once.
func (b *inbox) settle(digest activities.Digest) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settled[digest] = time.Now()
}

// waits are the items of a task that were not decided since it was asked for them.
func (b *inbox) waits(w waiting) []item {
	return slices.DeleteFunc(slices.Clone(w.items), func(i item) bool { return w.read.Before(b.settled[i.Digest]) })
}

// forget has a task asked again: something was decided about it.
func (b *inbox) forget(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w, isThere := b.tasks[id]; isThere {
		w.read = time.Time{}
		b.tasks[id] = w
	}
}

// ask asks a task for what waits.
func (b *inbox) ask(ctx context.Context, t tasks.Listed) waiting {
	limited, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	w := waiting{listed: t, read: time.Now()} // what happens while it answers is asked about again
	s, err := b.client.QueryState(limited, t.ID, t.RunID)
	if err != nil {
		w.items = []item{{Task: t.ID, Name: t.Name, Agent: t.Agent, Kind: silent,
			Step: cmp.Or(t.Gate, t.Parked), Summary: "no worker says what waits: " + err.Error()}}
		return w
	}
	w.items = itemsOf(s)
	return w
}

// itemsOf lists what waits at a task.
func itemsOf(s protocol.State) (items []item) {
	actions := map[string]string{}
	for _, v := range s.Steps {
		actions[v.ID] = v.Uses
	}
	add := func(i item) {
		i.Task, i.Name, i.Agent, i.Action = s.Task, s.Name, s.Agent, cmp.Or(i.Action, actions[i.Step])
		items = append(items, i)
	}
	if s.Stuck != "" {
		add(item{Kind: stuck, Summary: s.Stuck})
	}
	if s.Report != nil {
		for _, u := range s.Report.Steps {
			if compensations.UndoState(u.State) == compensations.Parked {
				add(item{Kind: undo, Step: u.Step, Action: u.Action, Summary: u.Reason, Digest: u.Digest})
			}
		}
	}
	for _, p := range s.Parks {
		add(item{Kind: failed, Step: p.Step, Action: p.Uses, Summary: p.Reason, Digest: p.Digest})
	}
	for _, g := range s.Gates {
		add(item{Kind: gate, Step: g.Step, Summary: g.Change.Summary, Why: g.Why, Risk: g.Change.Risk, Waits: g.Waits,
			Digest: g.Digest, Signed: g.Signed, Keys: g.Change.Keys, Until: g.Until})
	}
	if more := s.MoreGates + s.MoreParks; more > 0 {
		add(item{Kind: unlisted, Summary: activities.CountOf(more, "more step") + " of this task"})
	}
	return items
}

// all lists what waits, the most urgent first: what leaves a task half undone, then by the time
// that is left. It also says what prevented the last look; "" if nothing did.
func (b *inbox) all(ctx context.Context) (items []item, problem string) {
	b.looked.Store(time.Now().Unix())
	b.mu.Lock()
	isOld, read := time.Since(b.at) > patience+lookAgain, b.read
	b.mu.Unlock()
	if isOld {
		b.await(ctx, read)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.tasks {
		items = append(items, b.waits(w)...)
	}
	slices.SortFunc(items, func(a, b item) int {
		return cmp.Or(a.Until.Compare(b.Until), cmp.Compare(a.Task, b.Task), cmp.Compare(a.Step, b.Step))
	})
	switch {
	case b.err != nil:
		problem = "The list may be out of date: " + b.err.Error()
	case b.at.IsZero():
		problem = "The list is being read."
	case time.Since(b.at) > patience+lookAgain:
		problem = "The list is not up to date yet: the server, or a task, takes its time to answer."
	case b.more:
		problem = fmt.Sprintf("More tasks wait than the %d that were started last, which are shown.", maxWaiting)
	}
	return items, problem
}

// await has the list read, and waits for that, though not for long.
func (b *inbox) await(ctx context.Context, read <-chan struct{}) {
	select {
	case b.wake <- struct{}{}:
	default:
	}
	select {
	case <-read:
	case <-ctx.Done():
	case <-time.After(patience):
	}
}

// count is how much waits, as far as that is known.
func (b *inbox) count() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.tasks {
		n += len(b.waits(w))
	}
	return n
}
