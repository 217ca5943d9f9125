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

// rollback is an undo that kept what it removed. A redo stages copies of that, and is then a
// forward like any other; the kept originals stay until they are released.
type rollback struct {
	rootToken
	rec  record
	plan plan
	// of maps each change of the draft to the change of the record that it redoes.
	of []int
}

// stageFunc returns the root that a forward changes, and the function that stages its change: from
// its parameters, or from what an earlier generation had left.
func (a *action) stageFunc(e activities.Entry, s activities.Step) (*root, func(context.Context, *draft) error, error) {
	if e.Redoes != "" {
		b, err := a.findRollback(e)
		if err != nil {
			return nil, nil, err
		}
		if b != nil {
			return b.root, b.stage, nil
		}
	}
	return a.prepare(a.world, s)
}

// findRollback finds what the entry is to redo. Nil: that had changed nothing, so this is the first
// forward.
func (a *action) findRollback(e activities.Entry) (*rollback, error) {
	e.Token = e.Redoes
	all, err := a.openTokens(e)
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
	h, rec, err := a.findRecord(e)
	switch {
	case err != nil:
		return nil, err
	case !over:
		return nil, activities.Errorf(activities.Refused,
			"token %s has not been rolled back, or has been forgotten: there is nothing to redo; run its task again", e.Token)
	case !acted:
		return nil, nil //nolint:nilnil // see above
	case rec == nil:
		return nil, activities.Errorf(activities.Refused,
			"what the rollback of token %s kept has expired and been released; run its task again", e.Token)
	}
	b := &rollback{rootToken: h, rec: *rec}
	if _, err := h.token.Read(planDoc, &b.plan); err != nil {
		return nil, err
	}
	if len(b.plan.Kept) != len(rec.Ops) || len(rec.Given) == 0 {
		return nil, activities.Errorf(activities.Refused, "the undo of token %s kept nothing for a redo; run its task again",
			e.Token)
	}
	return b, nil
}

// stage drafts what the rollback has kept.
func (b *rollback) stage(ctx context.Context, d *draft) error {
	d.redo = b
	folder, err := b.ticketFolder()
	if err != nil {
		return err
	}
	for i, o := range b.rec.Ops {
		kept := b.plan.Kept[i]
		if kept.equals(o.Pre) {
			continue // the rollback removed nothing of this
		}
		if _, there, err := b.timeOf(filepath.Dir(o.Target)); err != nil {
			return err
		} else if !there {
			return b.driftedError(o)
		}
		again := op{Target: o.Target, Private: o.Private}
		if kept.equals(o.Post) {
			again.Text = o.Text
		}
		n, err := d.addSlot(again)
		if err != nil {
			return err
		}
		b.of = append(b.of, i)
		if err := b.restage(ctx, filepath.Join(folder, o.ticket(i)), d.ticket(n), kept); err != nil {
			return err
		}
	}
	if len(b.of) == 0 {
		return activities.Errorf(activities.Refused, "the rollback of token %s removed nothing: there is nothing to redo",
			b.id)
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
	if !kept.exists() {
		return nil
	}
	held, err := b.atTicket(ctx, from)
	if err != nil {
		return err
	}
	if !held.equals(kept) {
		return activities.Errorf(activities.DamagedRecord,
			"what the rollback kept at %s has changed since; nothing was touched: run the task again",
			filepath.Join(b.store.Name(), from))
	}
	return b.copyTree(from, to)
}

// ticketFolder is where the tickets are: in the folder of the last undo attempt.
func (b *rollback) ticketFolder() (string, error) {
	f, err := b.store.Open(redoPath(b.id))
	if err != nil {
		if isLost(err) {
			return redoPath(b.id), nil // missing tickets are found when each is examined
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

// check examines a complete draft: the targets must be as the rollback left them, and the copies
// equal to what it kept.
func (b *rollback) check(d *draft) error {
	for n, i := range b.of {
		o, before, kept := d.rec.Ops[n], b.rec.Ops[i].Pre, b.plan.Kept[i]
		switch {
		case !o.Pre.equals(before):
			return b.driftedError(o)
		case kept.exists() && !o.Post.exists():
			return errLost // an undo has taken it
		case !o.Post.equals(kept):
			return activities.Errorf(activities.ActionDenied,
				"%s cannot be put back exactly (%s in place of %s); run this worker as a user who may do so",
				filepath.Join(b.path, o.Target), o.Post.topNode().describe(true), kept.topNode().describe(true))
		}
	}
	for _, now := range d.rec.Parents {
		left, known := timeIn(b.plan.Parents, now.Path)
		was, had := timeIn(b.plan.Was, now.Path)
		if known && had && left == now.Time { // nobody else has changed anything in it since the rollback
			d.rec.Times = append(d.rec.Times, parent{now.Path, was})
		}
	}
	return nil
}

func (b *rollback) driftedError(o op) error {
	return activities.Errorf(activities.Refused,
		"%s is not as the rollback left it: someone else has changed it since; run the task again instead of a redo",
		filepath.Join(b.path, o.Target))
}

// describeDraft describes a draft: see verb.summarize.
func (a *action) describeDraft(d *draft) (summary string, outputs map[string]any, risk activities.Risk, fact string) {
	summary, outputs, risk, fact = a.summarize(d)
	if d.redo != nil {
		summary = "redo: " + summary
	}
	return summary, outputs, risk, fact
}

// planKept notes in the plan of an undo what it removes.
func (u *undoRun) planKept(p *plan, seen []opState) (err error) {
	for _, s := range seen {
		kept := s.Pre
		if s.swap {
			kept = s.atTarget
		}
		p.Kept = append(p.Kept, kept.trimmed())
	}
	p.Was, err = u.times(u.rec.Parents)
	return err
}

// setTimes gives the folders in which a redo has restored something the times they had before the
// rollback.
func (f *forward) setTimes() error {
	for i, p := range f.rec.Times {
		through := stagePath(f.id, f.rec.Attempt, "parent"+strconv.Itoa(i))
		err := f.linkFolder(through, p)
		if err == nil {
			f.reach("times")
			err = f.setTime(through, p)
		}
		if isLost(err) {
			return f.token.CheckOpen() // if it is not fenced, the folder was removed
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// linkFolder makes a symlink among the tickets to a folder of the root. The folder's time is set
// through it, so that a late call fails as it does for the tickets.
func (r *root) linkFolder(through string, p parent) error {
	err := r.store.Symlink(filepath.Join("..", "..", "..", "..", p.Path), through)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

// setTime sets a folder's time. If the folder belongs to another user this may fail: the final
// verification reports that.
func (r *root) setTime(through string, p parent) error {
	err := unix.UtimesNanoAt(r.storeFD(), through, []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(p.Time)},
		0)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return nil
	}
	return err
}
