package declared

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
)

// Call is a call of a tool, as its undo needs it. It is a part of the record.
type Call struct {
	Tool      string         `json:"tool"`
	Arguments map[string]any `json:"arguments,omitempty"`
	// Declared is what was declared of the tool when it was called, and Inverse what undoes it; nil if
	// nothing does.
	Declared Tool     `json:"declared"`
	Inverse  *Inverse `json:"inverse,omitempty"`
	// Before is what the look saw; nil if there is no look before the call.
	Before *Sight `json:"before,omitempty"`
}

// ChooseInverse takes the first inverse whose When holds, and reports whether there is one.
func (c *Call) ChooseInverse() bool {
	for _, each := range c.Declared.Undo {
		if len(each.When) == 0 || c.Before != nil && holds(c.Before.fields(), each.When) {
			c.Inverse = &each
			return true
		}
	}
	return false
}

// Change describes the call. Its digest covers parts too.
func (c *Call) Change(parts ...[]byte) activities.Change {
	arguments, _ := json.MarshalIndent(c.Arguments, "", "  ") // they came from JSON
	parts = append(parts, []byte(c.Tool), arguments)
	change := activities.Change{Risk: activities.Low, Strategy: activities.Compensation,
		Diff: fmt.Sprintf("%s %s\n", c.Tool, arguments)}
	if c.Before != nil {
		parts = append(parts, []byte(c.Before.Digest()))
		change.Diff += fmt.Sprintf("before, %s shows:\n%s\n", c.Declared.Look.Tool, c.Before.Describe())
	}
	if c.Inverse != nil {
		raw, _ := json.Marshal(c.Inverse) // it came from YAML
		parts = append(parts, raw)
		change.Undo, change.Losses = "by "+c.Inverse.Tool, c.losses()
	} else {
		change.Risk, change.Strategy, change.Undo = activities.High, activities.Irreversible, "it cannot be undone"
		change.Facts = []string{"no inverse of this tool is declared"}
	}
	change.Digest = activities.DigestOf(parts...)
	return change
}

// Values are what the call's templates refer to; answer is nil if there is none.
func (c *Call) Values(answer *Answer) Values {
	v := Values{"arguments": c.Arguments}
	if answer != nil && answer.Succeeded() && !answer.IsLost {
		v["result"] = answer.fields()
	}
	if c.Before != nil {
		v["before"] = c.Before.fields()
	}
	return v
}

// CanLook reports whether a look is declared, and all is known that it needs.
func (c *Call) CanLook(answer *Answer) bool {
	return c.Declared.Look != nil && (c.Before != nil || answer != nil && answer.Succeeded() && !answer.IsLost)
}

// IsHappened reports whether the look sees what the call makes, as declared.
func (c *Call) IsHappened(now Sight) bool {
	if len(c.Declared.Happened) == 0 {
		return false
	}
	want, err := c.Values(nil).Fill(c.Declared.Happened)
	return err == nil && holds(now.fields(), want)
}

// IsBefore reports whether a look sees what it saw before the call.
func (c *Call) IsBefore(now *Sight) bool {
	return now != nil && c.Before != nil && now.Digest() == c.Before.Digest()
}

// HasShown reports whether a look sees something other than before the call.
func (c *Call) HasShown(now *Sight) bool { return now != nil && c.Before != nil && !c.IsBefore(now) }

// Result is that of a step whose call was answered; left is what the look saw after it.
func (c *Call) Result(answer Answer, left *Sight) (r activities.Result) {
	r.Outputs, r.Notes = answer.Outputs()
	if answer.IsLost {
		r.Notes = append(r.Notes,
			"the answer of the server was lost: "+c.Declared.Look.Tool+" shows that the call has happened")
	}
	if left != nil {
		r.After = left.Digest()
	}
	if c.IsBefore(left) && c.Inverse != nil {
		r.Notes = append(r.Notes,
			fmt.Sprintf(
				"%s shows the same before and after %s: where the call has changed something, its undo cannot be seen to bring "+
					"that back, and counts as compensated at best",
				c.Declared.Look.Tool, c.Tool))
	}
	return r
}

// losses are those that are declared.
func (c *Call) losses() []string {
	all := slices.Clone(c.Declared.Losses)
	if c.Inverse != nil {
		all = append(all, c.Inverse.Losses...)
	}
	return all
}
