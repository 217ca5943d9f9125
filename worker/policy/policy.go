package policy

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// Policy are the rules of a file.
type Policy struct {
	// Version is the digest of the file: what sha256sum says of it.
	Version activities.Digest
	// Host is the name of the worker that judges by it.
	Host string

	rules    []rule
	engines  []engine
	examples []Example
	now      func() time.Time
}

// Judge implements activities.Rules.
func (p *Policy) Judge(ctx context.Context, c activities.Case) *activities.Ruling {
	in, err := inputsOf(c, p.Host, p.now())
	if err != nil {
		return &activities.Ruling{Verdict: activities.Asked, Version: p.Version, Demands: anybody,
			Rules: []activities.RuleMatch{{Name: "every-rule", Why: "none could be evaluated: " + oneLine(err)}}}
	}
	return p.rule(p.decide(ctx, in))
}

// anybody is who is asked if no rule says it: one person.
var anybody = []activities.Demand{{Persons: 1}}

// finding is what a rule that is met says of a change, of this file or of another engine.
type finding struct {
	verdict activities.Verdict
	rule    activities.RuleMatch
	demands []activities.Demand
	within  time.Duration
	// isUnanswered means that whoever was asked has given no verdict.
	isUnanswered bool
}

// decide has all rules decide, and the other engines.
func (p *Policy) decide(ctx context.Context, in inputs) (all []finding) {
	activation := in.activation()
	for _, r := range p.rules {
		if f, isMet := r.decide(activation); isMet {
			all = append(all, f)
		}
	}
	for _, e := range p.engines {
		all = append(all, askEngine(ctx, e, in)...)
	}
	return all
}

// rule sums up what was found: the strictest verdict counts, with the rules that have come to it.
func (p *Policy) rule(found []finding) *activities.Ruling {
	ruling := activities.Ruling{Version: p.Version}
	for _, f := range found {
		stricter := slices.Index(activities.Verdicts, f.verdict) - slices.Index(activities.Verdicts, ruling.Verdict)
		if stricter < 0 {
			continue
		}
		if stricter > 0 {
			ruling = activities.Ruling{Version: p.Version, Verdict: f.verdict}
		}
		ruling.Rules = append(ruling.Rules, f.rule)
		if f.verdict == activities.Asked {
			ruling.Demands = addDemands(ruling.Demands, f.demands)
			if f.within > 0 && (ruling.Within == 0 || f.within < ruling.Within) {
				ruling.Within = f.within
			}
		}
	}
	switch {
	case ruling.Verdict == "":
		return nil
	case ruling.Verdict == activities.Asked && len(ruling.Demands) == 0:
		ruling.Demands = anybody
	}
	return &ruling
}

// addDemands adds demands to others: of one group the larger counts.
func addDemands(all, more []activities.Demand) []activities.Demand {
	for _, d := range more {
		i := slices.IndexFunc(all, func(a activities.Demand) bool { return a.Group == d.Group })
		if i < 0 {
			all = append(all, d)
			continue
		}
		all[i].Persons = max(all[i].Persons, d.Persons)
	}
	return all
}

// Size is how many rules the file has.
func (p *Policy) Size() int { return len(p.rules) }

// Engines names the other engines that it asks: "cedar gateway.cedar@3f2a90aa12cd".
func (p *Policy) Engines() (names []string) {
	for _, e := range p.engines {
		names = append(names, e.String())
	}
	return names
}

// Bear has OPA be sent a token, which is read for each question. It fails where no OPA is asked.
func (p *Policy) Bear(token func() (string, error)) error {
	for _, e := range p.engines {
		if o, is := e.(*opa); is {
			o.token = token
			return nil
		}
	}
	return errors.New("the policy asks no OPA")
}
