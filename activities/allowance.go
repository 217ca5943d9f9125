package activities

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// Bounds of an allowance.
const (
	MaxAllowanceTime = 7 * 24 * time.Hour
	MaxAllowanceUses = 100
	// maxAllowanceText bounds its text, in bytes.
	maxAllowanceText = 4 << 10
)

// Allowance is a standing approval: a person approves changes of an agent ahead, within bounds.
type Allowance struct {
	// Agent is the agent of the tasks, as they claim.
	Agent string `json:"agent"`
	// Actions are names of actions, or "world.*" for all of a world that change something.
	Actions []string `json:"actions"`
	// Under are the resources, by the names that gates show: "file:/srv/site" covers what is below that
	// folder too.
	Under []string `json:"under"`
	// Tasks are the ids of the only tasks for which it counts. Defaults to all of the agent.
	Tasks []string `json:"tasks,omitempty"`
	// Risk is the highest risk that it covers.
	Risk Risk `json:"risk"`
	// Uses is how many changes it covers.
	Uses  int       `json:"uses"`
	Until time.Time `json:"until"`
	Who   string    `json:"who"`
	At    time.Time `json:"at"`
	Why   string    `json:"why,omitempty"`
}

// Text is what a signature of the allowance is over. It can pass for no other statement.
func (a Allowance) Text() string {
	var b strings.Builder
	b.WriteString("A standing approval of what an agent does\n")
	fmt.Fprintf(&b, "agent: %q\nactions: %q\nunder: %q\ntasks: %q\nrisk: %q\nuses: %d\n",
		a.Agent, a.Actions, a.Under, a.Tasks, a.Risk, a.Uses)
	fmt.Fprintf(&b, "until: %q\nwho: %q\nat: %q\nwhy: %q\n", a.Until.UTC().Format(time.RFC3339Nano), a.Who,
		a.At.UTC().Format(time.RFC3339Nano), a.Why)
	return b.String()
}

// By is who gives it.
func (a Allowance) By() string { return a.Who }

// ID identifies what was allowed, by whom and when.
func (a Allowance) ID() string { return DigestOf([]byte(a.Text())).Short() }

// Check refuses an allowance that lacks a bound, or has too wide a one. The error names the field.
func (a Allowance) Check() error {
	for _, list := range []struct {
		name  string
		items []string
	}{{"action", a.Actions}, {"under", a.Under}} {
		if len(list.items) == 0 {
			return fmt.Errorf("%s is missing: a standing approval says what it covers", list.name)
		}
	}
	for _, pattern := range a.Actions {
		if world, name, ok := strings.Cut(pattern, "."); !ok || world == "" || name == "" || strings.Contains(world, "*") ||
			strings.Contains(name, "*") && name != "*" {
			return fmt.Errorf("action %q: name an action, or all of a world as in file.*", pattern)
		}
	}
	for _, name := range a.Under {
		if err := checkUnder(name); err != nil {
			return err
		}
	}
	switch {
	case a.Agent == "":
		return errors.New("agent is missing: a standing approval is for the tasks of one agent")
	case a.Who == "":
		return errors.New("who is missing: say who gives it")
	case IsSamePerson(a.Who, a.Agent):
		return fmt.Errorf("agent %q: %s cannot approve what it does itself", a.Agent, a.Who)
	case slices.Contains(a.Tasks, ""):
		return errors.New("task \"\": give the id of a task")
	case rankOf(a.Risk) < 0:
		return fmt.Errorf("risk %q: give low, medium or high", a.Risk)
	case a.Uses < 1 || a.Uses > MaxAllowanceUses:
		return fmt.Errorf("uses %d: give 1 to %d", a.Uses, MaxAllowanceUses)
	case !a.Until.After(a.At):
		return fmt.Errorf("until %s: it must be later than now", a.Until.Format(time.RFC3339))
	case a.Until.Sub(a.At) > MaxAllowanceTime:
		return fmt.Errorf("until %s: give at most 7 days", a.Until.Format(time.RFC3339))
	case len(a.Text()) > maxAllowanceText:
		return fmt.Errorf("the standing approval has %s, more than %d: give fewer or shorter names",
			CountOf(len(a.Text()), "byte"), maxAllowanceText)
	}
	return nil
}

// checkUnder refuses the name of a resource that is not written in the one way in which gates show it, and
// that of everything there is.
func checkUnder(name string) error {
	world, rest, ok := strings.Cut(name, ":")
	switch {
	case !ok || world == "" || strings.Trim(rest, "/") == "":
		return fmt.Errorf("under %q: name a resource as gates show it, such as file:/srv/site or postgres:shop", name)
	case strings.Contains(rest, "/") && path.Clean(rest) != rest:
		return fmt.Errorf("under %q: write it as %s:%s", name, world, path.Clean(rest))
	}
	return nil
}

