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
func (r rule) decide(activation any) (activities.Verdict, activities.RuleMatch, bool) {
	value, _, err := r.program.Eval(activation)
	if err != nil {
		return activities.Asked, activities.RuleMatch{Name: r.name, Why: "it could not be evaluated: " + oneLine(err)}, true
	}
	if unknown, is := value.(*types.Unknown); is {
		why := "it looks at what the history of the task does not tell: " + unknownNames(unknown)
		return activities.Asked, activities.RuleMatch{Name: r.name, Why: why}, true
	}
	isMet, _ := value.Value().(bool)
	return r.verdict, activities.RuleMatch{Name: r.name, Why: r.why}, isMet
}

func oneLine(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	return strings.ToValidUTF8(text[:min(len(text), activities.MaxItem/2)], "")
}
