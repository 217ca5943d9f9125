package mcpserver

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/declared"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/internal/filelock"
)

// takenBack is the document with the answer to the inverse.
const takenBack = "taken-back"

// undoTurn is how long an undo waits for one in another process, which may be stopped, before it
// ends that one's server. Tests shorten it.
var undoTurn = 2 * time.Second

func undoName(n int) string { return fmt.Sprintf("undo-%d", n) }

// inverseName is the name of the inverseCall of the undo with this claim.
func inverseName(n int) string { return fmt.Sprintf("inverse-%d", n) }

// Undo takes the call back.
func (a *action) Undo(ctx context.Context, e activities.Entry, d activities.Decision) (undone activities.Undone,
	err error) {
	o, err := a.begin(e)
	if err != nil {
		return undone, err
	}
	if undone, isOver, err := o.token.BeginUndo(); isOver || err != nil {
		return undone, err
	}
	a.reach("closed")
	release, err := o.takeTurn(ctx)
	if err != nil {
		return undone, err
	}
	defer release()
	if found, err := o.token.Read(journal.Outcome, &undone); found || err != nil {
		return undone, err
	}
	var rec record
	if found, err := o.token.Read(journal.Record, &rec); err != nil {
		return undone, err
	} else if !found {
		if err := o.token.CheckNotLost(d.Done, answered, takenBack, undoName(1)); err != nil {
			return undone, err
		}
		return o.settle(activities.Undone{Outcome: activities.Nothing,
			Observed: "the tool was never called, and no longer can be"})
	}
	u := &undo{oneCall: o, ctx: ctx, rec: rec, decision: d}
	if err := u.fence(); err != nil {
		return undone, err
	}
	a.reach("fenced")
	if undone, err = u.run(); err != nil || !isSettled(undone.Outcome) {
		return undone, err
	}
	return o.settle(undone)
}

// isSettled reports whether an outcome is kept: the others wait for a person, after whom the undo
// is called again.
func isSettled(o activities.Outcome) bool { return o != activities.Drifted && o != activities.Unknown }

func (o *oneCall) settle(undone activities.Undone) (activities.Undone, error) {
	_, err := o.token.Create(journal.Outcome, &undone)
	o.reach("undone")
	return undone, err
}

// takeTurn keeps two undos of a token apart. An undo in another process may be stopped: this one
// does not wait for it for long.
func (o *oneCall) takeTurn(ctx context.Context) (release func(), err error) {
	leave, err := o.undoing.Take(ctx, o.entry.Token)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, undoTurn)
	defer cancel()
	l, err := filelock.Acquire(limited, filepath.Join(o.token.Dir(), "undo-lock"))
	if err != nil {
		return leave, ctx.Err()
	}
	return func() { l.Release(); leave() }, nil
}

// inverseCall is the document that is there once an undo may have called the inverse.
type inverseCall struct {
	claim

	Shown bool `json:"shown,omitempty"` // see declared.Evidence
}

// undo is one attempt.
type undo struct {
	*oneCall
	declared.Evidence

	ctx      context.Context //nolint:containedctx // an attempt lives no longer than its call
	rec      record
	decision activities.Decision
	server   *connection
	// claimed is the number of this attempt's claim.
	claimed int
}

// gather reads what the forward has left.
func (u *undo) gather() (isApplied bool, err error) {
	u.Call = u.rec.Call
	var answer Answer
	if found, err := u.token.Read(answered, &answer); err != nil {
		return false, err
	} else if found {
		said := answer.read()
		u.Answer = &said
	}
	var doc applied
	isApplied, err = u.token.Read(journal.Applied, &doc)
	u.Left = doc.Left
	return isApplied, err
}

// fence makes sure that no forward and no earlier undo acts any more, and reads what they have
// left.
func (u *undo) fence() error {
	isApplied, err := u.gather()
	if err == nil && (u.Answer == nil || !u.Answer.IsFinal) { // a task goes on after the answer
		if _, err = u.endCalls(u.ctx, u.rec); err == nil { // an answer may have come before its server was ended
			isApplied, err = u.gather()
		}
	}
	if err != nil {
		return err
	}
	u.IsShown = u.HasShown(u.Left) || u.Answer != nil && u.Answer.IsLost // a look alone has told that it happened
	if u.decision.Done && !isApplied || isApplied && u.Answer == nil {
		return u.token.CheckNotLost(true)
	}
	if u.Pending, err = u.canStillArrive(); err != nil {
		return err
	}
	return u.claimServer()
}

