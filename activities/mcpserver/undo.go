package mcpserver

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
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
	u := &undo{one: o, ctx: ctx, rec: rec, decision: d}
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

func (o *one) settle(undone activities.Undone) (activities.Undone, error) {
	_, err := o.token.Create(journal.Outcome, &undone)
	o.reach("undone")
	return undone, err
}

// takeTurn keeps two undos of a token apart. An undo in another process may be stopped: this one
// does not wait for it for long.
func (o *one) takeTurn(ctx context.Context) (release func(), err error) {
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

	Shown bool `json:"shown,omitempty"` // see undo.isShown
}

// undo is one attempt.
type undo struct {
	*one

	ctx      context.Context //nolint:containedctx // an attempt lives no longer than its call
	rec      record
	decision activities.Decision
	answer   *Answer // nil if there is none
	left     *sight  // nil if the call was not looked at afterwards
	server   *connection
	// claimed is the number of this attempt's claim.
	claimed int
	// isRepeated means that an earlier attempt may have taken the call back.
	isRepeated bool
	// isShown means that the look was seen to tell the world before the call from that after it.
	// Without that it proves nothing.
	isShown bool
	// pending says why the call may still act; empty if it cannot.
	pending string
}

// fence makes sure that no forward and no earlier undo acts any more, and reads what they have
// left.
func (u *undo) fence() error {
	var answer Answer
	hasAnswer, err := u.token.Read(answered, &answer)
	if err == nil && (!hasAnswer || !answer.isFinal()) { // a task goes on after the answer
		_, err = u.endCalls(u.ctx, u.rec)
	}
	if err != nil {
		return err
	}
	if !hasAnswer { // it may have come before its server was ended
		if hasAnswer, err = u.token.Read(answered, &answer); err != nil {
			return err
		}
	}
	if hasAnswer {
		u.answer = &answer
	}
	var doc applied
	isApplied, err := u.token.Read(journal.Applied, &doc)
	if err != nil {
		return err
	}
	u.left = doc.Left
	u.isShown = u.rec.hasShown(u.left) || u.answer != nil && u.answer.Lost // a look alone has told that it happened
	if u.decision.Done && !isApplied || isApplied && !hasAnswer {
		return u.token.CheckNotLost(true)
	}
	if u.pending, err = u.canStillArrive(); err != nil {
		return err
	}
	return u.claimServer()
}

