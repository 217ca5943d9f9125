package render

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/starter/terminal"
)

// Allowances prints standing approvals, and where each was used.
func Allowances(w io.Writer, given []activities.GivenAllowance) {
	for _, g := range given {
		fmt.Fprintf(w, "%s  agent %s\n", g.ID, terminal.OneLine(g.Agent))
		line := func(name, value string) { fmt.Fprintf(w, "  %-8s  %s\n", name, terminal.OneLine(value)) }
		line("covers", fmt.Sprintf("%s under %s, risk up to %s", strings.Join(g.Actions, ", "), strings.Join(g.Under, ", "),
			g.Risk))
		if len(g.Tasks) > 0 {
			line("tasks", strings.Join(g.Tasks, ", "))
		}
		line("by", SaidBy(g)+": "+g.Why)
		line("until", g.Until.UTC().Format(time.RFC3339))
		if g.Revoked != nil {
			line("revoked", fmt.Sprintf("by %s at %s", g.Revoked.Who, g.Revoked.At.UTC().Format(time.RFC3339)))
		}
		line("used", fmt.Sprintf("%d of %d", len(g.Used), g.Uses))
		for _, u := range g.Used {
			fmt.Fprintf(w, "    %s  step %s of task %s\n", u.At.UTC().Format(time.RFC3339), terminal.OneLine(u.Step),
				terminal.OneLine(u.Task))
		}
	}
}

// SaidBy names who gives a standing approval, and whether that is proved.
func SaidBy(g activities.GivenAllowance) string {
	if g.Key == "" {
		return g.Who + " (a claim: not signed)"
	}
	return activities.Signer(g.Who, g.Key)
}
