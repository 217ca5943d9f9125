package command

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/worker/policy"
)

func (p *program) policyTryCommand() *cobra.Command {
	output := outputFlag("text")
	c := &cobra.Command{
		Use:   "try FILE ID",
		Short: "Show what a policy would have decided about a task",
		Long: `Try has the rules of a policy decide about each step of a task that has run, or runs, as its history
tells it. What a history does not have is unknown, and not taken for harmless: a rule that needs it
asks, and says what it is. That is the change of a step that was not planned at a gate, what was too
long to be kept, and which host took a step that any worker can take, which may have counted it.

` + exitStatuses,
		Example: `  starter policy try policy.yaml release-k3x9q2
  starter policy try policy.yaml release-k3x9q2 -o json | jq '.steps[] | select(.verdict == "deny")'`,
		Args: exactArguments("FILE", "ID"),
		RunE: p.withConnection(func(ctx context.Context, c *tasks.Client, args []string) error {
			rules, err := policy.Load(args[0], "")
			if err != nil {
				return usage.Errorf("%v", err)
			}
			t, err := c.Describe(ctx, args[1])
			if err != nil {
				return err
			}
			changes, err := c.Changes(ctx, t)
			if err != nil {
				return err
			}
			tried, err := tryPolicy(ctx, rules, t, changes)
			if err != nil {
				return err
			}
			if output == "json" {
				return p.printJSON(tried)
			}
			p.writeTried(tried)
			return nil
		}),
	}
	output.addTo(c)
	return c
}

// triedJSON is what a policy would have decided about a task.
type triedJSON struct {
	Task    string            `json:"task"`
	Version activities.Digest `json:"version"`
	Steps   []triedStep       `json:"steps"`
}

// triedStep is what it would have decided about a step.
type triedStep struct {
	Step   string `json:"step"`
	Action string `json:"action"`
	// Began is when it began to act, or if it never did, when it was planned.
	Began time.Time `json:"began"`
	// Verdict is none if no rule matches.
	Verdict activities.Verdict     `json:"verdict"`
	Rules   []activities.RuleMatch `json:"rules,omitempty"`
	Demands []activities.Demand    `json:"demands,omitempty"`
	Within  time.Duration          `json:"within,omitempty"`

	text string
}

// triedAt is when rules would have decided about a step: when it acted, or if it never did, when it was
// planned.
func triedAt(c tasks.Changed) time.Time {
	if c.Acted.IsZero() {
		return c.Began
	}
	return c.Acted
}

// tryPolicy has rules decide about the steps of a task that have begun, in the order of these times.
func tryPolicy(ctx context.Context, rules *policy.Policy, t tasks.Run, changes []tasks.Changed) (triedJSON, error) {
	changes = slices.DeleteFunc(changes, func(c tasks.Changed) bool { return c.Forward.Entry.Step == "" })
	slices.SortStableFunc(changes, func(a, b tasks.Changed) int { return triedAt(a).Compare(triedAt(b)) })
	past := make([]policy.Past, len(changes))
	for i, c := range changes {
		e := c.Forward.Entry
		past[i] = policy.Past{Time: triedAt(c), IsPlannedOnly: c.Acted.IsZero(), ReadOnly: e.UndoType == "",
			Case: activities.Case{Task: t.ID, Agent: c.Forward.Agent, Action: e.Action, Host: e.Place.Host,
				Step: c.Forward.Step}}
		if c.Planned != nil {
			past[i].IsPlanned, past[i].Case.Change = true, *c.Planned
		}
	}
	rulings, err := rules.JudgePast(ctx, past)
	tried := triedJSON{Task: t.ID, Version: rules.Version, Steps: make([]triedStep, len(rulings))}
	for i, r := range rulings {
		s := triedStep{Step: past[i].Case.Step.ID, Action: past[i].Case.Action, Began: past[i].Time, Verdict: "none"}
		if r != nil {
			s.Verdict, s.Rules, s.Demands, s.Within, s.text = r.Verdict, r.Rules, r.Demands, r.Within, r.Describe()
			if waits := r.Waits(past[i].Case.Agent, nil); waits != "" {
				s.text += "; " + waits
			}
		}
		tried.Steps[i] = s
	}
	return tried, err
}

func (p *program) writeTried(tried triedJSON) {
	p.printf("policy %s on %s of task %s\n", tried.Version.Short(), terminal.Plural(len(tried.Steps), "step"), tried.Task)
	table := terminal.Table{}
	table.Row("STEP", "ACTION", "VERDICT", "BY")
	for _, s := range tried.Steps {
		table.Row(s.Step, s.Action, string(s.Verdict), terminal.OneLine(cmp.Or(s.text, "no rule matches")))
	}
	table.Write(p.streams.Out)
}
