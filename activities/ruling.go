package activities

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Rules judge what steps are about to do: a worker's policy.
type Rules interface {
	// Judge returns what the rules that match have decided; nil if none does. It always comes to an
	// end: a rule that cannot be evaluated asks. It may take seconds where others are asked, and answer
	// otherwise the next time.
	Judge(ctx context.Context, c Case) *Ruling
}

// Case is what rules judge: a step, and the change that it would make now.
type Case struct {
	Task   string // the id of its workflow
	Agent  string // a claim
	Action string
	Host   string // where it acts; empty if any worker may do it
	// Step is the step with references to secrets, never with their values.
	Step Step
	// Change is masked, and not capped: a rule sees all of it.
	Change Change
	// History is what the task has done before. It is read only for rules that look at it.
	History func() (History, error)
}

// History is what a task has been let do so far on a host, by what the worker there has noted
// itself: steps that change something, without those that have been undone.
type History struct {
	Steps int64            // how many
	By    map[string]int64 // how many, by action
	// Added, Removed and Changed sum up the counts of their changes.
	Added, Removed, Changed int64
}

// Verdict is what a rule says of a change.
type Verdict string

// The verdicts, the strictest last.
const (
	Allows Verdict = "allow" // nobody need be asked because of its risk
	Asked  Verdict = "ask"   // a person must approve it
	Denies Verdict = "deny"  // it is not made
)

// Verdicts are all verdicts, the strictest last.
var Verdicts = []Verdict{Allows, Asked, Denies}

// Ruling is what the rules of a worker have decided about a change.
type Ruling struct {
	Verdict Verdict `json:"verdict"`
	// Rules are those that have decided: of those that matched, the ones with the strictest verdict.
	Rules []RuleMatch `json:"rules"`
	// Version is the digest of the policy's file.
	Version Digest `json:"version"`
	// Demands are whose approval is asked for, all of them, from different persons. Of a ruling that
	// asks there is at least one.
	Demands []Demand `json:"demands,omitempty"`
	// Within is for how long the gate waits at most; 0 is as long as the step says.
	Within time.Duration `json:"within,omitempty"`
}

// RuleMatch is a rule that has decided about a change.
type RuleMatch struct {
	// Name is that of a rule of the file, or of one of another engine, as in "cedar:no-prod".
	Name string `json:"name"`
	// Version is that of another engine's rules, where it is known; a rule of the file has that of the
	// ruling.
	Version string `json:"version,omitempty"`
	// Why is what the policy says of the rule, or why it could not be evaluated.
	Why string `json:"why,omitempty"`
}

// Demand asks for the approval of so many persons of a group; with no group, of anybody.
type Demand struct {
	Group   string `json:"group,omitempty"`
	Persons int    `json:"persons"`
	// Of are the persons of the group, by the policy.
	Of []string `json:"of,omitempty"`
}

func (d Demand) String() string {
	if d.Group == "" {
		return CountOf(d.Persons, "person")
	}
	many := "one"
	if d.Persons > 1 {
		many = fmt.Sprint(d.Persons)
	}
	return fmt.Sprintf("%s of %s (%s)", many, d.Group, strings.Join(d.Of, ", "))
}

// Assent is a person's approval, as it is claimed: only a signature proves a name.
type Assent struct {
	Who string    `json:"who"`
	Why string    `json:"why,omitempty"`
	At  time.Time `json:"at"`
	// Opening identifies the opening of the gate that a signed one is about.
	Opening   Digest `json:"opening,omitempty"`
	Signature string `json:"signature,omitempty"`
	// Key is the fingerprint of the key that has signed it, once a worker has verified it.
	Key string `json:"key,omitempty"`
	// Allowance is the id of the standing approval that it comes from; such a one is not signed by itself.
	Allowance string `json:"allowance,omitempty"`
}

func (a Assent) String() string {
	text := Signer(a.Who, a.Key)
	if a.Allowance != "" {
		text = fmt.Sprintf("standing approval %s of %s", a.Allowance, text)
	}
	if a.Why != "" {
		text += ": " + a.Why
	}
	return text
}

// Asks reports whether the rules have a person approve the change.
func (r *Ruling) Asks() bool { return r != nil && r.Verdict == Asked }

// Groups are those whose approval the rules ask for.
func (r *Ruling) Groups() (groups []string) {
	if !r.Asks() {
		return nil
	}
	for _, d := range r.Demands {
		if d.Group != "" {
			groups = append(groups, d.Group)
		}
	}
	return groups
}

// allows reports whether the rules take the place of what a change asks by itself.
func (r *Ruling) allows() bool { return r != nil && r.Verdict == Allows }

func (r *Ruling) denies() bool { return r != nil && r.Verdict == Denies }

// Name names the rules and their versions: "rules big-deletes, nights@3f2a90aa12cd,
// cedar:no-prod@5d1e04b7c9aa".
func (r *Ruling) Name() string {
	var own, others []string
	for _, rule := range r.Rules {
		switch {
		case !rule.IsOther():
			own = append(own, rule.Name)
		case rule.Version == "":
			others = append(others, rule.Name)
		default:
			others = append(others, rule.Name+"@"+rule.Version)
		}
	}
	if len(own) > 0 {
		others = append([]string{strings.Join(own, ", ") + "@" + r.Version.Short()}, others...)
	}
	return "rules " + strings.Join(others, ", ")
}

