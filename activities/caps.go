package activities

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

func capChange(c Change) Change {
	c.Summary, c.Diff, c.Undo = head(c.Summary, MaxSummary), head(c.Diff, MaxDiff), head(c.Undo, MaxText)
	c.Losses, c.Facts, c.Keys = capList(c.Losses), capList(c.Facts), capList(c.Keys)
	return c
}

func capResult(r Result) Result {
	var cut string
	r.Outputs, cut = capOutputs(r.Outputs)
	r.Summary, r.Notes = head(r.Summary, MaxSummary), capList(r.Notes)
	if cut != "" {
		r.Notes = append(r.Notes, cut)
	}
	return r
}

func capUndone(u Undone) Undone {
	u.Observed, u.Losses = head(u.Observed, MaxText), capList(u.Losses)
	capDrift(u.Drift)
	return u
}

func capObservation(o Observation) Observation {
	o.Detail = head(o.Detail, MaxText)
	capDrift(o.Drift)
	return o
}

func capDrift(d *Drift) {
	if d != nil {
		d.Diff = head(d.Diff, MaxDiff)
	}
}

// capList keeps the first items of a list, and counts the others in one more.
func capList(items []string) []string {
	if items == nil {
		return nil
	}
	kept := make([]string, 0, min(len(items), MaxItems)+1)
	for i, item := range items {
		if i == MaxItems {
			return append(kept, fmt.Sprintf("and %d more", len(items)-MaxItems))
		}
		kept = append(kept, head(item, MaxItem))
	}
	return kept
}

// leastCut is the least part of an output that is worth keeping, in bytes.
const leastCut = 16

// capOutputs makes all outputs together fit into MaxOutputs bytes of JSON, and says what it cut: the longest first, all
// that are cut to the same length; one of which nothing would be left is left out.
func capOutputs(outputs map[string]any) (_ map[string]any, cut string) {
	type output struct {
		name           string
		frame, content int // bytes as JSON, of the name with what stands round it, and of the value
	}
	all := make([]output, 0, len(outputs))
	total := len("{}")
	for name, v := range outputs {
		o := output{name, len(jsonOf(name)) + len(":,"), len(jsonOf(v))}
		total += o.frame + o.content
		all = append(all, o)
	}
	if total <= MaxOutputs {
		return outputs, ""
	}
	slices.SortFunc(all, func(a, b output) int {
		if d := (a.frame + a.content) - (b.frame + b.content); d != 0 {
			return d
		}
		return strings.Compare(a.name, b.name)
	})
	kept := make(map[string]any, len(outputs))
	var names []string
	left := MaxOutputs - len("{}")
	for i, o := range all {
		share := left / (len(all) - i)
		switch {
		case o.frame+o.content <= share:
			kept[o.name] = outputs[o.name]
			left -= o.frame + o.content
			continue
		case share-o.frame >= leastCut:
			kept[o.name] = headJSON(text(outputs[o.name]), share-o.frame)
			left -= share
		}
		names = append(names, fmt.Sprintf("%s (%d bytes)", head(o.name, leastCut*2), o.content))
	}
	slices.Reverse(names)
	return kept, head(fmt.Sprintf("cut or left out, for the outputs to fit into %d bytes: %s", MaxOutputs, strings.Join(names, ", ")), MaxItem)
}

// text is a string itself, and the JSON of anything else.
func text(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return string(jsonOf(v))
}

// jsonOf is v as the history holds it; nothing of what has no JSON, which the payload's conversion will refuse.
func jsonOf(v any) []byte {
	b, _ := json.Marshal(v)
	return b
}

const more = " ..."

// head is at most the first n bytes of s.
func head(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:max(0, n-len(more))], "") + more
}

// headJSON is at most so much of the head of s that it takes n bytes as JSON, escapes and quotes included.
func headJSON(s string, n int) string {
	left := n - len(`""`) - len(more)
	for i, r := range s {
		size := 6 // as \u0000, what no other case is
		switch {
		case r == '"' || r == '\\' || r == '\n' || r == '\r' || r == '\t':
			size = 2
		case r >= ' ' && !strings.ContainsRune("<>&\u2028\u2029"+string(utf8.RuneError), r):
			size = utf8.RuneLen(r)
		}
		if left -= size; left < 0 {
			return s[:i] + more
		}
	}
	return s
}