// canStillArrive says why the call may act later than a look that follows; empty if it cannot.
func (u *undo) canStillArrive() (why string, err error) {
	switch {
	case u.answer != nil && u.answer.Unfit != "":
		return u.rec.Tool + " may still act: " + u.answer.Unfit, nil
	case u.answer != nil && !u.answer.isFinal():
		return u.rec.Tool + " has answered with a task, which may still act", nil
	case u.answer != nil:
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
		u.isRepeated, u.isShown = u.isRepeated || hasCalled, u.isShown || earlier.Shown
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

// succeeded reports whether the call is known to have succeeded, and failed whether it is known to
// have changed nothing.
func (u *undo) succeeded() bool {
	if u.answer == nil {
		return false
	}
	_, trouble := u.answer.read()
	return trouble == ""
}

func (u *undo) changedNothing() bool {
	return u.answer != nil && !u.succeeded() && u.answer.isFinal() && u.rec.Declared.ErrorsChangeNothing
}

// values are what the inverse and the look refer to.
func (u *undo) values(now *sight) values {
	v := u.rec.values()
	if u.answer != nil {
		v = u.rec.valuesWith(*u.answer)
	} else if u.rec.Before != nil {
		v["before"] = u.rec.Before.fields()
	}
	switch {
	case u.left != nil:
		v["left"] = u.left.fields()
	case now != nil:
		v["left"] = now.fields()
	}
	v["token"] = u.entry.Token
	return v
}

// look looks now; nil if that is impossible.
func (u *undo) look() (*sight, error) {
	if u.rec.Declared.Look == nil || u.rec.Before == nil && !u.succeeded() || u.rec.Before == nil && u.answer.Lost {
		return nil, nil //nolint:nilnil // nothing is seen
	}
	seen, err := u.server.look(u.ctx, u.entry.Token, *u.rec.Declared.Look, u.values(nil))
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
	u.isShown = u.isShown || u.rec.hasShown(now)
	if undone := u.judge(now); undone != nil {
		return *undone, nil
	}
	if undone, err := u.takeBack(now); undone != nil || err != nil {
		return orNone(undone), err
	}
	return u.verify()
}

func orNone(u *activities.Undone) activities.Undone {
	if u == nil {
		return activities.Undone{}
	}
	return *u
}

// judge is the outcome if the inverse must not be called, and nil if it must.
func (u *undo) judge(now *sight) *activities.Undone {
	if now == nil {
		return u.judgeUnseen()
	}
	is := now.digest()
	hasSucceeded, wasChanged := u.succeeded(), u.left == nil || u.rec.Before == nil || u.rec.hasShown(u.left)
	switch {
	case u.rec.Inverse == nil && hasSucceeded:
		return &activities.Undone{Outcome: activities.Final, Observed: u.rec.Tool + " was called, and cannot be undone"}
	case hasSucceeded && !wasChanged && u.left.digest() == is: // the look does not show what the call does
		return u.judgeUnseen()
	case hasSucceeded && !u.answer.Lost && u.left == nil && !u.isRepeated && u.rec.Before != nil &&
		is == u.rec.Before.digest():
		return u.judgeUnseen() // nobody has seen what the call does: it may not show yet
	case u.rec.Before != nil && is == u.rec.Before.digest():
		if u.rec.Inverse != nil && (hasSucceeded || u.left != nil && wasChanged || u.isRepeated) {
			undone := u.report(activities.Restored)
			if !u.isRepeated {
				undone.Observed += ", already before the undo"
			}
			return &undone
		}
		if u.pending != "" {
			return &activities.Undone{Outcome: activities.Unknown, Observed: u.describePending()}
		}
		return &activities.Undone{Outcome: activities.Nothing,
			Observed: u.rec.Declared.Look.Tool + " shows what it showed before the call"}
	case u.rec.Inverse == nil:
		return &activities.Undone{Outcome: activities.Final,
			Observed: fmt.Sprintf("%s was called, and cannot be undone: %s shows a change", u.rec.Tool,
				u.rec.Declared.Look.Tool)}
	case u.left != nil && is == u.left.digest(), u.left == nil && u.rec.isHappened(*now), u.decision.Force == is:
		return nil
	}
	return &activities.Undone{
		Outcome: activities.Drifted, Observed: u.rec.Declared.Look.Tool + " shows something other than what the call left",
		Drift: &activities.Drift{Digest: is, Diff: u.describeDrift(*now)},
	}
}

func (u *undo) describePending() string {
	return fmt.Sprintf("%s; %s shows no change so far", u.pending, u.rec.Declared.Look.Tool)
}

func (u *undo) describeDrift(now sight) string {
	left := "the call left: (not known)\n"
	if u.left != nil {
		left = "the call left:\n" + u.left.describe() + "\n"
	}
	return left + "now:\n" + now.describe() + "\n"
}

// judgeUnseen judges by the answer alone.
func (u *undo) judgeUnseen() *activities.Undone {
	switch {
	case u.changedNothing():
		return &activities.Undone{Outcome: activities.Nothing,
			Observed: u.rec.Tool + " has answered with an error, which changes nothing, as declared"}
	case u.succeeded() && u.rec.Inverse == nil:
		return &activities.Undone{Outcome: activities.Final, Observed: u.rec.Tool + " was called, and cannot be undone"}
	case u.succeeded() && !u.answer.Lost && (!u.isRepeated || u.rec.Inverse.Done != ""):
		return nil
	case u.succeeded() && !u.answer.Lost:
		return &activities.Undone{Outcome: activities.Unknown,
			Observed: fmt.Sprintf(
				"%s was called and has not answered; neither a look nor done is declared that would tell what became of it",
				u.rec.Inverse.Tool)}
	case u.answer != nil:
		_, trouble := u.answer.read()
		return &activities.Undone{Outcome: activities.Unknown,
			Observed: fmt.Sprintf("%s has not succeeded (%s), and no look is declared that would tell what it has changed",
				u.rec.Tool, trouble)}
	}
	return &activities.Undone{Outcome: activities.Unknown,
		Observed: u.rec.Tool +
			" was called and has not answered, and no look is declared that would tell whether it has happened"}
}

// takeBack calls the inverse. It returns an outcome if that cannot be done.
func (u *undo) takeBack(now *sight) (*activities.Undone, error) {
	inverse := u.rec.Inverse
	arguments, err := u.values(now).fill(inverse.With)
	if err != nil {
		return &activities.Undone{Outcome: activities.Unknown,
			Observed: fmt.Sprintf("the arguments of %s are not known: %v", inverse.Tool, err)}, nil
	}
	if len(inverse.With) == 0 {
		arguments = map[string]any{}
	}
	u.reach("undo-ready")
	if u.ctx.Err() != nil {
		return nil, context.Cause(u.ctx)
	}
	if _, err := u.token.Create(inverseName(u.claimed), &inverseCall{claim{u.server.id}, u.isShown}); err != nil {
		return nil, err
	}
	u.reach("undo-noted")
	a, err := u.server.call(u.ctx, u.entry.Token, inverse.Tool, arguments)
	if err != nil {
		return nil, err
	}
	u.reach("undo-called")
	_, trouble := a.read()
	wasDone := a.isFinal() && inverse.Done != "" && matches(inverse.Done, trouble)
	if trouble != "" && !wasDone {
		if a.isFinal() { // it has taken nothing back
			if err := u.token.Drop(inverseName(u.claimed)); err != nil {
				return nil, err
			}
		}
		return nil, activities.Errorf(activities.ActionFailed, "%s of server %s, the inverse of %s: %s", inverse.Tool,
			u.rec.Server, u.rec.Tool, trouble)
	}
	_, err = u.token.Create(takenBack, &a)
	u.reach("undo-answered")
	return nil, err
}

// verify observes after the inverse.
func (u *undo) verify() (activities.Undone, error) {
	now, err := u.look()
	switch {
	case err != nil:
		return activities.Undone{}, err
	case now == nil:
		undone := u.report(activities.Compensated)
		undone.Observed = u.rec.Inverse.Tool + " has answered without an error; no look is declared that would show more"
		return undone, nil
	case u.rec.Before == nil:
		undone := u.report(activities.Compensated)
		undone.Observed = u.rec.Declared.Look.Tool + " shows: " + now.describe()
		return undone, nil
	case now.digest() == u.rec.Before.digest():
		return u.report(activities.Restored), nil
	}
	undone := u.report(activities.Residue)
	undone.Observed = u.rec.Declared.Look.Tool + " shows something other than before the call"
	undone.Losses = append(undone.Losses, "before: "+u.rec.Before.describe(), "now: "+now.describe())
	return undone, nil
}

// report is the outcome of an undo that has taken the call back. It is exact only without losses.
func (u *undo) report(outcome activities.Outcome) activities.Undone {
	undone := activities.Undone{Outcome: outcome, Losses: u.rec.losses()}
	if outcome == activities.Restored {
		undone.Observed = u.rec.Declared.Look.Tool + " shows what it showed before the call"
		if !u.isShown {
			undone.Observed += ", and was never seen to show what " + u.rec.Tool + " does"
		}
		if !u.isShown || len(undone.Losses) > 0 {
			undone.Outcome = activities.Compensated
		}
	}
	return undone
}

// hasShown reports whether a look sees something other than before the call.
func (r record) hasShown(now *sight) bool {
	return now != nil && r.Before != nil && now.digest() != r.Before.digest()
}

// losses are those that are declared.
func (r record) losses() []string {
	all := slices.Clone(r.Declared.Losses)
	if r.Inverse != nil {
		all = append(all, r.Inverse.Losses...)
	}
	return all
}
