package helper

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-62bf7108/unwind/activities/container/overlay/stack"
	"github.com/seed-62bf7108/unwind/internal/filelock"
)

// stacks are those of all containers, below one folder.
type stacks struct {
	dir      string
	patience time.Duration
	alone    time.Duration
	// starting is how long a container that has been started may need until its own program runs.
	starting time.Duration
	// leaving is how long somebody who is in layers that are taken off is waited for.
	leaving time.Duration
	// least is the room that a checkpoint is taken with.
	least Room
	// owns says whether a process is the container's: its number may have gone to another.
	owns func(pid int, container string) bool

	memory memory
}

// open is a container's book, under its lock.
type open struct {
	*book
	dir      string
	memory   *memory
	lock     *filelock.Lock
	target   *stack.Target // nil where the container does not run
	born     string        // tells this start of the container from others
	survey   stack.Survey
	shown    *stack.Top // nil where the container's own root shows
	patience time.Duration
	starting time.Duration
	leaving  time.Duration
	least    Room
	// cramped says that the disk was found full: the spare is given up for what makes room.
	cramped bool
}

var containerID = regexp.MustCompile(`^[0-9a-f]{12,64}$`)

func doorOf(dir string, n int) string { return filepath.Join(dir, "doors", strconv.Itoa(n)) }

// room is the folder behind the door of an upper layer. No other layer, and no other book, has one of its name.
func (b *book) room(upper int) string { return b.ID + "-" + strconv.Itoa(upper) }

// open takes the container's lock, and brings what stands on the container to what is in its book. pid is its first
// process; 0 where it does not run.
func (s *stacks) open(ctx context.Context, container string, pid int, cramped bool) (o *open, err error) {
	if !containerID.MatchString(container) {
		return nil, failure(Failed, "%q is not a container's id", container)
	}
	dir := filepath.Join(s.dir, container)
	if err := os.MkdirAll(filepath.Join(dir, "doors"), 0o755); err != nil {
		return nil, err
	}
	o = &open{dir: dir, memory: &s.memory, patience: s.patience, starting: s.starting, leaving: s.leaving, least: s.least, cramped: cramped}
	if o.lock, err = lock(ctx, filepath.Join(dir, "lock"), s.patience); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			o.close()
		}
	}()
	if o.book, err = s.memory.readBook(dir, container); err != nil {
		return o, err
	}
	if err := o.miss(); err != nil {
		return o, err
	}
	if pid == 0 {
		return o, nil
	}
	if o.target, err = s.target(container, pid); err != nil {
		return o, err
	}
	born, err := o.target.Born()
	if o.born = boot() + " " + born; err != nil {
		return o, err
	}
	return o, o.settle(ctx)
}

// target opens a container whose first process is pid, as its engine says.
func (s *stacks) target(container string, pid int) (*stack.Target, error) {
	t, err := stack.Open(pid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, failure(Unfit, "process %d, which the engine names as the container's first, is not on this host", pid)
	}
	if err != nil {
		return nil, err
	}
	if !s.owns(pid, container) {
		t.Close()
		return nil, failure(Unfit, "process %d, which the engine names as the container's first, is not in a control group of it on this host", pid)
	}
	return t, nil
}

// stopped takes a change that was begun for made, where the container does not run: its start will complete it, see settle.
func (o *open) stopped() {
	if o.Doing != nil {
		o.done(*o.Doing)
	}
}

func (o *open) close() {
	if o.cramped {
		_ = o.keepSpare() // what is left of it
	}
	if o.target != nil {
		o.target.Close()
	}
	o.lock.Release()
}

// settle finishes what has begun, or takes it back, and shows the layers again that a restart has taken away.
func (o *open) settle(ctx context.Context) error {
	if err := o.look(); err != nil { // what another helper is at is not for this one to finish
		return err
	}
	if o.survey.Unfinished() {
		if err := o.target.Finish(); err != nil {
			return err
		}
		if err := o.look(); err != nil {
			return err
		}
	}
	if err := o.clothe(); err != nil {
		return err
	}
	if o.Doing != nil {
		if err := o.conclude(ctx, *o.Doing); err != nil {
			return err
		}
	}
	switch {
	case o.Upper == 0 && o.shown == nil, o.shown != nil && o.number() == o.Upper:
		return nil
	case o.shown != nil:
		return failure(Damaged, "layer %s stands over the container's root, and its book says %d", o.shown.Name, o.Upper)
	}
	if o.Owed && o.commitOwed(ctx) == nil { // else it is shown
		return nil
	}
	if _, err := o.fit(ctx); err != nil {
		return err
	}
	if err := o.show(ctx, change{Lower: o.newest()}); err != nil {
		return err
	}
	return o.look()
}

