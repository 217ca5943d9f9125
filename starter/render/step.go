package render

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/terminal"
)

// Step prints one step with its outputs.
func Step(w io.Writer, t tasks.Run, s tasks.Step) {
	fmt.Fprintf(w, "step %s of task %s: %s, %s\n", s.ID, t.ID, s.Uses, s.State)
	facts := terminal.Table{Indent: "  "}
	add := func(name, text string) {
		if text != "" {
			facts.Row(name, terminal.OneLine(text))
		}
	}
	if !s.Began.IsZero() {
		add("began", terminal.LocalTime(s.Began, "2006-01-02 15:04:05"))
	}
	if !s.Ended.IsZero() {
		add("took", terminal.Duration(s.Took(s.Ended)))
	}
	if s.Waited > 0 {
		add("waited", terminal.Duration(s.Waited)+" for a person")
	}
	if s.Try > 1 {
		add("try", fmt.Sprint(s.Try))
	}
	add("host", s.Host)
	add("did", s.Summary)
	add("failed", Reason(s.Error))
	if s.Undo != nil {
		add("undo", strings.TrimSuffix(string(s.Undo.Outcome)+": "+s.Undo.Observed, ": "))
	}
	add("horizon", horizonText(s.Horizon))
	for _, note := range s.AllNotes() {
		add("note", Note(note))
	}
	for _, t := range s.Troubles {
		add("trouble", strings.TrimPrefix(Trouble(t), "trouble: "))
	}
	for _, line := range s.Progress {
		add("now", line)
	}
	facts.Write(w)
	writeRest(w, s.Error)
	if len(s.Outputs) == 0 {
		return
	}
	fmt.Fprintln(w, "\noutputs:")
	for _, name := range slices.Sorted(maps.Keys(s.Outputs)) {
		writeOutput(w, name, outputText(s.Outputs[name]))
	}
}

// OutputLines are outputs in short, for a view that goes on: at most so many lines, the last ones.
// Empty outputs are left out.
func OutputLines(outputs map[string]any, most int) []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(outputs)) {
		text := strings.TrimSpace(terminal.Printable(outputText(outputs[name])))
		switch {
		case text == "" || outputs[name] == nil:
		case !strings.Contains(text, "\n"):
			all = append(all, name+": "+text)
		default:
			all = append(all, name+":")
			for line := range strings.SplitSeq(text, "\n") {
				all = append(all, "| "+line)
			}
		}
	}
	if len(all) <= most {
		return all
	}
	if most < 2 {
		return all[len(all)-max(0, most):]
	}
	cut := len(all) - most + 1
	return append([]string{fmt.Sprintf("... %s before", terminal.Plural(cut, "line"))}, all[cut:]...)
}

// outputText is a text as it is, and anything else as JSON.
func outputText(output any) string {
	if text, ok := output.(string); ok {
		return text
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(output); err != nil {
		return fmt.Sprint(output)
	}
	return strings.TrimSpace(b.String())
}

// maxOutputLines is how many lines of one output are printed; JSON has them all.
const maxOutputLines = 40

func writeOutput(w io.Writer, name, text string) {
	lines := strings.Split(strings.TrimRight(terminal.Printable(text), "\n"), "\n")
	if len(lines) == 1 {
		fmt.Fprintf(w, "  %s: %s\n", name, lines[0])
		return
	}
	fmt.Fprintf(w, "  %s:\n%s\n", name,
		terminal.Indent("  | ", strings.Join(lines[:min(len(lines), maxOutputLines)], "\n")))
	if more := len(lines) - maxOutputLines; more > 0 {
		fmt.Fprintf(w, "  ... %s more; -o json has them\n", terminal.Plural(more, "line"))
	}
}