// AllowanceUse is a change that was made by an allowance.
type AllowanceUse struct {
	// Key identifies the step and its change: whoever asks again for the same has used it once.
	Key  string    `json:"key"`
	Task string    `json:"task"`
	Step string    `json:"step"`
	At   time.Time `json:"at"`
}

// IsSame reports whether two uses count as one.
func (u AllowanceUse) IsSame(other AllowanceUse) bool { return u.Key == other.Key }

// Revocation says who has revoked an allowance, as they claim.
type Revocation struct {
	Who string    `json:"who"`
	At  time.Time `json:"at"`
	Why string    `json:"why,omitempty"`
}

// GivenAllowance is an allowance and what has become of it.
type GivenAllowance struct {
	Allowance

	ID        string `json:"id"`
	Signature string `json:"signature,omitempty"`
	// Key is the fingerprint of the key that has signed it; empty where a name is a claim.
	Key     string         `json:"key,omitempty"`
	Used    []AllowanceUse `json:"used,omitempty"`
	Revoked *Revocation    `json:"revoked,omitempty"`
}

// Over says why the allowance no longer counts; empty while it does.
func (g GivenAllowance) Over(now time.Time) string {
	switch {
	case g.Revoked != nil:
		return "it was revoked by " + g.Revoked.Who
	case !now.Before(g.Until):
		return "it ended at " + g.Until.UTC().Format(time.RFC3339)
	}
	return ""
}

// Use counts a use, once for each key. Of one that is over, or used up, it says so and counts nothing.
func (g *GivenAllowance) Use(u AllowanceUse) error {
	if why := g.Over(u.At); why != "" {
		return errors.New(why)
	}
	if slices.ContainsFunc(g.Used, u.IsSame) {
		return nil
	}
	if len(g.Used) >= g.Uses {
		return fmt.Errorf("it is used up: %d of %d", len(g.Used), g.Uses)
	}
	g.Used = append(g.Used, u)
	return nil
}

// assent is the approval of a change that the allowance covers.
func (g GivenAllowance) assent() Assent {
	return Assent{Who: g.Who, Why: g.Why, At: g.At, Key: g.Key, Allowance: g.ID}
}

// work is what an allowance may cover.
type work struct {
	agent, task string
	action      Spec
	change      Change
	touched     []string // names of all that the step touches
}

// check says what of the work the allowance does not cover.
func (a Allowance) check(w work) error {
	if w.agent != a.Agent {
		return fmt.Errorf("it is for agent %q", a.Agent)
	}
	if len(a.Tasks) > 0 && !slices.Contains(a.Tasks, w.task) {
		return errors.New("it is for other tasks")
	}
	if !slices.ContainsFunc(a.Actions, func(pattern string) bool { return MatchesAction(pattern, w.action) }) {
		return fmt.Errorf("it is not for %s", w.action.Name)
	}
	if risk := w.risk(); rankOf(risk) > rankOf(a.Risk) {
		return fmt.Errorf("the risk is %s, and it covers %s", risk, a.Risk)
	}
	if w.change.Repeats != "" {
		return errors.New("no standing approval covers what repeats an earlier step: " + w.change.Repeats)
	}
	if len(w.touched) == 0 {
		return errors.New("what the step touches cannot be told")
	}
	for _, name := range w.touched {
		if !slices.ContainsFunc(a.Under, func(under string) bool { return isUnder(name, under) }) {
			return fmt.Errorf("the step touches %s", name)
		}
	}
	return nil
}

// isUnder reports whether a resource is another one, or below it.
func isUnder(name, under string) bool {
	if slices.Contains(strings.Split(name, "/"), "..") {
		return false
	}
	return name == under || strings.HasPrefix(name, under+"/")
}

// risk is that of the change; high if it cannot be undone once its task is over, is always asked, or may be
// more than its action can name.
func (w work) risk() Risk {
	c := w.change
	isFinal := c.Horizon == 0 && c.Strategy != NoUndo && !c.Unchanged
	isOpen := w.action.Keys == nil || len(w.action.MayChange) > 0
	if isFinal || isOpen || c.Ask || rankOf(c.Risk) < 0 {
		return High
	}
	return c.Risk
}

// rankOf orders risks; -1 if it is none.
func rankOf(r Risk) int { return slices.Index([]Risk{Low, Medium, High}, r) }
