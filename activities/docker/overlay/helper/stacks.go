package helper

import (
	"cmp"
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

	"github.com/seed-62bf7108/unwind/activities/docker/overlay/layer"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/stack"
	"github.com/seed-62bf7108/unwind/internal/filelock"
)

// stacks are the books of all containers below one folder.
type stacks struct {
	dir      string
	patience time.Duration
	alone    time.Duration
	// startGrace is how long a started container may take to run its own program.
	starting time.Duration
	// leaveGrace is how long a process in layers being unmounted is waited for.
	leaving time.Duration
	// least is the free space that a checkpoint needs.
	least Room
	// owns reports whether a process is the container's: its PID may have been reused.
	owns func(pid int, container string) bool

	memory bookCache
}

// lockedBook is a container's book with its lock held.
type lockedBook struct {
	*book
	dir      string
	memory   *bookCache
	lock     *filelock.Lock
	target   *stack.Target // nil if the container is not running
	born     string        // identifies this start of the container
	survey   stack.Survey
	shown    *stack.Top // nil if the container's own root is visible
	patience time.Duration
	starting time.Duration
	leaving  time.Duration
	least    Room
	// cramped: the disk was found full, so the spare is freed for what makes space.
	cramped bool
}

var containerID = regexp.MustCompile(`^[0-9a-f]{12,64}$`)

func doorOf(dir string, n int) string { return filepath.Join(dir, "doors", strconv.Itoa(n)) }

// doorFolder is the folder behind the door of an upper layer. Its name is unique among layers and
// books.
func (b *book) doorFolder(upper int) string { return b.ID + "-" + strconv.Itoa(upper) }

// process is the first process of a container. born identifies it; empty if its engine has just
// been asked for it.
type process struct {
	pid  int
	born string
}

