package activities

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// noteCutDiff says in a change that its diff is too long to be shown whole: nobody can read it, so
// its risk is not low.
func noteCutDiff(c Change) Change {
	if long := len(c.Diff); long > MaxDiff {
		c.Facts = append(
			[]string{fmt.Sprintf("its diff of %s is cut, so nobody can read all of it here; split the step to see the whole",
				CountOf(long, "byte"))}, c.Facts...)
		if c.Risk == Low {
			c.Risk = Medium // gate: auto asks
		}
	}
	return c
}

// capChange cuts what is too long. noteCutDiff comes before.
func capChange(c Change) Change {
	c.Summary, c.Diff, c.Undo = headText(c.Summary, MaxSummary), HeadDiff(c.Diff, MaxDiff), headText(c.Undo, MaxText)
	c.Losses, c.Facts, c.Keys, c.Schema = capList(c.Losses), capList(c.Facts), capList(c.Keys), capList(c.Schema)
	c.Counts = c.Counts[:min(len(c.Counts), MaxItems)]
	return c
}

// Cut names the fields of the change, as in its JSON, of which a part may have been left out because
// they were too long.
func (c Change) Cut() (fields []string) {
	isCut := func(s string) bool { return strings.HasSuffix(s, more) }
	add := func(field string, cut bool) {
		if cut {
			fields = append(fields, field)
		}
	}
	add("summary", isCut(c.Summary))
	add("undo", isCut(c.Undo))
	lastLine := c.Diff[strings.LastIndexByte(strings.TrimSuffix(c.Diff, "\n"), '\n')+1:]
	add("diff", strings.Contains(lastLine, notShown))
	add("counts", len(c.Counts) >= MaxItems)
	lists := map[string][]string{"losses": c.Losses, "facts": c.Facts, "schema": c.Schema, "keys": c.Keys}
	for field, list := range lists {
		add(field, len(list) > MaxItems || slices.ContainsFunc(list, isCut))
	}
	slices.Sort(fields)
	return fields
}

// capResult caps a result. The outputs that undoing needs are never cut, because half an id would
// name something else.
func capResult(r Result, undoOutputs []string) Result {
	outputs, known, tooLong := takeKnown(r.Outputs, undoOutputs)
	outputs, cut := capOutputs(outputs, MaxOutputs-(len(encodeJSON(known))-len("{}")))
	maps.Copy(known, outputs)
	if r.Outputs != nil {
		r.Outputs = known
	}
	r.Summary, r.Notes = headText(r.Summary, MaxSummary), capList(r.Notes)
	for _, note := range []string{tooLong, cut} {
		if note != "" {
			r.Notes = append(r.Notes, note)
		}
	}
	return r
}

