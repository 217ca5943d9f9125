package policy

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"

	"github.com/seed-62bf7108/unwind/activities"
)

// maxCost bounds one evaluation of one rule, in CEL's units: far more than a sensible rule takes, and
// no more than some milliseconds.
const maxCost = 200_000

// rule is a condition, and what becomes of a change that meets it.
type rule struct {
	name    string
	verdict activities.Verdict
	why     string
	demands []activities.Demand
	within  time.Duration
	program cel.Program
}

// compile makes a program of a condition.
func compile(env *cel.Env, when string) (cel.Program, error) {
	parsed, issues := env.Compile(when)
	if err := issues.Err(); err != nil {
		var all []error
		for _, e := range issues.Errors() {
			all = append(all, fmt.Errorf("%s, in line %d, column %d", e.Message, e.Location.Line(), e.Location.Column()+1))
		}
		return nil, errors.Join(all...)
	}
	if kind := parsed.OutputType(); !kind.IsExactType(cel.BoolType) {
		return nil, fmt.Errorf("it is of type %s, and must be true or false: compare it with something", kind)
	}
	if err := checkWords(parsed); err != nil {
		return nil, err
	}
	return env.Program(parsed, cel.EvalOptions(cel.OptOptimize, cel.OptPartialEval), cel.CostLimit(maxCost))
}

// decide returns what the rule says of inputs, and its reason. One that cannot be evaluated asks.
func (r rule) decide(activation any) (finding, bool) {
	f := finding{verdict: activities.Asked, rule: activities.RuleMatch{Name: r.name}, demands: r.demands, within: r.within}
	value, _, err := r.program.Eval(activation)
	if err != nil {
		f.rule.Why = "it could not be evaluated: " + oneLine(err)
		return f, true
	}
	if unknown, is := value.(*types.Unknown); is {
		f.rule.Why = unknownWhy + unknownNames(unknown)
		return f, true
	}
	isMet, _ := value.Value().(bool)
	f.verdict, f.rule.Why = r.verdict, r.why
	return f, isMet
}

func oneLine(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	return strings.ToValidUTF8(text[:min(len(text), activities.MaxItem/2)], "")
}
