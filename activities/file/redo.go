package file

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// rollback is an undo that has kept what it took away. A redo stages copies of that, and then is a forward like any other;
// what is kept stays where it is until it is released.
type rollback struct {
	held
	rec  record
	plan plan
	// of says for each change of the draft which change of the record it does again.
	of []int
}

// how is the root that a forward changes, with a function that stages its change: as its parameters say, or what an
// earlier generation had left.
func (a *action) how(e activities.Entry, s activities.Step) (*root, func(context.Context, *draft) error, error) {
	if e.Redoes != "" {
		b, err := a.rolledBack(e)
		if err != nil {
			return nil, nil, err
		}
		if b != nil {
			return b.root, b.stage, nil
		}
	}
	return a.in(a.world, s)
}

// rolledBack finds what the entry is to do again. Nil: that had changed nothing, so it goes forward for the first time.
func (a *action) rolledBack(e activities.Entry) (*rollback, error) {
	e.Token = e.Redoes
	all, err := a.tokens(e)
	if err != nil {
		return nil, err
	}
	over, acted := false, false
	for _, h := range all {
		var undone activities.Undone
		found, err := h.token.Read(journal.Outcome, &undone)
		if err != nil {
			return nil, err
		}
		over = over || found
		acted = acted || found && undone.Outcome != activities.Nothing
	}
	h, rec, err := a.recorded(e)
	switch {
	case err != nil:
		return nil, err
	case !over:
		return nil, activities.Errorf(activities.Refused, "token %s has not been rolled back, or was forgotten since: there is nothing to redo; run its task again", e.Token)
	case !acted:
		return nil, nil //nolint:nilnil // see above
	case rec == nil:
		return nil, activities.Errorf(activities.Refused, "what the rollback of token %s had kept is released: its time is over; run its task again", e.Token)
	}
	b := &rollback{held: h, rec: *rec}
	if _, err := h.token.Read(planDoc, &b.plan); err != nil {
		return nil, err
	}
	if len(b.plan.Kept) != len(rec.Ops) || len(rec.Given) == 0 {
		return nil, activities.Errorf(activities.Refused, "the undo of token %s has kept nothing for a redo; run its task again", e.Token)
	}
	return b, nil
}

// stage makes a draft of what the rollback has kept.
func (b *rollback) stage(ctx context.Context, d *draft) error {
	d.redo = b
	folder, err := b.folder()
	if err != nil {
		return err
	}
	for i, o := range b.rec.Ops {
		kept := b.plan.Kept[i]
		if kept.is(o.Pre) {
			continue // of this, the rollback has taken nothing away
		}
		if _, there, err := b.timeOf(filepath.Dir(o.Target)); err != nil {
			return err
		} else if !there {
			return b.strayed(o)
		}
		again := op{Target: o.Target, Private: o.Private}
		if kept.is(o.Post) {
			again.Text = o.Text
		}
		n, err := d.slot(again)
		if err != nil {
			return err
		}
		b.of = append(b.of, i)
		if err := b.restage(ctx, filepath.Join(folder, o.ticket(i)), d.ticket(n), kept); err != nil {
			return err
		}
	}
	if len(b.of) == 0 {
		return activities.Errorf(activities.Refused, "the rollback of token %s has taken nothing away: there is nothing to redo", b.id)
	}
	for _, g := range b.rec.Given {
		if n := slices.Index(b.of, g.Op); n >= 0 {
			g.Op = n
			d.rec.Given = append(d.rec.Given, g)
		}
	}
	return nil
}

// restage copies what is kept of one change.
func (b *rollback) restage(ctx context.Context, from, to string, kept tree) error {
	if !kept.there() {
		return nil
	}
	held, err := b.atTicket(ctx, from)
	if err != nil {
		return err
	}
	if !held.is(kept) {
		return activities.Errorf(activities.DamagedRecord,
			"what the rollback has kept at %s is not as it was taken away; nothing was touched: run the task again", filepath.Join(b.store.Name(), from))
	}
	return b.copyTree(from, to)
}

// folder is where the tickets are: with the attempt of the undo that had them last.
func (b *rollback) folder() (string, error) {
	f, err := b.store.Open(redoPath(b.id))
	if err != nil {
		if lost(err) {
			return redoPath(b.id), nil // what is missing there is found when each is looked at
		}
		return "", err
	}
	defer f.Close()
	attempts, err := f.Readdirnames(-1)
	for _, attempt := range attempts {
		if _, err := b.store.Lstat(redoPath(b.id, attempt, b.rec.Attempt)); err == nil {
			return redoPath(b.id, attempt, b.rec.Attempt), nil
		}
	}
	return redoPath(b.id), err
}

// check looks at a draft when it is whole: the targets must be as the rollback has left them, and the copies as what it
// has kept.
func (b *rollback) check(d *draft) error {
	for n, i := range b.of {
		o, before, kept := d.rec.Ops[n], b.rec.Ops[i].Pre, b.plan.Kept[i]
		switch {
		case !o.Pre.is(before):
			return b.strayed(o)
		case kept.there() && !o.Post.there():
			return errLost // an undo has taken it away
		case !o.Post.is(kept):
			return activities.Errorf(activities.ActionDenied,
				"%s cannot be put back exactly (%s in place of %s); run this worker as who may", filepath.Join(b.path, o.Target), o.Post.top().say(true), kept.top().say(true))
		}
	}
	for _, now := range d.rec.Parents {
		left, known := timeIn(b.plan.Parents, now.Path)
		was, had := timeIn(b.plan.Was, now.Path)
		if known && had && left == now.Time { // nobody else has worked in it since the rollback
			d.rec.Times = append(d.rec.Times, parent{now.Path, was})
		}
	}
	return nil
}

func (b *rollback) strayed(o op) error {
	return activities.Errorf(activities.Refused,
		"%s is not as the rollback left it: someone else has changed it since; put that back, or run the task again in place of a redo", filepath.Join(b.path, o.Target))
}

// tell says what a draft is: see verb.sum.
func (a *action) tell(d *draft) (summary string, outputs map[string]any, risk activities.Risk, fact string) {
	summary, outputs, risk, fact = a.sum(d)
	if d.redo != nil {
		summary = "redo: " + summary
	}
	return summary, outputs, risk, fact
}

// keep notes in the plan of an undo what it takes away.
func (u *undoRun) keep(p *plan, sights []sight) (err error) {
	for _, s := range sights {
		kept := s.Pre
		if s.swap {
			kept = s.stood
		}
		p.Kept = append(p.Kept, kept.short())
	}
	p.Was, err = u.times(u.rec.Parents)
	return err
}

// setTimes gives the folders in which a redo has put something back the times that they had before the rollback.
func (f *forward) setTimes() error {
	for i, p := range f.rec.Times {
		through := stagePath(f.id, f.rec.Attempt, "parent"+strconv.Itoa(i))
		err := f.lead(through, p)
		if err == nil {
			f.reach("times")
			err = f.stamp(through, p)
		}
		if lost(err) {
			return f.token.CheckOpen() // where it is not fenced, the folder has gone
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lead makes a symlink among the tickets that leads to a folder of the root: the time of that is set through it, so that
// this fails like the tickets for whoever comes too late.
func (r *root) lead(through string, p parent) error {
	err := r.store.Symlink(filepath.Join("..", "..", "..", "..", p.Path), through)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

// stamp sets a folder's time. Whose folder it is may not be ours: that is found, and said, when all is looked at in the
// end.
func (r *root) stamp(through string, p parent) error {
	err := unix.UtimesNanoAt(r.at(), through, []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(p.Time)}, 0)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return nil
	}
	return err
}
