package stripe

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"strconv"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// keyLife is how long Stripe certainly remembers a key: it promises 24 hours, and clocks differ.
const keyLife = 23 * time.Hour

// action carries out one kind.
type action struct {
	*service
	kind *kind
	spec activities.Spec
}

// Spec describes the kind in the catalog.
func (a *action) Spec() activities.Spec { return a.spec }

func (a *action) reachPoint(what string) { point.Reach(a.spec.Name + ":" + what) }

// isForgotten says that a key first used after since may be forgotten by now.
func (s *service) isForgotten(since time.Time) bool {
	return since.IsZero() || s.now().Sub(since) > keyLife
}

// Apply sends the request once per token.
func (a *action) Apply(ctx context.Context, e activities.Entry, step activities.Step,
	want activities.Digest) (activities.Result, error) {
	if err := refuseStaged(step.Checks); err != nil {
		return activities.Result{}, err
	}
	c, err := a.openSession(ctx, a.forward, e.Place.Journal)
	if err != nil {
		return activities.Result{}, err
	}
	req, err := a.kind.build(step.With, e.Token)
	if err != nil {
		return activities.Result{}, err
	}
	o, notes, err := a.sendOnce(c, e, req, want)
	if err != nil {
		return activities.Result{}, asActionError(err)
	}
	a.reachPoint("confirmed")
	if err := activities.RunChecks(ctx, step.Checks, activities.Live, activities.Live, scene{o}); err != nil {
		return activities.Result{}, err
	}
	return a.makeResult(o, notes), nil
}

// sendOnce sends the request, unless its effect stands already, and reads the object afterwards.
func (a *action) sendOnce(c *session, e activities.Entry, req request, want activities.Digest) (o object,
	notes []string, err error) {
	if e.Redoes != "" && a.kind.strategy == activities.Irreversible {
		if o, err = a.findStanding(c, e, req); err != nil || o != nil {
			return o, []string{"the effect of the step still stands from before the rollback; it was not repeated"}, err
		}
	}
	forward := a.createObject
	if a.kind.actsOnObject() {
		forward = a.changeObject
	}
	if o, notes, err = forward(c, e, req, want); err != nil {
		return nil, nil, err
	}
	o, err = a.checkStillMade(c, e.Token, o, req)
	return o, notes, err
}

func (a *action) makeResult(o object, notes []string) activities.Result {
	r := activities.Result{Summary: fmt.Sprintf("%s %s", a.kind.noun, o.text("id")), Outputs: map[string]any{},
		Notes: notes}
	for _, out := range a.kind.outputs {
		r.Outputs[out.name] = o.valueAt(out.path)
	}
	raw, err := json.Marshal(withoutNotes(o))
	if err != nil {
		panic(err) // it came out of JSON
	}
	r.After = activities.DigestOf(raw)
	return r
}

// checkStillMade reads the object again, to notice an undo that came in between.
func (a *action) checkStillMade(c *session, token string, o object, req request) (object, error) {
	path := req.parents
	if !a.kind.actsOnObject() {
		path = []string{req.list + "/" + o.text("id")}
	}
	now, err := c.getObject(path[0])
	switch {
	case isGone(err), err == nil && !a.kind.actsOnObject() && !isMadeBy(now, token):
		return nil, activities.Errorf(activities.Fenced, "%s %s was deleted: this forward came too late", a.kind.noun,
			o.text("id"))
	case err != nil:
		return nil, err
	}
	return now, a.kind.checkOpen(now, token)
}

// createObject creates an object, or finds the one that an earlier attempt created.
func (a *action) createObject(c *session, e activities.Entry, req request, want activities.Digest) (o object,
	notes []string, err error) {
	judged := a.judge(c, e, req)
	if want != "" || judged != nil || a.isForgotten(e.Since) {
		made, complete, err := c.findMade(req, e)
		if err != nil {
			return nil, nil, err
		}
		if len(made) > 0 {
			return made[0], []string{"an earlier attempt had created it"}, nil
		}
		if !complete && !e.Since.IsZero() {
			return nil, nil,
				unknownOutcome("too many objects have been created since to tell whether an earlier attempt created it")
		}
		if judged != nil {
			return nil, nil, judged
		}
		if err := a.checkApproved(c, e, req, want); err != nil {
			return nil, nil, err
		}
	}
	a.reachPoint("looked")
	o, _, err = c.postWithKey(req.path, req.params, deriveKey(e.Token))
	a.reachPoint("answered")
	switch {
	case isSpent(err):
		return nil, nil, a.lateError(e)
	case isStuck(err):
		made, _, err := c.findMade(req, e)
		if err == nil && len(made) == 0 {
			err = unknownOutcome(
				"Stripe failed to answer, will repeat that answer for this key, and lists no object that it created")
		}
		if err != nil {
			return nil, nil, err
		}
		return made[0], []string{"Stripe failed to answer; the object was found by its token"}, nil
	}
	return o, nil, err
}

