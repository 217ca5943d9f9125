package render

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// Plan prints what a task would do.
func Plan(w io.Writer, plan protocol.Plan) {
	fmt.Fprintf(w, "plan of %q: %s, nothing was touched\n", plan.Name, terminal.Plural(len(plan.Steps), "step"))
	said := map[string]string{}
	for i, s := range plan.Steps {
		fmt.Fprintf(w, "\n%d. %s  %s", i+1, s.ID, s.Uses)
		if s.Host != "" {
			fmt.Fprintf(w, "  on host %s", s.Host)
		}
		if s.Name != "" {
			fmt.Fprintf(w, "  (%s)", terminal.OneLine(s.Name))
		}
		fmt.Fprintln(w)
		if len(s.Needs) > 0 {
			fmt.Fprintf(w, "  needs     %s\n", strings.Join(s.Needs, ", "))
		}
		switch {
		case s.Refused != "":
			fmt.Fprintf(w, "  refused   will be refused, and the task with it: %s\n", terminal.OneLine(s.Refused))
		case s.Change != nil:
			writeChange(w, *s.Change, newLosses(said, s.ID, s.Change.Losses))
		default:
			fmt.Fprintf(w, "  unknown   %s\n", terminal.OneLine(s.Unknown))
		}
		switch {
		case s.Asks != "":
			fmt.Fprintf(w, "  asks      a person, because %s\n", terminal.OneLine(s.Asks))
		case s.Change != nil:
			fmt.Fprintf(w, "  asks      nobody\n")
		}
	}
	for _, note := range plan.Notes {
		fmt.Fprintf(w, "\nnote: %s\n", terminal.OneLine(note))
	}
}

// newLosses lists the losses of a step; those of an earlier step in one line, which names that.
// Said maps losses to the steps that they were listed for.
func newLosses(said map[string]string, step string, losses []string) (all []string) {
	again := map[string]int{}
	for _, loss := range losses {
		if earlier, ok := said[loss]; ok {
			again[earlier]++
			continue
		}
		said[loss] = step
		all = append(all, loss)
	}
	for _, earlier := range slices.Sorted(maps.Keys(again)) {
		all = append(all, fmt.Sprintf("the same as step %s (%d above)", earlier, again[earlier]))
	}
	return all
}