// IsOther reports whether the rule is another engine's: the name of one of the file has no colon.
func (m RuleMatch) IsOther() bool { return strings.Contains(m.Name, ":") }

// Describe says which rules have decided, and why.
func (r *Ruling) Describe() string {
	var whys []string
	for _, rule := range r.Rules {
		switch {
		case rule.Why == "":
		case len(r.Rules) == 1:
			whys = append(whys, rule.Why)
		default:
			whys = append(whys, rule.Name+": "+rule.Why)
		}
	}
	text := r.Name()
	if len(whys) > 0 {
		text += " (" + strings.Join(whys, "; ") + ")"
	}
	return text
}

// Missing returns what is still asked for after these approvals. Those that do not count are
// skipped: see Counts.
func (r *Ruling) Missing(agent string, given []Assent) []Demand {
	if !r.Asks() {
		return nil
	}
	return r.match(agent, given).missing()
}

// Waits says how many of the approvals that are asked for are there, and which are missing: "1 of 2:
// still one of sre (cy)"; empty if none is.
func (r *Ruling) Waits(agent string, given []Assent) string {
	missing := r.Missing(agent, given)
	if len(missing) == 0 {
		return ""
	}
	left, still := 0, make([]string, len(missing))
	for i, d := range missing {
		left += d.Persons
		still[i] = d.String()
	}
	all := 0
	for _, d := range r.Demands {
		all += d.Persons
	}
	return fmt.Sprintf("%d of %d: still %s", all-left, all, strings.Join(still, ", and "))
}

// Counts returns why an approval would add nothing to those that were given; nil if it does.
func (r *Ruling) Counts(agent string, given []Assent, a Assent) error {
	name := personOf(a.Who)
	switch {
	case !r.Asks():
		return nil
	case name == "":
		return fmt.Errorf("it does not say who approves, and %s ask for %s", r.Name(), r.Waits(agent, given))
	case IsSamePerson(a.Who, agent):
		return fmt.Errorf("%s is the agent of this task: another one must approve what it does", a.Who)
	case slices.ContainsFunc(given, func(g Assent) bool { return IsSamePerson(g.Who, a.Who) }):
		return fmt.Errorf("%s has approved it already; %s", a.Who, r.Waits(agent, given))
	case !slices.ContainsFunc(r.Demands, func(d Demand) bool { return d.isMetBy(a.Who) }):
		return fmt.Errorf("%s is in none of the groups that must approve; %s", a.Who, r.Waits(agent, given))
	case r.match(agent, append(slices.Clone(given), a)).size() == r.match(agent, given).size():
		return fmt.Errorf("of the group of %s enough have approved; %s", a.Who, r.Waits(agent, given))
	}
	return nil
}

// matching says which demand each person meets: as many as can be meet one.
type matching struct {
	demands []Demand
	persons []string
	meets   []int // by person; unmet if none
}

const unmet = -1

// match finds out whom of those who have approved each demand can have. A person of two groups
// counts for one of them, whichever leaves more to the others.
func (r *Ruling) match(agent string, given []Assent) *matching {
	m := &matching{demands: r.Demands}
	for _, a := range given {
		isKnown := slices.ContainsFunc(m.persons, func(p string) bool { return IsSamePerson(p, a.Who) })
		if personOf(a.Who) != "" && !isKnown && !IsSamePerson(a.Who, agent) {
			m.persons, m.meets = append(m.persons, a.Who), append(m.meets, unmet)
		}
	}
	for person := range m.persons {
		m.place(person, make([]bool, len(m.demands)))
	}
	return m
}

// place gives a person to a demand, and moves another one to another demand where that makes room.
func (m *matching) place(person int, tried []bool) bool {
	for i, d := range m.demands {
		if tried[i] || !d.isMetBy(m.persons[person]) {
			continue
		}
		tried[i] = true
		if m.given(i) < d.Persons {
			m.meets[person] = i
			return true
		}
		for other, at := range m.meets {
			if at == i && m.place(other, tried) {
				m.meets[person] = i
				return true
			}
		}
	}
	return false
}

// given is how many persons a demand has.
func (m *matching) given(demand int) (n int) {
	for _, at := range m.meets {
		if at == demand {
			n++
		}
	}
	return n
}

// size is how many persons meet a demand.
func (m *matching) size() int { return len(m.persons) - m.given(unmet) }

// missing are the demands that lack persons, each with how many.
func (m *matching) missing() (left []Demand) {
	for i, d := range m.demands {
		if d.Persons -= m.given(i); d.Persons > 0 {
			left = append(left, d)
		}
	}
	return left
}

// isMetBy reports whether a person is one of those who are asked for.
func (d Demand) isMetBy(who string) bool {
	return d.Group == "" || slices.ContainsFunc(d.Of, func(member string) bool {
		return who == member || !strings.Contains(member, "@") && personOf(who) == member
	})
}

// personOf is the name in USER@HOST: the same person at two machines is one.
func personOf(who string) string {
	name, _, _ := strings.Cut(strings.TrimSpace(who), "@")
	return name
}

// IsSamePerson reports whether two names are of one person, as far as that can be told.
func IsSamePerson(a, b string) bool { return strings.EqualFold(personOf(a), personOf(b)) }
