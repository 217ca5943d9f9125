package notices

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// Notice is what is sent to people; a webhook gets it as JSON.
type Notice struct {
	// ID is the same where a notice is sent a second time.
	ID      string    `json:"id"`
	Channel string    `json:"channel"`
	At      time.Time `json:"at"`
	Items   []Item    `json:"items"`
	// More counts what waits besides, and was too much to be kept.
	More int `json:"more,omitempty"`
}

// Item is one thing that a notice tells of.
type Item struct {
	protocol.Alert

	// ID is the same in each notice about the same thing.
	ID   string `json:"id"`
	Kind Kind   `json:"kind"`
	// Page is where a person looks and decides; empty without a page.
	Page string `json:"page,omitempty"`
	// TaskPage is the page of its task.
	TaskPage string `json:"taskPage,omitempty"`
}

// Kind is why something is told.
type Kind string

// The kinds of items.
const (
	New       Kind = "new"
	Reminder  Kind = "reminder"
	Escalated Kind = "escalated" // nobody has decided, so another channel is told
	Lapsed    Kind = "lapsed"    // nobody has decided in time: it counts as rejected
)

// newNotice makes the notice of what is due.
func newNotice(c Channel, page string, at time.Time, due []*protocol.Waiting, more int) Notice {
	n := Notice{Channel: c.Name, At: at, Items: []Item{}, More: more}
	parts := [][]byte{[]byte(c.Name)}
	if len(due) == 0 {
		parts = append(parts, []byte(at.Format(time.RFC3339Nano)))
	}
	for _, w := range due {
		item := Item{Alert: w.Alert, ID: w.ID(), Kind: kindOf(*w)}
		if w.Lapse != "" {
			item.Reason = w.Lapse
		}
		if page != "" {
			item.TaskPage = strings.TrimSuffix(page, "/") + "/tasks/" + url.PathEscape(w.Task)
			item.Page = item.TaskPage
			if w.Step != "" {
				item.Page += "/steps/" + url.PathEscape(w.Step)
			}
		}
		n.Items = append(n.Items, item)
		parts = append(parts, fmt.Appendf(nil, "%s %s %s %d", item.ID, item.Kind, w.From, w.Told))
	}
	n.ID = activities.DigestOf(parts...).Short()
	return n
}

func kindOf(w protocol.Waiting) Kind {
	switch {
	case w.Lapse != "":
		return Lapsed
	case w.Told > 0:
		return Reminder
	case w.From != "":
		return Escalated
	}
	return New
}

// masked returns the notice without the values of secrets.
func (n Notice) masked(m *activities.Masker) Notice {
	n.Items = slices.Clone(n.Items)
	for i, item := range n.Items {
		n.Items[i].Reason, n.Items[i].Summary = m.String(item.Reason), m.String(item.Summary)
	}
	return n
}

// title says in one line what the notice is about.
func (n Notice) title() string {
	if len(n.Items) == 0 {
		return n.rest()
	}
	title := n.Items[0].title()
	if more := len(n.Items) - 1 + n.More; more > 0 {
		title += fmt.Sprintf(", and %d more", more)
	}
	return title
}

// title says in one line what is to be decided.
func (i Item) title() string {
	name := func(s string) string { return activities.Visible(payload.Clip(s, payload.MaxName)) }
	what := "task " + name(i.Task)
	if i.Step != "" {
		what = fmt.Sprintf("step %s of task %s", name(i.Step), name(i.Task))
	}
	switch {
	case i.Kind == Lapsed:
		return "Lapsed: " + what
	case i.State == protocol.Gated:
		what = fmt.Sprintf("%s waits for approval (risk: %s)", what, i.Risk)
	case i.State == compensations.Parked:
		what += " is parked"
	default:
		what = fmt.Sprintf("%s: %s", what, i.State)
	}
	switch i.Kind {
	case Reminder:
		return "Still: " + what
	case Escalated:
		return "Nobody has decided: " + what
	}
	return strings.ToUpper(what[:1]) + what[1:]
}

// lines are what a person needs to know besides.
func (i Item) lines() []string {
	var lines []string
	add := func(text string) {
		if text != "" {
			lines = append(lines, activities.Visible(payload.Clip(text, payload.MaxWhy)))
		}
	}
	if i.Action != "" {
		add(strings.TrimSuffix(i.Action+": "+i.Summary, ": "))
	}
	add(i.Reason)
	if len(i.Groups) > 0 {
		add("Asked: " + strings.Join(i.Groups, ", "))
	}
	if i.State == protocol.Gated && i.Kind != Lapsed {
		add(fmt.Sprintf("Since %s; without an answer it counts as rejected at %s", clock(i.At), clock(i.Until)))
	} else {
		add("Since " + clock(i.At))
	}
	return lines
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }

// text is the whole notice for people, as plain text.
func (n Notice) text() string {
	var b strings.Builder
	for _, item := range n.Items {
		b.WriteString(item.title() + "\n")
		for _, line := range item.lines() {
			b.WriteString(line + "\n")
		}
		if item.Page != "" {
			b.WriteString(item.Page + "\n")
		} else {
			fmt.Fprintf(&b, "starter show %s\n", activities.Visible(item.Task))
		}
		b.WriteString("\n")
	}
	b.WriteString(n.rest())
	return strings.TrimRight(b.String(), "\n")
}

// rest says what the notice does not tell; empty if that is nothing.
func (n Notice) rest() string {
	if n.More == 0 {
		return ""
	}
	return "Not shown, as they were too many: " + activities.CountOf(n.More, "alert") + "; see starter list --needs-person"
}

// isUrgent reports whether it is neither gathered nor held back at night.
func (i Item) isUrgent() bool { return !protocol.Waiting{Alert: i.Alert}.MayWait() }
