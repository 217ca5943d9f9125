package redis

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/keyvalue"
	"github.com/seed-62bf7108/unwind/activities/recordkeeping"
)

// Undo puts the keys back.
func (a *execAction) Undo(ctx context.Context, e activities.Entry, d activities.Decision) (activities.Undone, error) {
	if u, is := activities.NeverBegan(e, d); is {
		return u, nil
	}
	c, err := a.open(ctx, e)
	if err != nil {
		return activities.Undone{}, err
	}
	defer c.end()
	reach("undo-begun")
	if err := c.fence(e, d.Done); err != nil {
		return activities.Undone{}, err
	}
	reach("fenced")
	for {
		outcome, moved, err := c.undoOnce(e, d)
		if !moved || err != nil {
			return outcome, err
		}
	}
}

// fence makes sure that no forward of a token acts any more.
func (c *connection) fence(e activities.Entry, isDone bool) error {
	made, err := owned(c.ctx, e)
	if err != nil {
		return err
	}
	known := 0
	if isDone {
		known = 1
	}
	a, err := c.run(fenceScript, nil, append(append([]any{c.id}, made...), known)...)
	switch {
	case err != nil:
		return err
	case a.text("happened") == "lost":
		return c.damaged(e, "has no record of it")
	case a.text("happened") == "damaged":
		return c.damaged(e, a.text("what"))
	}
	return nil
}

func (c *connection) damaged(e activities.Entry, what string) error {
	return activities.Errorf(activities.DamagedRecord,
		"database %s: the step with token %s has acted, and %s %s (were the data put back to an earlier state?): "+
			"nothing was touched; bring the record back, or decide what becomes of the step", c.name, e.Token, journalKey, what)
}

// undoOnce looks, and puts the keys back if they still are as they were seen. If they are not,
// moved is true, and nothing was touched.
func (c *connection) undoOnce(e activities.Entry, d activities.Decision) (outcome activities.Undone, moved bool,
	err error) {
	s, err := c.see(e)
	if err != nil {
		return outcome, false, err
	}
	switch {
	case s.state == recordkeeping.Undone && !s.forgotten:
		return outcome, false, c.decodeOutcome(e, s.outcome, &outcome)
	case s.state == recordkeeping.Released || s.forgotten:
		return outcome, false, activities.ReleasedError(e.Token)
	case s.state != recordkeeping.Undoing:
		return outcome, false, c.damaged(e, "has lost its record since the undo began")
	case d.Done && !s.hasImages:
		return outcome, false, c.damaged(e, "says that it has not")
	}
	drift, overwritable := c.findDrift(s)
	forced := drift != nil && overwritable && d.Force == drift.Digest
	if drift != nil && !forced {
		first, _, _ := strings.Cut(drift.Diff, "\n")
		return activities.Undone{Outcome: activities.Drifted, Observed: first, Drift: drift}, false, nil
	}
	raw, err := json.Marshal(recordkeeping.KeptOutcome{Token: e.Token, Undone: s.outcomeOf(forced)})
	if err != nil {
		return outcome, false, err
	}
	args := []any{c.id, e.Token, recordkeeping.FormatTime(time.Now()), string(raw), maxBytes, maxElements}
	for _, k := range s.keys {
		passed := ""
		if s.passed(k) {
			passed = "1"
		}
		args = append(args, k.now.sum, k.now.expires, passed)
	}
	a, err := c.run(undoScript, nil, args...)
	if err != nil {
		return outcome, false, err
	}
	switch a.text("happened") {
	case "undone":
		reach("restored")
		return outcome, false, c.decodeOutcome(e, a.text("outcome"), &outcome)
	case "damaged":
		return outcome, false, c.damaged(e, a.text("what"))
	case "failed":
		return outcome, false, fmt.Errorf("database %s: the keys cannot be put back, and were left as they are: %s", c.name,
			a.text("error"))
	}
	return outcome, true, nil
}

func (c *connection) decodeOutcome(e activities.Entry, text string, into *activities.Undone) error {
	var kept recordkeeping.KeptOutcome
	if err := json.Unmarshal([]byte(text), &kept); err != nil || kept.Token != e.Token || kept.Outcome == "" {
		return c.damaged(e, "does not hold the outcome of its undo")
	}
	*into = kept.Undone
	return nil
}

// snapshot is what a token's record says, and what the keys hold now.
type snapshot struct {
	state, outcome     string // the state is empty if there is no record
	forgotten, private bool
	hasImages          bool // it has acted, and what it changed is known
	now                int64
	keys               []seenKey
}

// seenKey is a key of a step: when what was there before expires, what the step left, and what is
// there now.
type seenKey struct {
	key          string
	before, left content
	now          content
	problem      string // why it cannot be compared
}