// open locks the container and reconciles what is mounted over it with its book. The pid is 0 if it
// is not running.
func (s *stacks) open(ctx context.Context, container string, first process, cramped bool) (o *lockedBook, err error) {
	if !containerID.MatchString(container) {
		return nil, newFailure(Failed, "%q is not a container's id", container)
	}
	dir := filepath.Join(s.dir, container)
	if err := os.MkdirAll(filepath.Join(dir, "doors"), 0o755); err != nil {
		return nil, err
	}
	o = &lockedBook{dir: dir, memory: &s.memory, patience: s.patience, starting: s.starting, leaving: s.leaving,
		least: s.least, cramped: cramped}
	if o.lock, err = lockFile(ctx, filepath.Join(dir, "lock"), s.patience); err != nil {
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
	if err := o.findLostLayers(); err != nil {
		return o, err
	}
	if first.pid == 0 {
		return o, nil
	}
	if o.target, o.born, err = s.openTarget(container, first); err != nil {
		return o, err
	}
	return o, o.reconcile(ctx)
}

// openTarget opens a container by its first process.
func (s *stacks) openTarget(container string, first process) (t *stack.Target, born string, err error) {
	t, born, err = s.openProcess(container, first.pid)
	if first.born == "" || err == nil && born == first.born {
		return t, born, err
	}
	if t != nil {
		t.Close()
	}
	return nil, "", newFailure(Stale, "process %d is no longer the first of the container", first.pid)
}

// openProcess opens a container whose first process, according to its engine, is pid.
func (s *stacks) openProcess(container string, pid int) (t *stack.Target, born string, err error) {
	t, err = stack.Open(pid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "",
			newFailure(Unfit, "process %d, which the engine names as the container's first, is not on this host", pid)
	}
	if err != nil {
		return nil, "", err
	}
	if !s.owns(pid, container) {
		t.Close()
		return nil, "", newFailure(Unfit,
			"process %d, which the engine names as the container's first, is not in a control group of it on this host", pid)
	}
	if born, err = t.StartTime(); err != nil {
		t.Close()
		return nil, "", err
	}
	return t, bootID() + " " + born, nil
}

// assumeMade takes a pending change as made if the container is not running: its next start
// completes it, see reconcile.
func (o *lockedBook) assumeMade() {
	if o.Doing != nil {
		o.recordChange(*o.Doing)
	}
}

func (o *lockedBook) close() {
	if o.cramped {
		_ = o.keepSpare() // as much of it as is left
	}
	if o.target != nil {
		o.target.Close()
	}
	o.lock.Release()
}

// reconcile finishes or reverts a pending change, and mounts the layers again after a restart.
func (o *lockedBook) reconcile(ctx context.Context) error {
	if err := o.surveyTops(); err != nil { // another helper's work is not for this one to finish
		return err
	}
	if o.survey.InterruptedShow() {
		if err := o.target.FinishShow(); err != nil {
			return err
		}
		if err := o.surveyTops(); err != nil {
			return err
		}
	}
	if err := o.recreateBareLayers(); err != nil {
		return err
	}
	if o.Doing != nil {
		if err := o.concludeChange(ctx, *o.Doing); err != nil {
			return err
		}
	}
	switch {
	case o.Upper == 0 && o.shown == nil, o.shown != nil && o.shownLayer() == o.Upper:
		return nil
	case o.shown != nil:
		return newFailure(Damaged, "layer %s is mounted over the container's root, and its book says %d", o.shown.Name,
			o.Upper)
	}
	if o.Owed && o.commitOwed(ctx) == nil { // otherwise it is mounted below
		return nil
	}
	if _, err := o.checkFit(ctx); err != nil {
		return err
	}
	if err := o.showTop(ctx, topChange{Lower: o.newestLayer()}); err != nil {
		return err
	}
	return o.surveyTops()
}

// wasMade reports whether a pending change was made. If nothing is mounted there was a restart:
// more may have been done than was recorded, and no process is left to be ended. But a first layer
// that is not mounted in the very start of the container in which it was recorded never was.
func (o *lockedBook) wasMade(c topChange) bool {
	if o.shown != nil {
		return o.shownLayer() == c.Upper
	}
	return c.Old != nil || c.Born != o.born
}

// concludeChange completes a pending change, or removes it from the book.
func (o *lockedBook) concludeChange(ctx context.Context, c topChange) error {
	switch {
	case !o.wasMade(c):
	case c.Upper == 0:
		return o.removeTopAside(ctx, nil)
	default:
		return o.completeChange(ctx, c)
	}
	o.Doing = nil
	delete(o.Below, c.Upper)
	if err := o.writeBook(); err != nil {
		return err
	}
	return o.removeLayer(c.Upper) // now: there may be no other space for the next
}

// removeLayer removes a layer that is on no list.
func (o *lockedBook) removeLayer(n int) error {
	return errors.Join(os.RemoveAll(doorOf(o.dir, n)), os.RemoveAll(filepath.Join(o.dir, strconv.Itoa(n))))
}

// surveyTops reads what is mounted over the container's root.
func (o *lockedBook) surveyTops() error {
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
			return newFailure(Foreign, "layers of another worker are mounted on the container")
		}
	}
	return nil
}

// shownLayer is the number of the mounted upper layer.
func (o *lockedBook) shownLayer() int {
	if o.shown == nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimPrefix(o.shown.Name, o.ID+":"))
	return n
}

// checkFit returns an UnfitError if layers cannot be used on the container now. It counts the
// processes in those mounted.
func (o *lockedBook) checkFit(ctx context.Context) (users int, err error) {
	if o.target == nil {
		return 0, newFailure(Unfit, "the container is not running")
	}
	if o.shown == nil {
		if err := o.target.WaitStarted(ctx, o.starting); err != nil {
			return 0, err
		}
		if err := o.surveyTops(); err != nil {
			return 0, err
		}
	}
	users, err = o.checkSurveyed()
	if stack.IsUnfit(err) && o.shown == nil {
		// Another worker may have mounted its layers since: then the container is not unfit, but theirs.
		err = cmp.Or(o.surveyTops(), err)
	}
	return users, err
}

