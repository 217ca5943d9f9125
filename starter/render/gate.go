package render

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// Gate prints a gate that waits for a person.
func Gate(w io.Writer, g protocol.GateView) {
	again := ""
	if g.Opening > 1 {
		again = fmt.Sprintf(" (opening %d: what was approved no longer holds)", g.Opening)
	}
	fmt.Fprintf(w, "gate: step %s waits for a person%s\n", g.Step, again)
	if g.Why != "" {
		fmt.Fprintf(w, "  because   %s\n", terminal.OneLine(g.Why))
	}
	if g.Edited != "" {
		fmt.Fprintf(w, "  %s\n", terminal.OneLine(g.Edited))
	}
	for _, a := range g.Assents {
		claim := ""
		if a.Key == "" {
			claim = " (the name is a claim)"
		}
		fmt.Fprintf(w, "  approved  by %s%s\n", terminal.OneLine(a.String()), claim)
	}
	if g.Waits != "" {
		fmt.Fprintf(w, "  approvals %s\n", terminal.OneLine(g.Waits))
	}
	if g.Signed {
		fmt.Fprintf(w, "  decisions count only if they are signed: --key FILE, or the SSH agent\n")
	}
	Change(w, g.Change)
	fmt.Fprintf(w, "  until     %s, then it counts as rejected\n", terminal.LocalTime(g.Until, "2006-01-02 15:04"))
}

// GateWays prints three ways to approve, and how to reject; where only signed decisions count, one.
func GateWays(w io.Writer, server tasks.Server, id string, g protocol.GateView) {
	if g.Signed { // a bare signal decides nothing
		fmt.Fprintf(w, "  approve it: %s approve %s %s\n", server.StarterCommand(), terminal.ShellQuote(id),
			terminal.ShellQuote(g.Step))
		writeRejectWay(w, server, id, g)
		return
	}
	payload := signalPayload(protocol.Decision{Step: g.Step, Digest: g.Digest})
	fmt.Fprintf(w, "  approve it in one of three ways:\n")
	fmt.Fprintf(w, "    1. %s approve %s %s\n", server.StarterCommand(), terminal.ShellQuote(id),
		terminal.ShellQuote(g.Step))
	fmt.Fprintf(w, "    2. %s\n", server.SignalCommand(id, protocol.SignalApprove, payload))
	page := server.RunLink(id, "")
	if page == "" {
		page = "in the Temporal UI, on the page of the task"
	}
	fmt.Fprintf(w, "    3. %s\n       Send a Signal, name: %s, JSON: %s\n", page, protocol.SignalApprove, payload)
	writeRejectWay(w, server, id, g)
}

func writeRejectWay(w io.Writer, server tasks.Server, id string, g protocol.GateView) {
	fmt.Fprintf(w, "  or reject it: %s reject %s %s --why WHY\n", server.StarterCommand(), terminal.ShellQuote(id),
		terminal.ShellQuote(g.Step))
}

func signalPayload(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // structs of strings
	}
	return string(raw)
}
