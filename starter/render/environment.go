package render

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/docker/go-units"

	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/workflows/environment"
)

// Environment prints an environment and its checkpoints.
func Environment(w io.Writer, v environment.View) {
	fmt.Fprintf(w, "environment %s on %s", v.Document.Name, v.Host)
	if v.Document.Owner != "" {
		fmt.Fprintf(w, ", owned by %s", terminal.OneLine(v.Document.Owner))
	}
	fmt.Fprintln(w)
	if v.Document.Unit != "" {
		when := "stopped while the parts are captured or put back"
		switch v.Document.Quiesce {
		case environment.PauseUnitFor:
			when = "paused while the parts are captured, and stopped while they are put back"
		case environment.LeaveUnit:
			when = "stopped while the parts are put back"
		}
		fmt.Fprintf(w, "unit %s is %s\n", v.Document.Unit, when)
	} else {
		fmt.Fprintln(w, "no unit: nothing is stopped, and a checkpoint may be of no one moment")
	}
	parts := terminal.Table{Width: listWidth, Least: []int{10, 8, 20}}
	parts.Row("PART", "KIND", "RESOURCE")
	for _, name := range slices.Sorted(maps.Keys(v.Document.Parts)) {
		p := v.Document.Parts[name]
		parts.Row(name, p.Kind(), terminal.OneLine(p.Resource()))
	}
	parts.Write(w)
	if v.Doing != nil {
		fmt.Fprintf(w, "busy since %s: %s\n", terminal.LocalTime(v.Doing.Since, time.TimeOnly), v.Doing.What)
	}
	Checkpoints(w, v.Checkpoints)
	u := v.Usage
	fmt.Fprintf(w, "%s, %d pinned, %s in all; kept: the last %d, the oldest of each of the last %s, and what is pinned\n",
		terminal.Plural(u.Checkpoints, "checkpoint"), u.Pinned, units.HumanSize(float64(u.Bytes)), u.Last,
		terminal.Plural(u.Days, "day"))
}

// TasksOf prints which tasks have changed parts of an environment.
func TasksOf(w io.Writer, v environment.View, t environment.Tasks) {
	back := v.TakenBack()
	for _, each := range t.Tasks {
		fmt.Fprint(w, "changed by ", wrote(each))
		for _, b := range back[each.Task] {
			fmt.Fprintf(w, "; taken back in %s by the rollback to %s", strings.Join(b.Parts, ", "), b.Checkpoint)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "tasks are known that have changed parts since %s\n", terminal.LocalTime(t.Since, time.DateTime))
	for _, what := range append(slices.Clip(t.Unread), v.Unknown(t.Since)...) {
		fmt.Fprintln(w, "not known:", terminal.OneLine(what))
	}
}

// wrote says which parts a task has changed, and how it stands.
func wrote(t environment.TaskWrote) string {
	how := "which the server no longer knows"
	switch {
	case t.Open:
		how = "which has not ended"
	case !t.Ended.IsZero():
		how = "ended " + terminal.LocalTime(t.Ended, time.DateTime)
	}
	return fmt.Sprintf("task %s, %s: %s, last at %s", terminal.OneLine(t.Task), how, strings.Join(t.Names(), ", "),
		terminal.LocalTime(t.At, time.DateTime))
}

// Comparison prints what differs, part by part.
func Comparison(w io.Writer, c environment.Comparison) {
	for _, p := range c.Parts {
		fmt.Fprintf(w, "%s %s: %s\n", p.Kind, terminal.OneLine(p.Resource), terminal.Plural(int(p.Changed),
			"different "+environment.Counted(p.Kind)))
		for line := range strings.Lines(p.Diff) {
			fmt.Fprintf(w, "  %s\n", terminal.OneLine(strings.TrimSuffix(line, "\n")))
		}
	}
	for _, name := range c.Left {
		fmt.Fprintf(w, "%s is not compared: there is no such part to compare it with\n", name)
	}
}

// Checkpoints prints a list of checkpoints.
func Checkpoints(w io.Writer, list []environment.Checkpoint) {
	if len(list) == 0 {
		return
	}
	t := terminal.Table{Width: listWidth, Least: []int{11, 0, 0, 0, 0, 20}}
	t.Row("CHECKPOINT", "CREATED", "TRIGGER", "SIZE", "", "NOTES")
	for _, c := range list {
		var marks []string
		if c.Pinned {
			marks = append(marks, "pinned")
		}
		if len(c.NeededBy) > 0 {
			marks = append(marks, "needed by a step")
		}
		if c.Healthy != nil && !*c.Healthy {
			marks = append(marks, "not healthy")
		}
		if !c.Quiesced {
			marks = append(marks, "not quiesced")
		}
		t.Row(c.ID, terminal.LocalTime(c.Created, time.DateTime), string(c.Trigger), units.HumanSize(float64(c.Bytes)),
			strings.Join(marks, ", "), terminal.OneLine(c.Notes))
	}
	t.Write(w)
}

// RolledBack prints what a rollback has done.
func RolledBack(w io.Writer, r environment.RolledBack) {
	t := terminal.Table{Width: listWidth, Least: []int{17, 0, 0, 8, 20}}
	t.Row("STAGE", "STATUS", "TOOK", "PARTS", "NOTES")
	for _, s := range r.Stages {
		t.Row(string(s.Stage), s.Status, fmt.Sprintf("%.1fs", s.Seconds), strings.Join(s.Parts, ", "),
			terminal.OneLine(s.Notes))
	}
	t.Write(w)
	WayForward(w, r)
}

// Stage says what became of one stage of a rollback.
func Stage(w io.Writer, s environment.Passed) {
	fmt.Fprintf(w, "%-17s  %-7s  %4.1fs  %s\n", s.Stage, s.Status, s.Seconds,
		strings.TrimPrefix(strings.Join(s.Parts, ", ")+": ", ": ")+terminal.OneLine(s.Notes))
}

// WayForward says what a rollback has not touched, and how to reverse it.
func WayForward(w io.Writer, r environment.RolledBack) {
	for _, each := range r.Past {
		fmt.Fprintln(w, "taken back: what was done by", wrote(each))
	}
	if r.MorePast > 0 {
		fmt.Fprintf(w, "taken back: the changes of %s\n", terminal.Plural(r.MorePast, "more task"))
	}
	for _, note := range r.Notes {
		fmt.Fprintln(w, "note:", terminal.OneLine(note))
	}
	fmt.Fprintf(w, "environment %s is as in checkpoint %s; to go forward again: starter env rollback %s %s\n",
		r.To.Environment, r.To.ID, r.To.Environment, r.Safety.ID)
}