// happened says whether a change that was begun has been made. Where nothing shows there was a restart: more may have been done
// than was written, and nobody is left to be ended. But a first layer of which nothing shows in that very start of the container
// has never been shown.
func (o *open) happened(c change) bool {
	if o.shown != nil {
		return o.number() == c.Upper
	}
	return c.Old != nil || c.Born != o.born
}

// conclude completes a change, or strikes it out of the book.
func (o *open) conclude(ctx context.Context, c change) error {
	switch {
	case !o.happened(c):
	case c.Upper == 0:
		return o.lift(ctx)
	default:
		return o.complete(ctx, c, false)
	}
	o.Doing = nil
	delete(o.Below, c.Upper)
	if err := o.write(o.dir, false); err != nil {
		return err
	}
	return o.remove(c.Upper) // at once: there may be no other room for the next
}

// remove removes a layer that no list names.
func (o *open) remove(n int) error {
	return errors.Join(os.RemoveAll(doorOf(o.dir, n)), os.RemoveAll(filepath.Join(o.dir, strconv.Itoa(n))))
}

// look reads what stands on the container.
func (o *open) look() error {
	s, err := o.target.Survey()
	o.survey, o.shown = s, nil
	if err != nil {
		return err
	}
	if n := len(s.Tops); n > 0 {
		o.shown = &s.Tops[n-1]
	}
	all := s.Tops
	if s.Aside != nil {
		all = append(slices.Clone(all), *s.Aside)
	}
	for _, top := range all {
		if !strings.HasPrefix(top.Name, o.ID+":") {
			return failure(Foreign, "layers that are in another worker's book stand on the container")
		}
	}
	return nil
}

// number is that of the upper layer which is shown.
func (o *open) number() int {
	if o.shown == nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimPrefix(o.shown.Name, o.ID+":"))
	return n
}

// fit says as an Unfit why no layers may stand on the container now. It counts who stands in those that do.
func (o *open) fit(ctx context.Context) (users int, err error) {
	if o.target == nil {
		return 0, failure(Unfit, "the container does not run")
	}
	if o.shown == nil {
		if err := o.target.Started(ctx, o.starting); err != nil {
			return 0, err
		}
		if err := o.look(); err != nil {
			return 0, err
		}
	}
	if err := o.target.Fit(o.survey); err != nil {
		return 0, err
	}
	if o.shown == nil {
		if err := o.bears(); err != nil {
			return 0, err
		}
	}
	return o.target.Quiet(o.survey)
}

// bears says as an Unfit that the container's own root bears no overlay. It is tried once in each of the container's starts.
func (o *open) bears() error {
	if o.memory.bears(o.Container, o.born) {
		return nil
	}
	dir, err := os.MkdirTemp(o.dir, trash) // a killed helper's is found by the next sweep
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := o.target.Try(dir); err != nil {
		return err
	}
	o.memory.bore(o.Container, o.born)
	return nil
}

func (o *open) view(lower, upper int) stack.View {
	return stack.View{Dir: o.dir, Name: o.ID + ":" + strconv.Itoa(upper), Lower: o.fewer(lower), Upper: upper, Door: doorOf(o.dir, upper)}
}

