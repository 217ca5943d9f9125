package render

import (
	"fmt"
	"io"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// Park prints an undo that waits for a person, and the command that resolves it.
func Park(w io.Writer, server tasks.Server, id string, s compensations.StepReport) {
	fmt.Fprintf(w, "parked: the undo of step %s (%s) needs a person\n", s.Step, s.Action)
	fmt.Fprintf(w, "  because   %s\n", terminal.OneLine(s.Reason))
	if s.Drift != nil && s.Drift.Diff != "" {
		fmt.Fprintln(w, terminal.Indent("  | ", s.Drift.Diff))
	}
	fmt.Fprintf(w, "  resolve it, one of:\n")
	for _, way := range WaysToResolve(server, s) {
		fmt.Fprintf(w, "    %s resolve %s %s --do %-6s  # %s\n", server.StarterCommand(), terminal.ShellQuote(id),
			terminal.ShellQuote(s.Step), way.Do, way.Means)
	}
}

// Way is a decision about a park, and what it means.
type Way struct {
	Do    compensations.Do
	Means string
}

// WaysToResolve are the decisions that fit a park: force needs drift, and not every action can be
// reset.
func WaysToResolve(server tasks.Server, s compensations.StepReport) []Way {
	ways := []Way{{compensations.Retry, "undo it again"}}
	if Drifted(s) {
		ways = append(ways, Way{compensations.Force, "overwrite exactly the drift that is shown"})
	}
	ways = append(ways,
		Way{compensations.Skip, "leave it as it is; the steps that it builds on wait for a person too"},
		Way{compensations.Accept, "take the world as it is; the steps that it builds on are undone"})
	if resets := server.Resets[s.Action]; resets != "" {
		ways = append(ways, Way{compensations.Reset, terminal.OneLine(resets)})
	}
	return ways
}

// ParkedStep prints a step that has failed and waits for a person, and the commands that resolve
// it.
func ParkedStep(w io.Writer, server tasks.Server, id string, s protocol.ParkView) {
	fmt.Fprintf(w, "parked: step %s (%s) failed and needs a person\n", s.Step, s.Uses)
	fmt.Fprintf(w, "  because   %s\n", terminal.OneLine(Reason(s.Reason)))
	fmt.Fprintf(w, "  try       %d, with %s\n", s.Try, terminal.Clip(terminal.OneLine(string(s.With)), maxShownParams))
	fmt.Fprintf(w, "  resolve it, one of:\n")
	for _, way := range WaysForStep(s) {
		fmt.Fprintf(w, "    %s resolve %s %s --do %-6s  # %s\n", server.StarterCommand(), terminal.ShellQuote(id),
			terminal.ShellQuote(s.Step), way.Do, way.Means)
	}
}

// WaysForStep are the decisions that fit a step that has failed.
func WaysForStep(s protocol.ParkView) (ways []Way) {
	for _, do := range s.Ways {
		ways = append(ways, Way{do, meansForStep[do]})
	}
	return ways
}

// maxShownParams is how many characters of a parked step's parameters are shown; starter show -o
// json has all.
const maxShownParams = 200

var meansForStep = map[compensations.Do]string{
	compensations.Retry: "run it again; --with KEY=VALUE or --with FILE corrects its parameters",
	compensations.Skip:  "leave it out, with the steps that need it",
	protocol.DoUnwind:   "undo the whole task",
}

// Drifted says that someone else has changed what an undo would overwrite.
func Drifted(s compensations.StepReport) bool {
	return s.Outcome == activities.Drifted && s.Drift != nil
}