// canStillArrive says why the call may act later than a look that follows; empty if it cannot.
func (u *undo) canStillArrive() (why string, err error) {
	switch {
	case u.Answer != nil && !u.Answer.IsFinal:
		return u.rec.Tool + " may still act: " + u.Answer.Trouble, nil
	case u.Answer != nil:
		return "", nil
	case !u.rec.Local:
		return u.rec.Tool +
			" was called and has not answered, and the server may have passed the call on (local: true is not declared)", nil
	}
	claims, err := u.listClaims(u.rec)
	if slices.ContainsFunc(claims, func(c claim) bool { return c.By.IsAlive() }) {
		why = u.rec.Tool + " was called and has not answered, and the server still runs"
	}
	return why, err
}

// claimServer ends the servers of earlier undos, and claims one for this undo.
func (u *undo) claimServer() (err error) {
	for n := 1; ; n++ {
		var by claim
		found, err := u.token.Read(undoName(n), &by)
		if err != nil {
			return err
		}
		if !found {
			if u.server, err = u.reconnect(u.ctx, u.rec); err != nil {
				return err
			}
			created, err := u.token.Create(undoName(n), &claim{u.server.id})
			if err != nil || created {
				u.claimed = n
				return err
			}
			n-- // another undo was faster: look at its claim
			continue
		}
		if err := u.endEarlier(by.By); err != nil {
			return err
		}
		var earlier inverseCall
		hasCalled, err := u.token.Read(inverseName(n), &earlier)
		if err != nil {
			return err
		}
		u.IsRepeated, u.IsShown = u.IsRepeated || hasCalled, u.IsShown || earlier.Shown
	}
}

// endEarlier ends the server of an earlier undo, unless it is our own and is at nothing of this
// token: no other undo runs in this process.
func (u *undo) endEarlier(by serverProcess) error {
	u.mu.Lock()
	own := u.running[u.rec.Server]
	u.mu.Unlock()
	if own != nil && own.id == by && !own.isUnsettled(u.entry.Token) {
		return nil
	}
	return by.EndSession(u.ctx)
}

// look looks now; nil if that is impossible.
func (u *undo) look() (*declared.Sight, error) {
	if !u.CanLook(u.Answer) {
		return nil, nil //nolint:nilnil // nothing is seen
	}
	seen, err := u.server.look(u.ctx, u.entry.Token, *u.Declared.Look, u.Values(u.Answer))
	return &seen, err
}

// run observes, takes the call back, and observes again.
func (u *undo) run() (activities.Undone, error) {
	var back Answer
	if found, err := u.token.Read(takenBack, &back); err != nil {
		return activities.Undone{}, err
	} else if found {
		return u.verify()
	}
	now, err := u.look()
	if err != nil {
		return activities.Undone{}, err
	}
	u.IsShown = u.IsShown || u.HasShown(now)
	undone := u.Judge(now, u.decision.Force)
	if undone == nil {
		if undone, err = u.takeBack(now); err != nil {
			return activities.Undone{}, err
		}
	}
	if undone != nil {
		return *undone, nil
	}
	return u.verify()
}

// takeBack calls the inverse. It returns an outcome if that cannot be done.
func (u *undo) takeBack(now *declared.Sight) (*activities.Undone, error) {
	inverse := u.Inverse
	arguments, err := u.InverseArguments(u.entry.Token, now)
	if err != nil {
		return &activities.Undone{Outcome: activities.Unknown,
			Observed: fmt.Sprintf("the arguments of %s are not known: %v", inverse.Tool, err)}, nil
	}
	u.reach("undo-ready")
	if u.ctx.Err() != nil {
		return nil, context.Cause(u.ctx)
	}
	if _, err := u.token.Create(inverseName(u.claimed), &inverseCall{claim{u.server.id}, u.IsShown}); err != nil {
		return nil, err
	}
	u.reach("undo-noted")
	a, err := u.server.call(u.ctx, u.entry.Token, inverse.Tool, arguments)
	if err != nil {
		return nil, err
	}
	u.reach("undo-called")
	if said := a.read(); !said.Succeeded() && !said.Fails(inverse.Done) {
		if said.IsFinal { // it has taken nothing back
			if err := u.token.Drop(inverseName(u.claimed)); err != nil {
				return nil, err
			}
		}
		return nil, activities.Errorf(activities.ActionFailed, "%s of server %s, the inverse of %s: %s", inverse.Tool,
			u.rec.Server, u.rec.Tool, said.Trouble)
	}
	_, err = u.token.Create(takenBack, &a)
	u.reach("undo-answered")
	return nil, err
}

// verify observes after the inverse.
func (u *undo) verify() (activities.Undone, error) {
	now, err := u.look()
	if err != nil {
		return activities.Undone{}, err
	}
	return u.Verify(now), nil
}