// takeKnown splits the outputs that undoing needs off the others. Those that do not fit into
// MaxKnown bytes are left out, and named.
func takeKnown(outputs map[string]any, undoOutputs []string) (others, known map[string]any, tooLong string) {
	others, known = maps.Clone(outputs), map[string]any{}
	var missing []string
	left := MaxKnown - len("{}")
	for _, name := range undoOutputs {
		value, given := outputs[name]
		if !given {
			continue
		}
		delete(others, name)
		if size := len(encodeJSON(name)) + len(":,") + len(encodeJSON(value)); size <= left {
			left -= size
			known[name] = value
		} else {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		tooLong = headText(fmt.Sprintf("left out, though the undo needs it, for it does not fit into %s: %s",
			CountOf(MaxKnown, "byte"), strings.Join(missing, ", ")), MaxItem)
	}
	return others, known, tooLong
}

func capUndone(u Undone) Undone {
	u.Observed, u.Losses, u.Drift = headText(u.Observed, MaxText), capList(u.Losses), capDrift(u.Drift)
	return u
}

func capObservation(o Observation) Observation {
	o.Detail, o.Drift = headText(o.Detail, MaxText), capDrift(o.Drift)
	return o
}

// capDrift returns a drift of its own: an action may return the same one to several calls.
func capDrift(d *Drift) *Drift {
	if d == nil {
		return nil
	}
	return &Drift{Diff: HeadDiff(d.Diff, MaxDiff), Digest: d.Digest}
}

// capList keeps the first MaxItems of a list and replaces the others by their number.
func capList(items []string) []string {
	if items == nil {
		return nil
	}
	kept := make([]string, 0, min(len(items), MaxItems)+1)
	for i, item := range items {
		if i == MaxItems {
			return append(kept, fmt.Sprintf("and %d more", len(items)-MaxItems))
		}
		kept = append(kept, headText(item, MaxItem))
	}
	return kept
}

// minCut is the shortest part of an output worth keeping, in bytes.
const minCut = 16

// capOutputs makes all outputs together fit into most bytes of JSON, and says what it cut. It cuts
// the longest ones, all to the same length, and omits those of which too little would remain.
func capOutputs(outputs map[string]any, most int) (_ map[string]any, cut string) {
	type output struct {
		name           string
		frame, content int // in bytes of JSON: the name with its punctuation, and the value
	}
	all := make([]output, 0, len(outputs))
	total := len("{}")
	for name, v := range outputs {
		o := output{name, len(encodeJSON(name)) + len(":,"), len(encodeJSON(v))}
		total += o.frame + o.content
		all = append(all, o)
	}
	if total <= most {
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
	left := most - len("{}")
	for i, o := range all {
		share := left / (len(all) - i)
		switch {
		case o.frame+o.content <= share:
			kept[o.name] = outputs[o.name]
			left -= o.frame + o.content
			continue
		case share-o.frame >= minCut:
			kept[o.name] = headJSON(outputText(outputs[o.name]), share-o.frame)
			left -= share
		}
		names = append(names, fmt.Sprintf("%s (%s)", headText(o.name, minCut*2), CountOf(o.content, "byte")))
	}
	slices.Reverse(names)
	return kept,
		headText(fmt.Sprintf("cut or left out, for the outputs to fit into %s: %s", CountOf(most, "byte"),
			strings.Join(names, ", ")), MaxItem)
}

// outputText returns v if it is a string, otherwise its JSON.
func outputText(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return string(encodeJSON(v))
}

// encodeJSON returns v as it is in the history. It is empty if v has no JSON, which the payload's
// conversion will refuse.
func encodeJSON(v any) []byte {
	b, _ := json.Marshal(v)
	return b
}

const more = " ..."

// headText returns the head of s, at most n bytes with its ellipsis.
func headText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:max(0, n-len(more))], "") + more
}

// notShown begins the last line of a diff that was cut.
const notShown = "... not shown: "

// HeadDiff returns the head of a diff that takes at most n bytes: whole lines, and last how much is
// not shown, since a person decides by it. That is said even where n has no room for it.
func HeadDiff(diff string, n int) string {
	if len(diff) <= n {
		return diff
	}
	const note = notShown + "%s, %d of %s\n"
	room := max(0, n-len(note)-3*len("1000000000")-len(" more lines bytes"))
	kept := strings.ToValidUTF8(diff[:room], "")
	if end := strings.LastIndexByte(kept, '\n'); end >= 0 {
		kept = kept[:end+1]
	} else if room > 0 {
		kept += "\n"
	}
	missing := strings.TrimSuffix(diff[min(len(kept), len(diff)):], "\n")
	return kept +
		fmt.Sprintf(note, CountOf(strings.Count(missing, "\n")+1, "more line"), len(diff)-min(len(kept), len(diff)),
			CountOf(len(diff), "byte"))
}

// headJSON returns the head of s that takes at most n bytes as JSON, including escapes and quotes.
func headJSON(s string, n int) string {
	left := n - len(`""`) - len(more)
	for i, r := range s {
		size := 6 // as \u0000, in all other cases
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
