package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Preflighter is an Action that can say, before the first step of a task acts, that a step is
// certain to be refused: a path outside of what the worker allows, parameters that contradict each
// other, a program that the host lacks. Its Spec says so in Preflights.
type Preflighter interface {
	// Preflight returns why Apply is certain to refuse the step: errors of type Refused, joined where
	// there are several. Any other error says that this could not be found out, which holds up nobody.
	//
	// It touches nothing, neither the resource nor the journal, is idempotent, and may be retried or
	// left out. What it has seen binds nobody: Apply looks again.
	Preflight(ctx context.Context, o Outlook) error
}

// Outlook is a step as far as it is known before its task begins.
type Outlook struct {
	Step
	// Later are the parameters that With lacks, as "content" or "files[0].content": they depend on
	// what earlier steps return, or are long.
	Later []string `json:"later,omitempty"`
}

// Awaits reports whether a parameter, or what it is a part of, is among Later.
func (o Outlook) Awaits(param string) bool {
	return slices.ContainsFunc(o.Later, func(later string) bool {
		rest, ok := strings.CutPrefix(param, later)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// AwaitsAny reports whether any parameter, or a part of one, is among Later: With cannot be judged
// as a whole.
func (o Outlook) AwaitsAny() bool { return len(o.Later) > 0 }

// RefuseCurrent makes a Refused error whose reason is the current state of a resource: it is not
// there, or is not what the step needs. Before the task begins it counts only if no earlier step
// can change the resource with this key.
func RefuseCurrent(key, format string, args ...any) *Error {
	return &Error{Type: Refused, Message: fmt.Sprintf(format, args...), Current: key}
}

// Refusal is why a step is certain to be refused.
type Refusal struct {
	Step    string `json:"step"`
	Message string `json:"message"`
	// Current is the key of the resource whose current state is the reason: no refusal where an
	// earlier step can change it.
	Current string `json:"current,omitempty"`
}

// Preflight asks the action of a step whether it is certain to refuse it. The error says why that
// could not be found out. The action is asked as it is for Apply: with the values of secrets, and
// with all of them masked in what it says.
func (r *Registry) Preflight(ctx context.Context, host Host, action string, o Outlook) (refusals []Refusal, err error) {
	masker := host.Masker()
	defer func() {
		if v := recover(); v != nil {
			refusals, err = nil, errors.New(masker.String(fmt.Sprintf("the action panicked: %v", v)))
		}
	}()
	o, refused := o.resolveKnown(host.Secrets, action, masker)
	ctx = host.allow(WithMasker(ctx, masker))
	err = errors.Join(refused, checkAddresses(ctx, o.Checks))
	if p, ok := r.actions[action].(Preflighter); ok {
		err = errors.Join(err, p.Preflight(ctx, o))
	}
	var unknown []string
	for _, each := range splitErrors(err) {
		typed, isTyped := errors.AsType[*Error](each)
		if !isTyped || typed.Type != Refused {
			unknown = append(unknown, headText(masker.String(each.Error()), MaxText))
			continue
		}
		refusals = append(refusals,
			Refusal{Step: o.ID, Message: headText(masker.String(typed.Message), MaxText), Current: typed.Current})
	}
	if len(unknown) > 0 {
		return refusals, errors.New(strings.Join(unknown, "; "))
	}
	return refusals, nil
}

// resolveKnown puts in the values of secrets. A parameter whose secret has none is looked at no
// further, as if it came later, so that it does not hide what else is wrong with the step.
func (o Outlook) resolveKnown(source SecretSource, action string, m *Masker) (Outlook, error) {
	with, err := resolveSecrets(o.With, source, action, m)
	if err == nil {
		o.With = with
		return o, nil
	}
	var params map[string]json.RawMessage
	if json.Unmarshal(o.With, &params) != nil {
		return o, err
	}
	var refused []error
	for _, name := range slices.Sorted(maps.Keys(params)) {
		if params[name], err = resolveSecrets(params[name], source, action, m); err != nil {
			refused = append(refused, err)
			delete(params, name)
			o.Later = append(slices.Clip(o.Later), name)
		}
	}
	o.With, err = json.Marshal(params)
	return o, errors.Join(append(refused, err)...)
}

// splitErrors takes what errors.Join has joined apart.
func splitErrors(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, each := range joined.Unwrap() {
		all = append(all, splitErrors(each)...)
	}
	return all
}
