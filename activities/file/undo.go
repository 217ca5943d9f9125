package file

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// Undo lets originals and changes trade places again. All roots that could hold the record get the tombstone: the entry
// does not say which one a late forward would use.
func (a *action) Undo(ctx context.Context, e activities.Entry, d activities.Decision) (activities.Undone, error) {
	all, err := a.tokens(e)
	if err != nil {
		return activities.Undone{}, err
	}
	total := activities.Undone{Outcome: activities.Nothing, Observed: "the step had changed nothing, and no longer can"}
	for _, h := range all {
		undone, err := a.undoIn(ctx, h, d)
		if err != nil {
			return undone, err
		}
		if undone.Outcome != activities.Nothing || len(all) == 1 {
			total = undone
		}
	}
	return total, nil
}

// keptName is the folder that the tickets of the forward are in once it is fenced.
const keptName = "kept"

// errOvertaken tells an attempt that another one has its tickets.
var errOvertaken = activities.Errorf(activities.ActionFailed, "another attempt has taken this undo over; look again")

// undoRun is one attempt of an undo in one root.
type undoRun struct {
	*action
	held
	rec     record
	left    parentsAfter
	done    bool // the forward had seen each original come out
	plan    plan
	planned bool
	attempt string
	decided activities.Decision
}

func (a *action) undoIn(ctx context.Context, h held, d activities.Decision) (activities.Undone, error) {
	var undone activities.Undone
	if found, err := h.token.Read(journal.Outcome, &undone); found || err != nil {
		return undone, err
	}
	began := time.Now()
	fate, err := h.token.Decide(journal.Undoing)
	if err != nil {
		return undone, err
	}
	if fate != journal.Undoing {
		return undone, activities.Errorf(activities.Fenced, "the step's originals are released: its rollback window has closed")
	}
	a.reach("undo-begun")
	u := &undoRun{action: a, held: h, attempt: rand.Text(), decided: d}
	settled, err := u.fence()
	if err != nil {
		return undone, err
	}
	a.reach("undo-fenced")
	if err := u.read(); err != nil {
		return undone, err
	}
	if !settled && len(u.rec.Ops) > 0 {
		undone, err := u.restore(ctx)
		if err != nil || undone.Outcome == activities.Drifted {
			return undone, err
		}
	}
	return u.settle(ctx, began)
}

// fence takes the forward's tickets away. settled says that an earlier attempt has come to its end.
func (u *undoRun) fence() (settled bool, err error) {
	if err := u.mkdir(undoPath(u.id)); err != nil {
		return false, err
	}
	if err := u.bury(stagePath(u.id), undoPath(u.id, keptName)); err != nil {
		return false, err
	}
	err = u.mkdir(undoPath(u.id, u.attempt))
	if errors.Is(err, errLost) {
		return true, nil
	}
	return false, err
}

func (u *undoRun) read() (err error) {
	if _, err = u.token.Read(journal.Record, &u.rec); err != nil {
		return err
	}
	if u.done, err = u.token.Read(leftDoc, &u.left); err != nil {
		return err
	}
	u.planned, err = u.token.Read(planDoc, &u.plan)
	return err
}

// sight is a change as it is found.
type sight struct {
	op
	ticket      string // this attempt's
	held, stood tree   // at the ticket, at the target
	swap        bool   // it is to be taken back
	note        string
}

// restore takes the changes back, the last first, or says Drifted and leaves all as it is.
func (u *undoRun) restore(ctx context.Context) (activities.Undone, error) {
	var none activities.Undone
	if err := u.claim(); err != nil {
		return none, err
	}
	u.reach("undo-claimed")
	sights := make([]sight, len(u.rec.Ops))
	for i, o := range u.rec.Ops {
		sights[i] = sight{op: o, ticket: undoPath(u.id, u.attempt, u.rec.Attempt, o.ticket(i))}
		if err := u.look(ctx, &sights[i]); err != nil {
			return none, err
		}
	}
	// Another attempt may have decided, and acted, before its tickets were taken.
	if err := u.read(); err != nil {
		return none, err
	}
	// All is looked at before anything is touched: a step is taken back whole or not at all.
	for _, s := range sights {
		if u.isDamaged(s) {
			return none, damaged(u.root, s.ticket, s.op)
		}
	}
	var drifted []difference
	for i := range sights {
		drift, err := u.judge(ctx, &sights[i])
		if err != nil {
			return none, err
		}
		if drift {
			drifted = append(drifted, difference{sights[i].op, sights[i].stood})
		}
	}
	if drift := u.drift(drifted); drift != nil && u.decided.Force != drift.Digest {
		return activities.Undone{Outcome: activities.Drifted, Observed: u.say(drifted), Drift: drift}, nil
	}
	if err := u.decide(sights, len(drifted) > 0); err != nil {
		return none, err
	}
	u.reach("undo-planned")
	for _, s := range slices.Backward(sights) {
		if !s.swap {
			continue
		}
		if err := u.takeBack(ctx, s); err != nil {
			return none, err
		}
		u.reach("undo-swapped")
	}
	return none, u.setTimes()
}

