package notices

import (
	"errors"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// lookEvery is how often a task is asked at least whether it still waits, so that what is decided is
// forgotten; freshFor is for how long its answer is good enough to tell people; lapseAfter is how
// long after its limit a gate is looked at.
const (
	lookEvery  = time.Hour
	freshFor   = time.Minute
	lapseAfter = 5 * time.Second
)

// dueAt is when the channel is to be told next of what waits; zero if never.
func (c Channel) dueAt(w protocol.Waiting) time.Time {
	switch {
	case w.Lapse != "":
		return c.afterQuiet(w, w.Until)
	case w.Told == 0 && w.MayWait() && w.From == "":
		return c.afterQuiet(w, inTime(w, w.At, w.At.Add(c.Digest)))
	case w.Told == 0:
		return c.afterQuiet(w, w.At)
	case c.Remind > 0 && w.Digest != "":
		return c.afterQuiet(w, w.Last.Add(c.Remind))
	}
	return time.Time{}
}

// tellAt is dueAt, or when the quiet hours around now are over if it is late.
func (c Channel) tellAt(w protocol.Waiting, now time.Time) time.Time {
	at := c.dueAt(w)
	if isDue(at, now) {
		return c.afterQuiet(w, now)
	}
	return at
}

// escalateAt is when another channel is to be told of what waits; zero if never.
func (c Channel) escalateAt(w protocol.Waiting) time.Time {
	if c.Escalate == nil || w.Escalated || w.Digest == "" || w.Lapse != "" {
		return time.Time{}
	}
	return c.afterQuiet(w, w.At.Add(c.Escalate.After))
}

// lookAt is when the task is to be asked whether it still waits; zero if nobody can decide it.
func (c Channel) lookAt(w protocol.Waiting) time.Time {
	if w.Digest == "" || w.Lapse != "" {
		return time.Time{}
	}
	next := lookedAt(w).Add(lookEvery)
	switch lapse := w.Until.Add(lapseAfter); {
	case w.State != protocol.Gated || next.Before(lapse):
	case lookedAt(w).Before(w.Until):
		next = lapse
	default: // it should have lapsed
		next = lookedAt(w).Add(freshFor)
	}
	return later(next, w.Unanswered.Add(freshFor))
}

// lookedAt is when the task last said that it still waits.
func lookedAt(w protocol.Waiting) time.Time { return later(w.Looked, w.At) }

// isOver reports whether the channel has nothing more to say of what waits.
func (c Channel) isOver(w protocol.Waiting) bool {
	return w.Told > 0 && (w.Lapse != "" || w.Digest == "" ||
		w.State != protocol.Gated && c.Remind == 0 && c.escalateAt(w).IsZero())
}

// nextAt is when the channel has to do something about what waits.
func (c Channel) nextAt(w protocol.Waiting, now time.Time) time.Time {
	var next time.Time
	for _, at := range []time.Time{c.tellAt(w, now), c.escalateAt(w), c.lookAt(w)} {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// isDue reports whether a time has come.
func isDue(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// inTime is at, or before if the gate would have lapsed by then.
func inTime(w protocol.Waiting, before, at time.Time) time.Time {
	if w.Lapse == "" && !w.Until.IsZero() && !at.Before(w.Until) {
		return before
	}
	return at
}

// afterQuiet is at, or when the quiet hours are over. A gate that would have lapsed by then does not
// wait for that.
func (c Channel) afterQuiet(w protocol.Waiting, at time.Time) time.Time {
	if !w.MayWait() {
		return at
	}
	hours, _ := parseQuiet(c.Quiet) // checked when the config was read
	return inTime(w, at, hours.end(at))
}

// quiet are hours of each day, from and to as times since midnight; none if they are the same.
type quiet struct {
	from, to time.Duration
	zone     *time.Location
}

// parseQuiet reads "22:00-07:00 Europe/Berlin".
func parseQuiet(s string) (q quiet, err error) {
	if s == "" {
		return q, nil
	}
	hours, zone, hasZone := strings.Cut(s, " ")
	from, to, isRange := strings.Cut(hours, "-")
	q.from, err = parseClock(from)
	if err == nil {
		q.to, err = parseClock(to)
	}
	if err != nil || !isRange || !hasZone || q.from == q.to {
		return q, errors.New("must be two times and a time zone, such as 22:00-07:00 Europe/Berlin")
	}
	if q.zone, err = time.LoadLocation(zone); err != nil {
		return q, errors.New("names a time zone that is not known; give one such as Europe/Berlin, or UTC")
	}
	return q, nil
}

func parseClock(s string) (time.Duration, error) {
	t, err := time.Parse("15:04", s)
	return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute, err
}

// end is when the quiet hours around a time are over; the time itself if there are none.
func (q quiet) end(at time.Time) time.Time {
	if q.from == q.to {
		return at
	}
	local := at.In(q.zone)
	for _, day := range []int{-1, 0} { // hours that began yesterday, or today
		from := clockOn(local, day, q.from)
		to := clockOn(local, day, q.to)
		if q.to < q.from {
			to = clockOn(local, day+1, q.to)
		}
		if !at.Before(from) && at.Before(to) {
			return to
		}
	}
	return at
}

func clockOn(local time.Time, day int, clock time.Duration) time.Time {
	y, m, d := local.Date()
	return time.Date(y, m, d+day, int(clock.Hours()), int(clock.Minutes())%60, 0, 0, local.Location())
}