// see reads the record of a token, and compares its keys.
func (c *connection) see(e activities.Entry) (snapshot, error) {
	a, err := c.run(seeScript, nil, c.id, e.Token, maxBytes, maxElements)
	if err != nil || a.text("happened") == "none" {
		return snapshot{}, err
	}
	if a.text("happened") == "damaged" {
		return snapshot{}, c.damaged(e, a.text("what"))
	}
	s := snapshot{
		state: a.text("state"), outcome: a.text("outcome"), forgotten: a.text("forgotten") != "",
		private:   a.text("private") != "",
		hasImages: a.number("images") == 1, now: a.number("now"),
	}
	for _, k := range a.parts("keys") {
		s.keys = append(s.keys, seenKey{
			key: k.text("key"), before: k.content("before"), left: k.content("left"), now: k.content("now"),
			problem: k.text("problem"),
		})
	}
	return s, nil
}

// passed reports whether the time at which a key would have expired is over.
func (s snapshot) passed(k seenKey) bool { return k.before.sum != "" && s.isOver(k.before.expires) }

func (s snapshot) isOver(expires string) bool {
	at, err := strconv.ParseInt(expires, 10, 64)
	return err == nil && at >= 0 && at <= s.now
}

// is reports whether a key holds what it held at another time. What has expired since is nobody's
// change.
func (s snapshot) is(now, then content) bool {
	if now.sum == "" && then.sum != "" {
		return s.isOver(then.expires)
	}
	return now.sum == then.sum && (then.sum == "" || now.expires == then.expires)
}

// outcomeOf is the outcome of an undo that succeeds.
func (s snapshot) outcomeOf(forced bool) activities.Undone {
	if !s.hasImages {
		return activities.Undone{Outcome: activities.Nothing,
			Observed: "the commands of the step were never run, and no longer can be"}
	}
	expired := 0
	for _, k := range s.keys {
		if s.passed(k) {
			expired++
		}
	}
	return restoredKeys(len(s.keys)-expired, expired, forced)
}

// restoredKeys is the outcome of an undo that has put keys back, but for those that have expired.
func restoredKeys(back, expired int, forced bool) activities.Undone {
	observed := activities.CountOf(back, "key") + " as before"
	if forced {
		observed += ", over what someone else had changed"
	}
	observed = strings.Join(append([]string{observed}, describeExpired(expired)...), "; ")
	return activities.Undone{Outcome: activities.Restored, Observed: observed}
}

// describeExpired says that some keys do not come back; nothing if all do.
func describeExpired(n int) []string {
	if n == 0 {
		return nil
	}
	return []string{activities.CountOf(n, "key") + " not brought back, because the time to expire has passed since"}
}

// findDrift compares every key with what the step left; nil if nothing differs. Drift that cannot
// be compared cannot be overwritten.
func (c *connection) findDrift(s snapshot) (found *activities.Drift, overwritable bool) {
	var parts [][]byte
	var b strings.Builder
	total := 0
	overwritable = true
	for _, k := range s.keys {
		if k.problem == "" && s.is(k.now, k.left) {
			continue
		}
		parts = append(parts, []byte(k.key), []byte(k.now.sum), []byte(k.now.expires))
		if total++; total > shownKeys {
			continue
		}
		fmt.Fprintf(&b, "%s: the step left %s; now: %s\n", strconv.Quote(k.key), describeLeft(k.left), k.now.describe())
		switch {
		case k.problem != "":
			overwritable = false
			fmt.Fprintf(&b,
				"  it %s, and cannot be compared or overwritten: mend it by hand, and retry, or accept it as it is\n", k.problem)
		case k.now.sum == "":
			fmt.Fprintf(&b, "  someone deleted it%s\n", c.orEvicted())
		default:
			k.now.more = k.now.count - int64(len(k.now.items))
			if k.now.kind == "string" || k.now.kind == "stream" {
				k.now.more = 0
			}
			k.now.show(&b, "  ", s.private || keyvalue.MatchesAny(c.Sensitive, k.key))
		}
	}
	if total == 0 {
		return nil, false
	}
	head := "changed since the step: " + activities.CountOf(total, "key") + "\n"
	return &activities.Drift{Diff: head + b.String(), Digest: activities.DigestOf(parts...)}, overwritable
}

func (c *connection) orEvicted() string {
	if policy := c.evicting(); policy != "" {
		return ", or the server evicted it (maxmemory-policy " + policy + ")"
	}
	return ""
}

func describeLeft(v content) string {
	if v.kind == "none" {
		return "no such key"
	}
	return "a " + v.kind
}
