package task

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
)

// Addition is steps that are added to a session while it runs.
type Addition struct {
	// Session is the task document that the session was opened with. Its own steps are not looked at.
	Session json.RawMessage `json:"session"`
	// Steps is a list of steps, as in a task file.
	Steps json.RawMessage `json:"steps"`
	// Earlier are the steps that these may need or refer to: their actions, by id.
	Earlier map[string]string `json:"earlier,omitempty"`
	// Redone says that the session has had the steps already: they may say what a person has written.
	// All others are an agent's.
	Redone bool `json:"redone,omitempty"`
}

// Parse reads the steps with what the session's document says of all steps. Compile makes of it
// what the session adds: a step without needs follows those above it, and all that the session has
// done before: see Step.Follows.
func (a Addition) Parse() (*Document, error) {
	var problems Problems
	c := collector{file: "step", problems: &problems}
	if !json.Valid(a.Session) || !json.Valid(a.Steps) {
		return nil, fmt.Errorf("steps, or the document of their session: not JSON")
	}
	root := *readJSON(a.Session, &c)
	steps := readJSON(a.Steps, &c)
	added := &node{kind: object, fields: []field{{&node{kind: text, text: "steps"}, steps}}}
	checkMaps(added, nil, &c)
	switch n := len(steps.items); {
	case steps.kind != list:
		c.complain(steps, &trail{name: "steps"}, steps.display(), "must be a list", "write it as a list: [...]")
	case n == 0 || n > MaxAdded:
		c.complain(steps, &trail{name: "steps"}, "",
			fmt.Sprintf("has %s; 1 to %d can be added at once", activities.CountOf(n, "step"), MaxAdded), "")
	case root.kind != object || root.findValue("session") == nil:
		c.complain(nil, nil, "", "the task is no session: all its steps are in its file", "")
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	root.fields = slices.DeleteFunc(slices.Clone(root.fields), func(f field) bool { return f.key.text == "steps" })
	root.fields = append(root.fields, added.fields...)
	earlier := a.Earlier
	if earlier == nil {
		earlier = map[string]string{}
	}
	doc, err := parse(&root, c, earlier)
	if err == nil && !a.Redone {
		c.refuseReserved(steps)
		err = c.err()
	}
	return doc, err
}

// SecretsIn returns the names of the secrets to which parameters refer.
func SecretsIn(with json.RawMessage) (names []string) {
	if !json.Valid(with) {
		return nil
	}
	readJSON(with, &collector{problems: new(Problems)}).mapText(func(n *node) *node {
		t, _ := parseTemplate(n.text)
		for _, p := range t {
			if p.kind == secretRef {
				names = append(names, p.name)
			}
		}
		return n
	})
	return names
}

// Mentioned returns the ids in steps that may name earlier ones: those that they need, and those
// whose outputs they refer to. What cannot be read mentions nothing: Parse refuses it.
func Mentioned(steps json.RawMessage) (needed, referred []string) {
	if !json.Valid(steps) {
		return nil, nil
	}
	for _, s := range readJSON(steps, &collector{problems: new(Problems)}).items {
		if needs := s.findValue("needs"); needs != nil {
			for _, n := range needs.items {
				needed = append(needed, n.text)
			}
		}
		s.mapText(func(n *node) *node {
			t, _ := parseTemplate(n.text)
			for _, p := range t {
				if p.kind == outputRef {
					referred = append(referred, p.step)
				}
			}
			return n
		})
	}
	slices.Sort(needed)
	slices.Sort(referred)
	return slices.Compact(needed), slices.Compact(referred)
}
