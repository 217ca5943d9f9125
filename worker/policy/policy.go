package policy

import (
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
	examples []Example
	now      func() time.Time
}

// Judge implements activities.Rules.
func (p *Policy) Judge(c activities.Case) *activities.Ruling {
	in, err := inputsOf(c, p.Host, p.now())
	if err != nil {
		return &activities.Ruling{Verdict: activities.Asked, Version: p.Version, Demands: anybody,
			Rules: []activities.RuleMatch{{Name: "every-rule", Why: "none could be evaluated: " + oneLine(err)}}}
	}
	return p.judge(in.activation())
}

// anybody is who is asked if no rule says it: one person.
var anybody = []activities.Demand{{Persons: 1}}

// judge evaluates all rules. The strictest verdict counts, with the rules that have come to it.
func (p *Policy) judge(activation any) *activities.Ruling {
	ruling := activities.Ruling{Version: p.Version}
	for _, r := range p.rules {
		verdict, reason, matches := r.decide(activation)
		stricter := slices.Index(activities.Verdicts, verdict) - slices.Index(activities.Verdicts, ruling.Verdict)
		if !matches || stricter < 0 {
			continue
		}
		if stricter > 0 {
			ruling = activities.Ruling{Version: p.Version, Verdict: verdict}
		}
		ruling.Rules = append(ruling.Rules, reason)
		if verdict == activities.Asked {
			ruling.Demands = addDemands(ruling.Demands, r.demands)
			if r.within > 0 && (ruling.Within == 0 || r.within < ruling.Within) {
				ruling.Within = r.within
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

// Size is how many rules there are.
func (p *Policy) Size() int { return len(p.rules) }
