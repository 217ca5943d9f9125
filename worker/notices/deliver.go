package notices

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// Desk does what is due of a channel's notices.
type Desk struct {
	Channels []Channel
	// Page is the address of the page, to which notices link; empty if there is none.
	Page string
	// Read reads a secret.
	Read func(activities.OwnSecret) (string, error)
	// Masker hides the values of secrets in whatever leaves the desk.
	Masker *activities.Masker
	// Look asks the task whether something still waits, and for what is new about it. If that cannot be
	// known, it waits, and the error says why.
	Look func(context.Context, protocol.Waiting) (now protocol.Waiting, waits bool, err error)
	// Hand hands to another channel what waits.
	Hand func(ctx context.Context, channel string, all []protocol.Waiting) error
}

// maxTold is how many things one notice tells of, and sendLimit bounds one attempt to send it.
const (
	maxTold   = 20
	sendLimit = 20 * time.Second
	lookLimit = time.Minute
)

// Pauses after a failure: each is twice as long as the one before, within these.
const (
	firstPause = 10 * time.Second
	maxPause   = 10 * time.Minute
)

// Deliver does what is due at a time: it forgets what no longer waits, hands on what is to be
// escalated, and sends one notice. It returns what the channel has to tell after that. What has
// failed stands in it as its Trouble, and is due again.
func (d Desk) Deliver(ctx context.Context, now time.Time, n protocol.Notices) protocol.Notices {
	c, err := find(d.Channels, n.Channel)
	if err != nil { // another worker may know it
		return d.pause(now, n, err)
	}
	n.Waiting = d.lookAgain(ctx, now, c, n.Waiting)
	trouble := d.escalate(ctx, now, c, n.Waiting)
	isPaused := now.Before(n.Pause)
	if trouble == nil && !isPaused {
		trouble = d.tell(ctx, now, c, &n)
	}
	n.Waiting = slices.DeleteFunc(n.Waiting, c.isOver)
	switch {
	case trouble != nil:
		n = d.pause(now, n, trouble)
	case !isPaused:
		if n.Failures > 0 {
			n.Failures, n.Trouble, n.Pause = 0, "", time.Time{}
		}
		n.Next = next(c, now, n.Waiting)
	}
	return n
}

// tell sends one notice of what is due, if anything is.
func (d Desk) tell(ctx context.Context, now time.Time, c Channel, n *protocol.Notices) error {
	due := dueIn(c, now, n.Waiting)
	if len(due)+n.More == 0 {
		return nil
	}
	err := d.send(ctx, c, newNotice(c, d.Page, now, due, n.More))
	some, isSome := errors.AsType[toldSome](err)
	if err != nil && !isSome {
		return err
	}
	for _, w := range due {
		w.Told, w.Last = w.Told+1, now
	}
	n.More, n.Failures, n.Trouble, n.Pause = 0, 0, "", time.Time{}
	if isSome {
		n.Trouble = d.Masker.String(some.Error())
	}
	return nil
}

// toldSome says why a notice that has reached somebody has not reached all.
type toldSome struct{ error }

// pause has the channel send nothing for a while after a failure.
func (d Desk) pause(now time.Time, n protocol.Notices, trouble error) protocol.Notices {
	n.Failures++
	n.Trouble = d.Masker.String(trouble.Error())
	n.Pause = now.Add(min(firstPause<<min(n.Failures-1, 10), maxPause))
	n.Next = n.Pause
	return n
}

// next is when the channel has to do something.
func next(c Channel, now time.Time, all []protocol.Waiting) (at time.Time) {
	for _, w := range all {
		if of := c.nextAt(w, now); !of.IsZero() && (at.IsZero() || of.Before(at)) {
			at = of
		}
	}
	return at
}

// lookAgain asks tasks whether what is due still waits, and forgets what does not.
func (d Desk) lookAgain(ctx context.Context, now time.Time, c Channel, all []protocol.Waiting) []protocol.Waiting {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	isRound := slices.ContainsFunc(all, func(w protocol.Waiting) bool { return isDue(c.lookAt(w), now) })
	var still []protocol.Waiting
	for _, w := range all {
		at := c.lookAt(w)
		acts := isDue(c.tellAt(w, now), now) || isDue(c.escalateAt(w), now)
		age := now.Sub(lookedAt(w))
		if !at.IsZero() && (isDue(at, now) || acts && age >= freshFor || isRound && age >= lookEvery/2) {
			asked, waits, err := d.Look(ctx, w)
			if !waits {
				continue
			}
			w = asked
			if err != nil {
				w.Unanswered = now
			} else {
				w.Looked, w.Unanswered = now, time.Time{}
			}
		}
		still = append(still, w)
	}
	return still
}

// escalate hands to another channel what has waited for too long.
func (d Desk) escalate(ctx context.Context, now time.Time, c Channel, all []protocol.Waiting) error {
	var late []protocol.Waiting
	for _, w := range all {
		if isDue(c.escalateAt(w), now) {
			late = append(late, protocol.Waiting{Alert: w.Alert, Looked: w.Looked, From: c.Name})
		}
	}
	if len(late) == 0 {
		return nil
	}
	if err := d.Hand(ctx, c.Escalate.To, late); err != nil {
		return err
	}
	for i, w := range all {
		if isDue(c.escalateAt(w), now) {
			all[i].Escalated = true
		}
	}
	return nil
}

// dueIn returns what is to be told now, the urgent first. What is being gathered comes along.
func dueIn(c Channel, now time.Time, all []protocol.Waiting) (due []*protocol.Waiting) {
	isAny := slices.ContainsFunc(all, func(w protocol.Waiting) bool { return isDue(c.tellAt(w, now), now) })
	for i, w := range all {
		isGathered := isAny && w.Told == 0 && w.Lapse == "" && !c.afterQuiet(w, now).After(now)
		if isGathered || isDue(c.tellAt(w, now), now) {
			due = append(due, &all[i])
		}
	}
	slices.SortStableFunc(due, func(a, b *protocol.Waiting) int {
		return cmp.Or(compareBool(a.MayWait(), b.MayWait()), a.At.Compare(b.At))
	})
	return due[:min(len(due), maxTold)]
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// send sends a notice the way that the channel has.
func (d Desk) send(ctx context.Context, c Channel, n Notice) error {
	ctx, cancel := context.WithTimeout(ctx, sendLimit)
	defer cancel()
	n = n.masked(d.Masker)
	switch {
	case c.Webhook != nil:
		return d.sendWebhook(ctx, *c.Webhook, n)
	case c.Slack != nil:
		return d.sendSlack(ctx, *c.Slack, n)
	case c.Ntfy != nil:
		return d.sendNtfy(ctx, *c.Ntfy, n)
	default:
		return d.sendMail(ctx, *c.Mail, n)
	}
}
