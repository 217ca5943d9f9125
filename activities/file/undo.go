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

// Undo exchanges originals and changes again. All roots that could hold the record get the
// tombstone: the entry does not say which one a late forward would use.
func (a *action) Undo(ctx context.Context, e activities.Entry, d activities.Decision) (activities.Undone, error) {
	all, err := a.openTokens(e)
	if err != nil {
		return activities.Undone{}, err
	}
	if d.Done {
		if err := fenceIfLost(all); err != nil {
			return activities.Undone{}, err
		}
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

// fenceIfLost is DamagedRecord where none of the roots has the record, or the outcome, of a step
// that was done. A late forward can do nothing then either.
func fenceIfLost(all []rootToken) error {
	for _, h := range all {
		for _, read := range []func() (bool, error){
			func() (bool, error) { return h.token.Read(journal.Record, &record{}) },
			func() (bool, error) { return h.token.Read(journal.Outcome, &activities.Undone{}) },
		} {
			if found, err := read(); found || err != nil {
				return nil //nolint:nilerr // a damaged one is reported by the undo in its root
			}
		}
	}
	for _, h := range all {
		if _, err := h.token.Decide(journal.Undoing); err != nil {
			return err
		}
	}
	return all[0].token.CheckNotLost(true)
}

// keptName is the folder of the forward's tickets once it is fenced.
const keptName = "kept"

// errOvertaken tells an attempt that another one has its tickets.
var errOvertaken = activities.Errorf(activities.ActionFailed, "another attempt has taken over this undo; retry")

// undoRun is one attempt of an undo in one root.
type undoRun struct {
	*action
	rootToken
	rec     record
	left    parentsAfter
	done    bool // the forward had seen each original come out
	plan    plan
	planned bool
	attempt string
	decided activities.Decision
}

func (a *action) undoIn(ctx context.Context, h rootToken, d activities.Decision) (activities.Undone, error) {
	began := time.Now()
	undone, isOver, err := h.token.BeginUndo()
	if isOver || err != nil {
		return undone, err
	}
	a.reach("undo-begun")
	u := &undoRun{action: a, rootToken: h, attempt: rand.Text(), decided: d}
	settled, err := u.fence()
	if err != nil {
		return undone, err
	}
	a.reach("undo-fenced")
	if err := u.readRecord(); err != nil {
		return undone, err
	}
	if !settled && len(u.rec.Ops) > 0 {
		undone, err := u.restoreAll(ctx)
		if err != nil || undone.Outcome == activities.Drifted {
			return undone, err
		}
	}
	return u.finish(ctx, began)
}

// fence takes the forward's tickets away. settled: an earlier attempt has finished.
func (u *undoRun) fence() (settled bool, err error) {
	if err := u.mkdir(undoPath(u.id)); err != nil {
		return false, err
	}
	if err := u.leaveTombstone(stagePath(u.id), undoPath(u.id, keptName)); err != nil {
		return false, err
	}
	err = u.mkdir(undoPath(u.id, u.attempt))
	if errors.Is(err, errLost) {
		return true, nil
	}
	return false, err
}

func (u *undoRun) readRecord() (err error) {
	found, err := u.token.Read(journal.Record, &u.rec)
	if err == nil && !found {
		err = u.token.CheckNotLost(false, leftDoc, planDoc)
	}
	if err != nil {
		return err
	}
	if u.done, err = u.token.Read(leftDoc, &u.left); err != nil {
		return err
	}
	u.planned, err = u.token.Read(planDoc, &u.plan)
	return err
}

// opState is the observed state of a change.
type opState struct {
	op
	ticket             string // this attempt's
	atTicket, atTarget tree   // at the ticket, at the target
	swap               bool   // it is to be undone
	note               string
}

// restoreAll undoes the changes, the last first, or returns Drifted and changes nothing.
func (u *undoRun) restoreAll(ctx context.Context) (activities.Undone, error) {
	var none activities.Undone
	if err := u.claimTickets(); err != nil {
		return none, err
	}
	u.reach("undo-claimed")
	seen := make([]opState, len(u.rec.Ops))
	for i, o := range u.rec.Ops {
		seen[i] = opState{op: o, ticket: undoPath(u.id, u.attempt, u.rec.Attempt, o.ticket(i))}
		if err := u.observeOp(ctx, &seen[i]); err != nil {
			return none, err
		}
	}
	// Another attempt may have decided, and acted, before its tickets were taken.
	if err := u.readRecord(); err != nil {
		return none, err
	}
	// Everything is examined before anything is touched: a step is undone completely or not at all.
	for _, s := range seen {
		if u.isDamaged(s) {
			return none, damagedOriginal(u.root, s.ticket, s.op)
		}
	}
	var drifted []difference
	for i := range seen {
		drift, err := u.judgeOp(ctx, &seen[i])
		if err != nil {
			return none, err
		}
		if drift {
			drifted = append(drifted, difference{seen[i].op, seen[i].atTarget})
		}
	}
	if drift := u.drift(drifted); drift != nil && u.decided.Force != drift.Digest {
		return activities.Undone{Outcome: activities.Drifted, Observed: u.describeDifferences(drifted), Drift: drift}, nil
	}
	if err := u.checkFolders(seen); err != nil {
		return none, err
	}
	if err := u.writePlan(seen, len(drifted) > 0); err != nil {
		return none, err
	}
	u.reach("undo-planned")
	for _, s := range slices.Backward(seen) {
		if !s.swap {
			continue
		}
		if err := u.undoOp(ctx, s); err != nil {
			return none, err
		}
		u.reach("undo-swapped")
	}
	return none, u.setTimes()
}

// claimTickets takes the tickets from wherever they are: from the forward, or from another attempt,
// which then fails. They move together, in one rename, so that the last of several attempts has
// them all.
func (u *undoRun) claimTickets() error {
	const tries = 10 // they may move on while holders are searched
	for range tries {
		holders, err := u.holders()
		if err != nil {
			return err
		}
		for _, other := range holders {
			err := unix.Renameat2(u.storeFD(), undoPath(u.id, other, u.rec.Attempt), u.storeFD(),
				undoPath(u.id, u.attempt, u.rec.Attempt), unix.RENAME_NOREPLACE)
			if err == nil {
				return nil
			}
			if !isLost(err) {
				return fmt.Errorf("%s: %w", filepath.Join(u.store.Name(), undoPath(u.id, other)), err)
			}
		}
	}
	return nil // there are none: missing tickets are found when each is examined
}

// holders are the folders in which the tickets can be: those of the forward and of other attempts,
// dead or alive.
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

func (u *undoRun) observeOp(ctx context.Context, s *opState) (err error) {
	if s.atTicket, err = u.atTicket(ctx, s.ticket); err != nil {
		return err
	}
	s.atTarget, err = u.atTarget(ctx, s.Target)
	return err
}

// isDamaged reports whether an original is missing or not as recorded.
func (u *undoRun) isDamaged(s opState) bool {
	switch {
	case s.atTicket.equals(s.Pre):
		return false
	case u.done && !u.planned:
		return true
	case s.atTicket.equals(s.Post), s.atTarget.equals(s.Pre):
		return false
	}
	return !s.atTicket.exists() || u.done || !s.atTarget.equals(s.Post)
}

// judgeOp decides whether a change is to be undone, and whether someone else has changed it since.
func (u *undoRun) judgeOp(ctx context.Context, s *opState) (drift bool, err error) {
	if !s.atTicket.equals(s.Pre) && !s.atTicket.equals(s.Post) && s.atTicket.exists() {
		// A process died between an exchange and the check of what came out: this is someone else's.
		if s.atTarget.equals(s.Pre) && u.planned && u.decided.Force == u.drift([]difference{{s.op, s.atTicket}}).Digest {
			return false, nil // which was to be overwritten
		}
		if err := u.swap(s.ticket, s.Target, true, s.atTarget.exists()); err != nil {
			return false, asOvertaken(err)
		}
		u.reach("undo-given-back")
		if err := u.observeOp(ctx, s); err != nil {
			return false, err
		}
	}
	switch {
	case s.atTarget.equals(s.Pre):
		return false, nil
	case s.atTicket.equals(s.Pre):
		s.swap = true
		return !s.atTarget.equals(s.Post), nil
	}
	s.note = filepath.Join(u.path, s.Target) + " was changed by someone else, and not by this step: it was left alone"
	return false, nil
}

// checkFolders refuses to put an original back into a folder that is gone: how that was is not
// known.
func (u *undoRun) checkFolders(seen []opState) error {
	for _, s := range seen {
		if !s.swap {
			continue
		}
		folder := filepath.Dir(s.Target)
		if _, there, err := u.statOf(folder); err != nil {
			return err
		} else if !there {
			return activities.Errorf(activities.Refused,
				"folder %s, to which %s goes back, is gone: nothing was touched; make the folder again, and retry",
				filepath.Join(u.path, folder), filepath.Base(s.Target))
		}
	}
	return nil
}

// writePlan makes durable what is to be done before any of it is. The first attempt to get here
// decides.
func (u *undoRun) writePlan(seen []opState, forced bool) error {
	if u.planned {
		return nil
	}
	p := plan{Began: time.Now().UTC()}
	for _, s := range seen {
		p.Acted = p.Acted || s.swap || s.atTicket.equals(s.Pre) && !s.Pre.equals(s.Post)
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
		// A folder that someone else has changed since keeps its time.
		if asLeft, known := timeIn(u.left.Parents, before.Path); known && asLeft != now && !forced {
			before.Time = now
		}
		p.Parents = append(p.Parents, before)
	}
	if u.decided.Redoable && p.Acted {
		if err := u.planKept(&p, seen); err != nil {
			return err
		}
	}
	_, err := u.token.Create(planDoc, &p)
	u.plan, u.planned = p, true
	return err
}

// undoOp undoes one change.
func (u *undoRun) undoOp(ctx context.Context, s opState) error {
	if err := u.swap(s.ticket, s.Target, s.atTicket.exists(), s.atTarget.exists()); err != nil {
		return asOvertaken(err)
	}
	u.reach("undo-taken-back")
	out, err := u.atTicket(ctx, s.ticket)
	if err != nil || out.equals(s.atTarget) {
		return err
	}
	// Someone changed the target between check and exchange. Their version goes back to where it was,
	// and is drift.
	if err := u.swap(s.ticket, s.Target, out.exists(), s.Pre.exists()); err != nil {
		return asOvertaken(err)
	}
	return activities.Errorf(activities.ActionFailed, "%s changed while it was being restored; retry",
		filepath.Join(u.path, s.Target))
}

func asOvertaken(err error) error {
	if errors.Is(err, errLost) || isLost(err) {
		return errOvertaken
	}
	return err
}

// setTimes restores the times of the folders that the changes are in.
func (u *undoRun) setTimes() error {
	if !u.plan.Acted {
		return nil
	}
	for i, p := range u.plan.Parents {
		through := undoPath(u.id, u.attempt, "parent"+strconv.Itoa(i))
		if err := u.linkFolder(through, p); err != nil {
			return asOvertaken(err)
		}
		u.reach("undo-times")
		if err := u.setTime(through, p); err != nil {
			return asOvertaken(err)
		}
	}
	return nil
}

// finish makes all other attempts fail, observes the world once more, and stores the outcome.
func (u *undoRun) finish(ctx context.Context, began time.Time) (activities.Undone, error) {
	to := "" // what was removed is not needed any more
	if u.plan.Kept != nil {
		to = redoPath(u.id)
	}
	if err := u.leaveTombstone(undoPath(u.id), to); err != nil {
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

// verify reports what is observed after the undo.
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
		if !now.equals(o.Pre) {
			gone = append(gone, filepath.Join(u.path, o.Target))
		}
	}
	undone.Observed = fmt.Sprintf("%s as before: content, owner, mode, times, extended attributes",
		activities.CountOf(len(u.rec.Ops)-len(gone), "path"))
	if len(gone) > 0 {
		undone.Outcome, undone.Losses = activities.Residue,
			append(undone.Losses, "changed by someone else meanwhile: "+strings.Join(gone, ", "))
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