// claim takes the tickets from wherever they are: from the forward, or from another attempt, which then fails. They
// move together, in one rename, so that the last of several attempts has them all.
func (u *undoRun) claim() error {
	const tries = 10 // they may move on while their holders are gone through
	for range tries {
		holders, err := u.holders()
		if err != nil {
			return err
		}
		for _, other := range holders {
			err := unix.Renameat2(u.at(), undoPath(u.id, other, u.rec.Attempt), u.at(), undoPath(u.id, u.attempt, u.rec.Attempt), unix.RENAME_NOREPLACE)
			if err == nil {
				return nil
			}
			if !lost(err) {
				return fmt.Errorf("%s: %w", filepath.Join(u.store.Name(), undoPath(u.id, other)), err)
			}
		}
	}
	return nil // there are none: what is missing is found when each is looked at
}

// holders are the folders in which the tickets can be: those of the forward and of other attempts, dead or alive.
func (u *undoRun) holders() ([]string, error) {
	f, err := u.store.Open(undoPath(u.id))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if errors.Is(err, unix.ENOTDIR) {
		return nil, errOvertaken
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == u.attempt }), err
}

func (u *undoRun) look(ctx context.Context, s *sight) (err error) {
	if s.held, err = u.atTicket(ctx, s.ticket); err != nil {
		return err
	}
	s.stood, err = u.atTarget(ctx, s.Target)
	return err
}

// isDamaged says that an original is not what it was, or is gone.
func (u *undoRun) isDamaged(s sight) bool {
	switch {
	case s.held.is(s.Pre):
		return false
	case u.done && !u.planned:
		return true
	case s.held.is(s.Post), s.stood.is(s.Pre):
		return false
	}
	return !s.held.there() || u.done || !s.stood.is(s.Post)
}

// judge says whether a change is to be taken back, and whether someone else has changed it since.
func (u *undoRun) judge(ctx context.Context, s *sight) (drift bool, err error) {
	if !s.held.is(s.Pre) && !s.held.is(s.Post) && s.held.there() {
		// A process died between an exchange and its look at what came out: this is someone else's.
		if s.stood.is(s.Pre) && u.planned && u.decided.Force == u.drift([]difference{{s.op, s.held}}).Digest {
			return false, nil // and was to be overwritten
		}
		if err := u.swap(s.ticket, s.Target, true, s.stood.there()); err != nil {
			return false, overtaken(err)
		}
		u.reach("undo-given-back")
		if err := u.look(ctx, s); err != nil {
			return false, err
		}
	}
	switch {
	case s.stood.is(s.Pre):
		return false, nil
	case s.held.is(s.Pre):
		s.swap = true
		return !s.stood.is(s.Post), nil
	}
	s.note = filepath.Join(u.path, s.Target) + " was changed by someone else, and not by this step: it is left alone"
	return false, nil
}

// decide makes what is to be done durable before any of it is. The first attempt that comes here decides.
func (u *undoRun) decide(sights []sight, forced bool) error {
	if u.planned {
		return nil
	}
	p := plan{Began: time.Now().UTC()}
	for _, s := range sights {
		p.Acted = p.Acted || s.swap || s.held.is(s.Pre) && !s.Pre.is(s.Post)
		if s.note != "" {
			p.Notes = append(p.Notes, s.note)
		}
	}
	for _, before := range u.rec.Parents {
		now, there, err := u.timeOf(before.Path)
		if err != nil {
			return err
		}
		if !there {
			continue
		}
		// What someone else has done in the folder since stays the last that was done in it.
		if asLeft, known := timeIn(u.left.Parents, before.Path); known && asLeft != now && !forced {
			before.Time = now
		}
		p.Parents = append(p.Parents, before)
	}
	if u.decided.Redoable && p.Acted {
		if err := u.keep(&p, sights); err != nil {
			return err
		}
	}
	_, err := u.token.Create(planDoc, &p)
	u.plan, u.planned = p, true
	return err
}