// checkSurveyed is checkFit as of the last survey.
func (o *lockedBook) checkSurveyed() (users int, err error) {
	if err := o.target.CheckFit(o.survey); err != nil {
		return 0, err
	}
	if o.shown == nil {
		if err := o.checkBearsOverlay(); err != nil {
			return 0, err
		}
	}
	return o.target.CheckIdle(o.survey)
}

// checkBearsOverlay returns an UnfitError if the container's own root cannot be a lower layer. It
// is tried once in each start of the container.
func (o *lockedBook) checkBearsOverlay() error {
	if o.memory.knowsBearer(o.Container, o.born) {
		return nil
	}
	dir, err := os.MkdirTemp(o.dir, trash) // a killed helper's is found by the next sweep
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := o.target.TryOverlay(dir); err != nil {
		return err
	}
	o.memory.addBearer(o.Container, o.born)
	return nil
}

func (o *lockedBook) view(lower, upper int) stack.View {
	return stack.View{Dir: o.dir, Name: o.ID + ":" + strconv.Itoa(upper), Lower: o.lowerToMount(lower), Upper: upper,
		Door: doorOf(o.dir, upper)}
}

// showTop changes to a top with a new upper layer, starting from the last survey.
func (o *lockedBook) showTop(ctx context.Context, c topChange) (err error) {
	if o.cramped {
		if err := o.giveSpare(ctx, c); err != nil {
			return err
		}
	}
	if !o.cramped || len(o.lowerToMount(c.Lower)) > mostMounted {
		if err := o.mergeLayers(c.Lower); err != nil {
			return err
		}
	}
	if o.Upper == 0 {
		o.Since = time.Now().UnixNano()
	}
	c.Upper, c.Old, c.Born = o.Next, o.shown, o.born
	o.Next, o.Doing, o.Below[c.Upper] = o.Next+1, &c, c.Lower
	if err := o.makeLayer(c.Upper); err != nil { // an incomplete one takes space
		return errors.Join(err, o.removeLayer(c.Upper))
	}
	if o.target == nil {
		o.Bare = append(o.Bare, c.Upper)
		if err := o.writeBook(); err != nil {
			return err
		}
		return o.completeChange(ctx, c)
	}
	top, vacant, err := o.mountTop(ctx, c, o.startWriting())
	if err != nil {
		return err
	}
	o.shown = &top
	if vacant {
		return o.completeVacantChange(ctx, c)
	}
	return o.completeChange(ctx, c)
}

// makeLayer makes an empty layer with its door.
func (o *lockedBook) makeLayer(n int) error {
	// A helper killed before it wrote its book may have used the number.
	if err := errors.Join(os.RemoveAll(filepath.Join(o.dir, strconv.Itoa(n))), layer.Make(o.dir, n)); err != nil {
		return err
	}
	return os.MkdirAll(filepath.Join(doorOf(o.dir, n), o.doorFolder(n)), 0o755)
}

// startWriting starts to write the book. The book must not change before written has returned.
func (o *lockedBook) startWriting() (written func() error) {
	done := make(chan error, 1)
	write := func() { done <- o.writeBook() }
	if o.cramped { // what is made meanwhile needs the space that writing frees
		write()
	} else {
		go write()
	}
	return sync.OnceValue(func() error { return <-done })
}

// mountTop mounts the top of a change as soon as the change is recorded. Only one helper at a time
// covers a container's own root: helpers of other homes use other locks. Vacant reports that no
// process used the former top.
func (o *lockedBook) mountTop(ctx context.Context, c topChange, written func() error) (top stack.Top, vacant bool,
	err error) {
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
		if err := o.surveyTops(); err != nil {
			return top, false, err
		}
	}
	return o.target.Show(o.survey, o.view(c.Lower, c.Upper), !c.Ends, written)
}

// mostMounted is the most lower layers that a kernel takes. If there is no space to merge them, all
// are mounted.
const mostMounted = 490

