package command

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows"
)

// writeChange prints what a step would do, as a person reads it before approving.
func writeChange(w io.Writer, c activities.Change) {
	fmt.Fprintf(w, "  change    %s\n", oneLine(c.Summary))
	risk := string(c.Risk)
	if len(c.Facts) > 0 {
		risk += ": " + oneLine(strings.Join(c.Facts, "; "))
	}
	fmt.Fprintf(w, "  risk      %s\n", risk)
	undo := string(c.Strategy)
	if c.Undo != "" {
		undo += ": " + oneLine(c.Undo)
	}
	fmt.Fprintf(w, "  undo      %s\n", undo)
	for _, loss := range c.Losses {
		fmt.Fprintf(w, "  is lost   %s\n", oneLine(loss))
	}
	if c.Diff != "" {
		fmt.Fprintln(w, indented("  | ", c.Diff))
	}
}

// writeGate prints a gate that waits for a person.
func writeGate(w io.Writer, g workflows.GateView) {
	again := ""
	if g.Opening > 1 {
		again = fmt.Sprintf(" (opened for the %s time: the change is different now)", ordinal(g.Opening))
	}
	fmt.Fprintf(w, "gate: step %s waits for a person%s\n", g.Step, again)
	if g.Why != "" {
		fmt.Fprintf(w, "  because   %s\n", oneLine(g.Why))
	}
	writeChange(w, g.Change)
	fmt.Fprintf(w, "  until     %s, then it counts as rejected\n", clock(g.Until, "2006-01-02 15:04"))
}

// writeWays prints the three ways to approve, and how to reject.
func (c *connection) writeWays(w io.Writer, id string, g workflows.GateView) {
	payload := signalPayload(workflows.Decision{Step: g.Step, Digest: g.Digest})
	fmt.Fprintf(w, "  approve it in one of three ways:\n")
	fmt.Fprintf(w, "    1. %s approve %s %s\n", c.starter(), quoted(id), quoted(g.Step))
	fmt.Fprintf(w, "    2. %s\n", c.signalCommand(id, workflows.SignalApprove, payload))
	page := c.link(id, "")
	if page == "" {
		page = "in the Temporal UI, at the page of the task"
	}
	fmt.Fprintf(w, "    3. %s\n       Send a Signal, name: %s, JSON: %s\n", page, workflows.SignalApprove, payload)
	fmt.Fprintf(w, "  or reject it: %s reject %s %s --reason WHY\n", c.starter(), quoted(id), quoted(g.Step))
}

func signalPayload(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // structs of strings
	}
	return string(raw)
}

// signalCommand is the temporal CLI's command line for a signal.
func (c *connection) signalCommand(id, name, payload string) string {
	return fmt.Sprintf("temporal workflow signal --address %s --namespace %s --workflow-id %s --name %s --input %s",
		quoted(c.Address), quoted(c.Namespace), quoted(id), name, quoted(payload))
}

// writePark prints an undo that waits for a person, and the command that resolves it.
func writePark(w io.Writer, id string, s compensations.StepReport) {
	fmt.Fprintf(w, "parked: the undo of step %s (%s) needs a person\n", s.Step, s.Action)
	fmt.Fprintf(w, "  because   %s\n", oneLine(s.Reason))
	if s.Drift != nil && s.Drift.Diff != "" {
		fmt.Fprintln(w, indented("  | ", s.Drift.Diff))
	}
	fmt.Fprintf(w, "  resolve it, one of:\n")
	for _, way := range ways(s) {
		fmt.Fprintf(w, "    starter resolve %s %s --do %-6s  # %s\n", quoted(id), quoted(s.Step), way.do, way.means)
	}
}

type way struct {
	do    compensations.Do
	means string
}

// ways are the decisions that fit a park: there is nothing to force without drift.
func ways(s compensations.StepReport) []way {
	all := []way{
		{compensations.Retry, "undo it again"},
		{compensations.Force, "overwrite exactly the drift that is shown"},
		{compensations.Skip, "leave it as it is; the steps that it builds on wait for a person too"},
		{compensations.Accept, "take the world as it is; the steps that it builds on are undone"},
	}
	if drifted(s) {
		return all
	}
	return append(all[:1], all[2:]...)
}

func drifted(s compensations.StepReport) bool {
	return s.Outcome == activities.Drifted && s.Drift != nil
}

func ordinal(n int) string {
	if n == 2 {
		return "second"
	}
	if n == 3 {
		return "third"
	}
	return fmt.Sprintf("%dth", n)
}
