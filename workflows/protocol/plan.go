package protocol

import (
	"fmt"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
)

// Plan is what a task would do.
type Plan struct {
	Name  string        `json:"name"`
	Steps []PlannedStep `json:"steps"`
	Notes []string      `json:"notes,omitempty"`
}

// PlannedStep is what one step would do.
type PlannedStep struct {
	ID    string   `json:"id"`
	Name  string   `json:"name,omitempty"`
	Uses  string   `json:"uses"`
	Needs []string `json:"needs,omitempty"`
	Host  string   `json:"host,omitempty"`
	// Asks says why a person would be asked for approval; empty if nobody would.
	Asks string `json:"asks,omitempty"`
	// Refused says why the step is certain to be refused, and with it the task, before anything is
	// touched.
	Refused string `json:"refused,omitempty"`
	// Change is nil if it cannot be known before other steps have run; Unknown says why, or what is
	// wrong.
	Change  *activities.Change `json:"change,omitempty"`
	Unknown string             `json:"unknown,omitempty"`
}

// Validation is what the workers say of a task that would be run.
type Validation struct {
	Name  string `json:"name"`
	Steps int    `json:"steps"`
	// Refusals say why the task would be refused before anything is touched; none: it would begin.
	Refusals []activities.Refusal `json:"refusals,omitempty"`
	// Later names the steps with parameters that depend on what earlier steps return: those are looked
	// at when they are known.
	Later []string `json:"later,omitempty"`
	// Unseen says what could not be looked at, and why.
	Unseen []string `json:"unseen,omitempty"`
}

// PreflightRequest names steps that a host would run.
type PreflightRequest struct {
	Steps []PreflightStep `json:"steps"`
	// Late: they are about to run. The host only names what they touch.
	Late bool `json:"late,omitempty"`
}

// PreflightStep is a step and its action.
type PreflightStep struct {
	Uses string             `json:"uses"`
	Step activities.Outlook `json:"step"`
}

// Preflight is what a host says of them.
type Preflight struct {
	Refusals []activities.Refusal `json:"refusals,omitempty"`
	// Unseen says of which steps it could not find out whether they would be refused, and why.
	Unseen []string `json:"unseen,omitempty"`
	// Touched are the names of what the steps touch.
	Touched []activities.Touched `json:"touched,omitempty"`
}

// Refusal is the error of a task that is certain to be refused; nil where nothing was found.
func (p Preflight) Refusal() error {
	if len(p.Refusals) == 0 {
		return nil
	}
	var lines []string
	for i, r := range p.Refusals {
		if i == maxRefusals {
			lines = append(lines, fmt.Sprintf("and %d more", len(p.Refusals)-i))
			break
		}
		lines = append(lines, fmt.Sprintf("steps.%s: %s", r.Step, r.Message))
	}
	return Refusef("%s", strings.Join(lines, "\n"))
}

// RefusalOf returns why a step is certain to be refused, or nothing.
func (p Preflight) RefusalOf(step string) string {
	var all []string
	for _, r := range p.Refusals {
		if r.Step == step {
			all = append(all, r.Message)
		}
	}
	return strings.Join(all, "\n")
}

// maxRefusals is how many refusals the failure of a task lists.
const maxRefusals = 20