// show makes a change of the top with a new upper layer. The survey is the one of before.
func (o *open) show(ctx context.Context, c change) (err error) {
	if o.cramped {
		if err := o.giveSpare(ctx, c); err != nil {
			return err
		}
	}
	if !o.cramped || len(o.fewer(c.Lower)) > mostMounted {
		if err := o.merge(c.Lower); err != nil {
			return err
		}
	}
	c.Upper, c.Old, c.Born = o.Next, o.shown, o.born
	o.Next, o.Doing, o.Below[c.Upper] = o.Next+1, &c, c.Lower
	// A helper that was killed before it wrote its book may have used the number.
	if err := errors.Join(os.RemoveAll(filepath.Join(o.dir, strconv.Itoa(c.Upper))), stack.MakeLayer(o.dir, c.Upper)); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(doorOf(o.dir, c.Upper), o.room(c.Upper)), 0o755); err != nil {
		return err
	}
	if o.target == nil {
		o.Bare = append(o.Bare, c.Upper)
		if err := o.write(o.dir, false); err != nil {
			return err
		}
		return o.complete(ctx, c, false)
	}
	top, vacant, err := o.put(ctx, c, o.writing())
	if err != nil {
		return err
	}
	o.shown = &top
	return o.complete(ctx, c, vacant)
}

// writing begins to put the book on the disk. The book may not be changed before written has returned.
func (o *open) writing() (written func() error) {
	done := make(chan error, 1)
	write := func() { done <- o.write(o.dir, false) }
	if o.cramped { // what is made meanwhile needs the room that writing makes
		write()
	} else {
		go write()
	}
	return sync.OnceValue(func() error { return <-done })
}

// put shows the top of a change as soon as the change is written. One helper at a time covers a container's own root: another
// home's helper has another lock. Vacant says that nobody stood in what was the top.
func (o *open) put(ctx context.Context, c change, written func() error) (top stack.Top, vacant bool, err error) {
	defer func() {
		if failed := written(); err == nil {
			err = failed
		}
	}()
	if o.shown == nil {
		held, err := lockHost(ctx, o.patience)
		if err != nil {
			return top, false, err
		}
		defer held.Release()
		if err := o.look(); err != nil {
			return top, false, err
		}
	}
	return o.target.Show(o.survey, o.view(c.Lower, c.Upper), !c.Ends, written)
}

// mostMounted is the most lower layers that a kernel takes. Where there is no room to merge them, it gets them all.
const mostMounted = 490

// merge makes one layer of all but the newest, where there are many.
func (o *open) merge(lower int) error {
	many := o.fewer(lower)
	if len(many) <= mostLower {
		return nil
	}
	many = many[:len(many)-leastLower]
	m := merged{Upto: many[len(many)-1], As: o.Next}
	o.Next++
	if err := stack.Merge(o.dir, many, m.As); err != nil { // what there is of it takes room
		return errors.Join(err, o.remove(m.As))
	}
	o.Merged, o.Below[m.As] = append(o.Merged, m), 0
	return nil
}

// complete ends a change whose new top shows. Who stood in the old one is ended or, where a checkpoint was taken of it,
// noted: he may go on writing there. Vacant says that there is nobody.
func (o *open) complete(ctx context.Context, c change, vacant bool) error {
	if c.Old != nil && o.shown != nil && o.shown.Dev != c.Old.Dev {
		if err := o.leave(ctx, c, vacant); err != nil {
			return err
		}
	}
	o.done(c)
	if err := o.write(o.dir, c.Upper != 0); err != nil || !c.Ends && c.Upper != 0 {
		return err // what is added frees nothing
	}
	return o.sweep(o.dir)
}

func (o *open) leave(ctx context.Context, c change, vacant bool) error {
	if c.Ends {
		return o.target.End(ctx, *c.Old, vacant)
	}
	if !c.Takes || vacant {
		return nil
	}
	users, err := o.target.Users(*c.Old)
	if users > 0 {
		o.Busy[c.Mark] = true
	}
	return err
}

// forget removes all that is kept of a container.
func (s *stacks) forget(ctx context.Context, container string) error {
	dir := filepath.Join(s.dir, container)
	if _, err := os.Stat(dir); !containerID.MatchString(container) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	held, err := lock(ctx, filepath.Join(dir, "lock"), s.patience)
	if err != nil {
		return err
	}
	defer held.Release()
	s.memory.forget(container)
	err = os.RemoveAll(dir)
	stack.LetGo()
	return err
}

// containers lists those that have a book.
func (s *stacks) containers() ([]string, error) {
	names, err := os.ReadDir(s.dir)
	var ids []string
	for _, n := range names {
		if hasBook(filepath.Join(s.dir, n.Name())) && containerID.MatchString(n.Name()) {
			ids = append(ids, n.Name())
		}
	}
	return ids, err
}
