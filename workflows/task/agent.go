package task

import (
	"slices"
	"strings"
)

// rule says which values a field of an agent's step may have: the words alone, or any that is no
// map.
type rule struct {
	words []string
	free  bool // also maps: they are data
}

// agentFields are all that an agent may say of a step, by the path of the field. What is not listed
// here only a person may say, in a task file: it would let the agent act without a person, or have
// damage stand that a person is to see.
var agentFields = map[string]rule{
	"id": {}, "name": {}, "uses": {}, "with": {free: true}, "needs": {}, "on": {}, "savepoint": {}, "timeout": {},
	"again":         {},
	"check.command": {}, "check.json.file": {}, "check.json.at": {}, "check.json.equals": {free: true}, "check.exists": {},
	"check.exists.path": {},
	"check.query":       {}, "check.expect": {free: true}, "check.when": {}, "check.within": {}, "check.timeout": {},
	"check.syntax": {}, "check.syntax.format": {}, "check.syntax.file": {},
	"check.http": {}, "check.http.url": {}, "check.http.status": {}, "check.http.contains": {}, "check.http.at": {},
	"check.http.equals": {free: true},
	"retry.attempts":    {}, "retry.backoff": {}, "retry.max": {},
	"gate": {words: []string{string(GateAsk)}}, "gate.mode": {words: []string{string(GateAsk)}}, "gate.timeout": {},
	"gate.why":   {},
	"on_failure": {words: failureWords}, "on_failure.unwind_to": {}, "on_failure.times": {},
}

// reserved is a value in a step that only a person may write.
type reserved struct {
	value *node
	at    *trail
	words []string // that an agent may write there
}

// findReserved returns what an agent may not say of a step.
func findReserved(n *node, at *trail, path string) (found []reserved) {
	may, isListed := agentFields[path]
	switch {
	case may.free:
	case n.kind == object:
		for _, f := range n.fields {
			name := f.key.text
			found = append(found, findReserved(f.value, at.key(name), strings.TrimPrefix(path+"."+name, "."))...)
		}
	case n.kind == list:
		for i, item := range n.items {
			found = append(found, findReserved(item, at.item(i), path)...)
		}
	case !isListed || may.words != nil && !slices.Contains(may.words, n.text):
		found = append(found, reserved{n, at, may.words})
	}
	return found
}

// refuseReserved complains about what an agent may not say of its steps.
func (c collector) refuseReserved(steps *node) {
	at := &trail{name: "steps"}
	for i, step := range steps.items {
		for _, r := range findReserved(step, at.item(i), "") {
			message := "only a person may say this"
			if r.words != nil {
				message = "an agent may only say " + strings.Join(r.words, ", ")
			}
			c.complain(r.value, r.at, r.value.display(), message,
				"leave it out, or have a person write the step into the file of the session")
		}
	}
}

// describeReserved says what is written in a step that only a person may write, as in gate: none;
// empty if nothing is.
func describeReserved(step *node) string {
	found := findReserved(step, nil, "")
	if len(found) == 0 {
		return ""
	}
	return found[0].at.String() + ": " + strings.Trim(found[0].value.display(), `"`)
}
