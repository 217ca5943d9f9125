package stripe

import (
	"encoding/json"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/stripe/stripe-go/v76"

	"github.com/seed-62bf7108/unwind/activities"
)

// kind is one action as data: its request, the state it leaves, and its inverse. create.go undoes
// kinds that create an object and move no money; spend.go undoes kinds that may move money, whose
// request an undo never sends.
type kind struct {
	// noun and verb make the action's name: "payment_intent" and "confirm".
	noun, verb string
	summary    string
	undo       string
	// redo is empty for the verbs on an intent, which accepts each of them once: such a step is redone
	// on the intent that the redone task created, or not at all.
	redo     string
	losses   []string
	risk     activities.Risk
	strategy activities.Strategy
	keys     []activities.Key
	outputs  []output
	params   json.RawMessage
	// intent names the parameters that say what a step is for: see activities.Spec.
	intent []string
	// build makes the forward's request from the step's parameters.
	build func(with json.RawMessage, token string) (request, error)

	// inverses reverse a create; the first that Stripe does not deny counts.
	inverses []inverse
	// exact says that nothing remains of a deleted object.
	exact bool
	// users lists what others may have built on an object, which counts as drift.
	users *dependents

	// spend undoes kinds that may have moved money; nil for creates that move none.
	spend func(u *undoRun) (activities.Undone, error)
	// isDone says that an object is as the forward leaves it; only for verbs on an existing object.
	isDone func(o object) bool
	// isUndone says that the forward has not acted on the object.
	isUndone func(o object) bool
}

// output is a field of the response that later steps may refer to.
type output struct{ name, path, doc string }

// dependents describes a list of objects that belong to another one; owner is the parameter that
// names it.
type dependents struct {
	what, list, owner string
	active            bool // only those that are active
}

// request is a forward's request, ready to be sent.
type request struct {
	path   string
	params stripe.ParamsContainer
	// leaves are the fields of the object as the step leaves it, by dotted path.
	leaves map[string]any
	// list is the path under which the object of a lost response is searched; filter narrows it down
	// by immutable fields.
	list   string
	filter url.Values
	// chosen is the object's id if the task chooses it.
	chosen string
	// parents are the paths of objects that must exist; the state of the first decides what the
	// request does.
	parents []string
}

// actsOnObject says that the request acts on an existing object instead of creating one.
func (k *kind) actsOnObject() bool { return k.isDone != nil }

func (k *kind) name() string { return "stripe." + k.noun + "." + k.verb }

func (k *kind) spec() activities.Spec {
	s := activities.Spec{
		Name: k.name(), Summary: k.summary, Params: k.params, UndoParams: parameterNames(k.params), Keys: k.keys,
		Risk:       k.risk,
		Preflights: true, Intent: k.intent, Strategy: k.strategy, Undo: k.undo, Redo: k.redo, Outputs: map[string]string{},
	}
	for _, o := range k.outputs {
		s.Outputs[o.name] = o.doc
	}
	return s
}

// parameterNames are the parameters of a schema. The undo needs all of them, to send or recognize
// the same request.
func parameterNames(schema json.RawMessage) []string {
	var s struct {
		Properties map[string]any `json:"properties"`
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		panic(err) // the schema is ours
	}
	return slices.Sorted(maps.Keys(s.Properties))
}

// newKind completes a kind with the schema of its parameters, and with how they become a request.
func newKind[P any](k kind, build func(p P, token string) (request, error)) *kind {
	k.params = activities.ParamsSchemaOf[P](enums)
	k.build = func(raw json.RawMessage, token string) (request, error) {
		p, err := activities.DecodeParams[P](raw)
		if err != nil {
			return request{}, err
		}
		return build(p, token)
	}
	return &k
}

var idPattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,255}$`)

// pathOf is the path of the object with the id in param. Anything but an id is Refused.
func pathOf(plural, param, id string) (string, error) {
	if !idPattern.MatchString(id) {
		return "", activities.Errorf(activities.Refused, "%s: %q is not an id of Stripe", param, id)
	}
	return "/v1/" + plural + "/" + id, nil
}

// pathsOf is pathOf for triples of plural, param and id; it skips empty ids.
func pathsOf(triples ...string) ([]string, error) {
	var paths []string
	for i := 0; i+2 < len(triples); i += 3 {
		if triples[i+2] == "" {
			continue
		}
		p, err := pathOf(triples[i], triples[i+1], triples[i+2])
		if err != nil {
			return nil, err
		}
		paths = append(paths, p)
	}
	return paths, nil
}

// withToken is the metadata that a create writes: the task's own and the token.
func withToken(own map[string]string, token string) (map[string]string, error) {
	m := map[string]string{tokenMark: token}
	for name, value := range own {
		if strings.HasPrefix(name, markPrefix) {
			return nil, activities.Errorf(activities.Refused, "metadata.%s: names that start with %s are Unwind's own", name,
				markPrefix)
		}
		m[name] = value
	}
	return m, nil
}

// optionalString leaves an empty parameter out of a request.
func optionalString[S ~string](s S) *string {
	if s == "" {
		return nil
	}
	return stripe.String(string(s))
}

func optionalInt(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return stripe.Int64(n)
}

// orNull is how an object shows an optional parameter: null if it is empty.
func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}