// mostCopied bounds what the files of merged layers may take that are copied, so that each shows
// the names that it has in the container: gzip and others refuse one with more.
const mostCopied = 64 << 20

// mergeLayers merges all but the newest into one layer, if there are many. Those whose files take
// much are all mounted, as long as a kernel takes them.
func (o *lockedBook) mergeLayers(lower int) error {
	many := o.lowerToMount(lower)
	full := len(many) > mostMounted
	if len(many) <= mostLower || !full && (len(many)-mostLower)%leastLower != 1 { // now and then: it reads them all
		return nil
	}
	many = many[:len(many)-leastLower]
	copies, err := o.mayCopy(many)
	if err != nil || !copies && !full {
		return err
	}
	m := mergedLayer{Upto: many[len(many)-1], As: o.Next}
	o.Next++
	if err := layer.Merge(o.dir, many, m.As, !copies); err != nil { // an incomplete layer takes space
		return errors.Join(err, o.removeLayer(m.As))
	}
	o.Merged, o.Below[m.As] = append(o.Merged, m), 0
	return nil
}

// mayCopy reports whether the files of layers are few enough, and the room is enough, to copy them
// all.
func (o *lockedBook) mayCopy(layers []int) (bool, error) {
	var takes int64
	for _, n := range layers {
		size, err := layer.Size(o.dir, n)
		if err != nil {
			return false, err
		}
		if takes += size; takes > mostCopied {
			return false, nil
		}
	}
	left, err := RoomAt(o.dir)
	return left.Holds(Room{o.least.Bytes + takes, o.least.Inodes}), err
}

// completeChange ends a change whose new top is mounted. Processes in the old one are ended or, if
// a checkpoint was taken of it, recorded, as they may go on writing there.
func (o *lockedBook) completeChange(ctx context.Context, c topChange) error {
	if o.hasFormerTop(c) {
		if err := o.settleFormerTop(ctx, c); err != nil {
			return err
		}
	}
	return o.endChange(c)
}

// completeVacantChange is completeChange where the kernel has reported the old top as unused.
func (o *lockedBook) completeVacantChange(ctx context.Context, c topChange) error {
	if c.Ends && o.hasFormerTop(c) {
		if err := o.target.EndHiddenUsers(ctx, *c.Old); err != nil {
			return err
		}
	}
	return o.endChange(c)
}

func (o *lockedBook) hasFormerTop(c topChange) bool {
	return c.Old != nil && o.shown != nil && o.shown.Dev != c.Old.Dev
}

// endChange records a change, and removes what it frees.
func (o *lockedBook) endChange(c topChange) error {
	o.recordChange(c)
	if err := o.writeBookTelling(c.Upper != 0); err != nil || !c.Ends && c.Upper != 0 {
		return err // what is added frees nothing
	}
	return o.sweepLayers()
}

func (o *lockedBook) settleFormerTop(ctx context.Context, c topChange) error {
	if c.Ends {
		return o.target.EndUsers(ctx, *c.Old)
	}
	if !c.Takes {
		return nil
	}
	users, err := o.target.Users(*c.Old)
	if users > 0 {
		o.Busy[c.Mark] = true
	}
	return err
}

// forgetContainer removes all that is kept of a container.
func (s *stacks) forgetContainer(ctx context.Context, container string) error {
	dir := filepath.Join(s.dir, container)
	if _, err := os.Stat(dir); !containerID.MatchString(container) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	held, err := lockFile(ctx, filepath.Join(dir, "lock"), s.patience)
	if err != nil {
		return err
	}
	defer held.Release()
	s.memory.forget(container)
	err = os.RemoveAll(dir)
	stack.CloseFormerTops()
	return err
}

// listContainers lists those that have a book.
func (s *stacks) listContainers() ([]string, error) {
	names, err := os.ReadDir(s.dir)
	var ids []string
	for _, n := range names {
		if hasBook(filepath.Join(s.dir, n.Name())) && containerID.MatchString(n.Name()) {
			ids = append(ids, n.Name())
		}
	}
	return ids, err
}