// takeBack does one change backwards.
func (u *undoRun) takeBack(ctx context.Context, s sight) error {
	if err := u.swap(s.ticket, s.Target, s.held.there(), s.stood.there()); err != nil {
		return overtaken(err)
	}
	u.reach("undo-taken-back")
	out, err := u.atTicket(ctx, s.ticket)
	if err != nil || out.is(s.stood) {
		return err
	}
	// Someone was between looking and replacing. What they left goes back to where they left it, and is drift.
	if err := u.swap(s.ticket, s.Target, out.there(), s.Pre.there()); err != nil {
		return overtaken(err)
	}
	return activities.Errorf(activities.ActionFailed, "%s changed while it was being restored; look again", filepath.Join(u.path, s.Target))
}

func overtaken(err error) error {
	if errors.Is(err, errLost) || lost(err) {
		return errOvertaken
	}
	return err
}

// setTimes gives the folders that the changes are in their times back.
func (u *undoRun) setTimes() error {
	if !u.plan.Acted {
		return nil
	}
	for i, p := range u.plan.Parents {
		through := undoPath(u.id, u.attempt, "parent"+strconv.Itoa(i))
		if err := u.lead(through, p); err != nil {
			return overtaken(err)
		}
		u.reach("undo-times")
		if err := u.stamp(through, p); err != nil {
			return overtaken(err)
		}
	}
	return nil
}

// settle makes all other attempts fail, looks at the world once more, and keeps the outcome.
func (u *undoRun) settle(ctx context.Context, began time.Time) (activities.Undone, error) {
	to := "" // what was taken away is not needed any more
	if u.plan.Kept != nil {
		to = redoPath(u.id)
	}
	if err := u.bury(undoPath(u.id), to); err != nil {
		return activities.Undone{}, err
	}
	u.reach("undo-settled")
	undone, err := u.verify(ctx)
	if err != nil {
		return undone, err
	}
	undone.Took = time.Since(began).Round(time.Millisecond)
	_, err = u.token.Create(journal.Outcome, &undone)
	u.reach("undone")
	return undone, err
}

// verify says what the world is seen to be.
func (u *undoRun) verify(ctx context.Context) (activities.Undone, error) {
	if !u.plan.Acted {
		said := append([]string{"the step had changed nothing, and no longer can"}, u.plan.Notes...)
		return activities.Undone{Outcome: activities.Nothing, Observed: strings.Join(said, "; ")}, nil
	}
	undone := activities.Undone{Outcome: activities.Restored}
	var gone []string
	for _, o := range u.rec.Ops {
		now, err := u.atTarget(ctx, o.Target)
		if err != nil {
			return undone, err
		}
		if !now.is(o.Pre) {
			gone = append(gone, filepath.Join(u.path, o.Target))
		}
	}
	undone.Observed = fmt.Sprintf("%s as before: content, owner, mode, times, extended attributes", count(len(u.rec.Ops)-len(gone), "path"))
	if len(gone) > 0 {
		undone.Outcome, undone.Losses = activities.Residue, append(undone.Losses, "changed by someone else meanwhile: "+strings.Join(gone, ", "))
	}
	for _, p := range u.plan.Parents {
		now, there, err := u.timeOf(p.Path)
		if err != nil {
			return undone, err
		}
		if there && now == p.Time {
			continue
		}
		undone.Losses = append(undone.Losses, "the time of folder "+filepath.Join(u.path, p.Path))
		if undone.Outcome == activities.Restored {
			undone.Outcome = activities.Compensated
		}
	}
	undone.Observed = strings.Join(append([]string{undone.Observed}, u.plan.Notes...), "; ")
	return undone, nil
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what + " is"
	}
	return fmt.Sprintf("%d %ss are", n, what)
}
