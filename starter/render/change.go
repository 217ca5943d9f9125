package render

import (
	"fmt"
	"io"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/starter/terminal"
)

// Change prints what a step would do, as a person reads it before approving.
func Change(w io.Writer, c activities.Change) { writeChange(w, c, c.Losses) }

// writeChange prints a change with some of its losses.
func writeChange(w io.Writer, c activities.Change, losses []string) {
	fmt.Fprintf(w, "  change    %s\n", terminal.OneLine(c.Summary))
	risk := string(c.Risk)
	if len(c.Facts) > 0 {
		risk += ": " + terminal.OneLine(strings.Join(c.Facts, "; "))
	}
	fmt.Fprintf(w, "  risk      %s\n", risk)
	undo := string(c.Strategy)
	if c.Undo != "" {
		undo += ": " + terminal.OneLine(c.Undo)
	}
	fmt.Fprintf(w, "  undo      %s\n", undo)
	if c.Horizon > 0 {
		fmt.Fprintf(w, "  horizon   %s after the end of the task\n", terminal.Duration(c.Horizon))
	}
	for _, loss := range losses {
		fmt.Fprintf(w, "  loses     %s\n", terminal.OneLine(loss))
	}
	if c.Diff != "" {
		fmt.Fprintln(w, terminal.Indent("  | ", c.Diff))
	}
}