// changeObject carries out a verb on an existing object. The record, made first, is a note on that
// object.
func (a *action) changeObject(c *session, e activities.Entry, req request, want activities.Digest) (o object,
	notes []string, err error) {
	target := req.parents[0]
	if o, err = c.getObject(target); err != nil {
		return nil, nil, err
	}
	if err := a.kind.checkOpen(o, e.Token); err != nil {
		return nil, nil, err
	}
	began := a.kind.beganAt(o, e.Token)
	if began.IsZero() {
		if err := a.judge(c, e, req); err != nil {
			return nil, nil, err
		}
		if err := a.checkApproved(c, e, req, want); err != nil {
			return nil, nil, err
		}
		note := e.Token + "@" + strconv.FormatInt(a.now().Unix(), 10)
		// The key is spent: another attempt has written the same note with another time.
		if _, err := c.writeNote(target, a.kind.mark(beganMark), note, deriveKey(e.Token, "record")); err != nil &&
			!isSpent(err) {
			return nil, nil, err
		}
		a.reachPoint("recorded")
	} else if a.isForgotten(began) && a.kind.isDone(o) {
		return o, []string{"an earlier attempt had done it"}, nil
	}
	o, _, err = c.postWithKey(req.path, req.params, deriveKey(e.Token))
	a.reachPoint("answered")
	switch {
	case isSpent(err):
		return nil, nil, a.lateError(e)
	case isStuck(err):
		if o, err = c.getObject(target); err == nil && !a.kind.isDone(o) {
			err = unknownOutcome("Stripe failed to answer, will repeat that answer for this key, and the status of the %s is %s",
				a.kind.noun, o.text("status"))
		}
		return o, []string{"Stripe failed to answer; the object shows that it was done"}, err
	}
	return o, nil, err
}

// judge returns Asks for a change that a person must approve first. Only a subscription has to be
// looked at: of all others the kind says how risky they are.
func (a *action) judge(c *session, e activities.Entry, req request) error {
	approval := activities.ApprovalFrom(c.ctx)
	change := activities.Change{Risk: a.kind.risk, Strategy: a.kind.strategy}
	if a.kind.noun == "subscription" && approval != nil && approval.Consent == activities.Unasked {
		var err error
		if change, err = a.describeChange(c, req, e.Place.Journal); err != nil {
			return err
		}
	}
	return approval.Judge(change)
}

// checkApproved returns StaleApproval unless the change is the one that was approved.
func (a *action) checkApproved(c *session, e activities.Entry, req request, want activities.Digest) error {
	if want == "" {
		return nil
	}
	change, err := a.describeChange(c, req, e.Place.Journal)
	if err == nil && change.Digest != want {
		err = activities.Errorf(activities.StaleApproval,
			"the change is not the one that was approved: %s is now %s, approved was %s",
			change.Summary, change.Digest.Short(), want.Short())
	}
	return err
}

func (a *action) lateError(e activities.Entry) error {
	return activities.Errorf(activities.Fenced,
		"the idempotency key of token %s is blocked: the step was undone or released, or its parameters have changed "+
			"since it was first sent", e.Token)
}

func unknownOutcome(format string, args ...any) error {
	return activities.Errorf(activities.UnknownOutcome, format, args...)
}

// findMade lists the objects that were created with an entry's token. It only reads. complete:
// there are no others.
func (c *session) findMade(req request, e activities.Entry) (made []object, complete bool, err error) {
	ours := func(o object) {
		if noteOn(o, tokenMark) == e.Token && !o.isDeleted() {
			made = append(made, o)
		}
	}
	if req.chosen != "" {
		o, err := c.getObject(req.list + "/" + req.chosen)
		if err != nil && !isGone(err) {
			return nil, false, err
		}
		ours(o)
		return made, true, nil
	}
	filter := url.Values{}
	maps.Copy(filter, req.filter)
	if !e.Since.IsZero() {
		filter.Set("created[gte]", strconv.FormatInt(e.Since.Add(-time.Hour).Unix(), 10)) // clocks differ
	}
	complete, err = c.listObjects(req.list, filter, ours)
	return made, complete, err
}
