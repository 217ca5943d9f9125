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

// kind is one action, as data: what is sent, what it leaves, and how it is taken back. The engine in create.go drives
// those that make an object and move no money; the one in spend.go those that may move money, and are never sent again.
type kind struct {
	// noun and verb make the action's name: "payment_intent" and "confirm".
	noun, verb string
	summary    string
	undo       string
	// redo is empty for the verbs on an intent, which takes each of them once: such a step is done again on the intent that
	// the redone task has made, or not at all.
	redo     string
	losses   []string
	risk     activities.Risk
	strategy activities.Strategy
	keys     []activities.Key
	outputs  []output
	params   json.RawMessage
	// build makes the request of the forward out of the step's parameters.
	build func(with json.RawMessage, token string) (request, error)

	// inverses take back what a create made; the first that Stripe does not refuse is the one.
	inverses []inverse
	// exact says that nothing is left of an object that an inverse has deleted.
	exact bool
	// users lists what others may have built on an object: while there is any, it is not as the step left it.
	users *dependents

	// spend takes back what may have moved money; nil for the creates that move none.
	spend func(u *undoRun) (activities.Undone, error)
	// moved says that an object is as the forward makes it, for the verbs on an object that is there.
	moved func(o object) bool
	// unmoved says that it is as the forward finds it: the forward has not acted.
	unmoved func(o object) bool
}

// output is a field of the answer that later steps may refer to.
type output struct{ name, path, doc string }

// dependents is a list of objects that belong to another one, by the parameter that names the owner.
type dependents struct {
	what, list, owner string
	active            bool // only those that are active
}

// request is a forward, ready to be sent.
type request struct {
	path   string
	params stripe.ParamsContainer
	// left holds the fields of the object as the step leaves it, by dotted path.
	left map[string]any
	// list is where a lost answer's object is looked for. filter narrows that down by fields that nobody can change.
	list   string
	filter url.Values
	// chosen is the object's id where the caller chooses it.
	chosen string
	// parents are the paths of what must be there; the first is the one whose state decides what the request does.
	parents []string
}

// actsOnObject says that the request acts on an object that is there, instead of making one.
func (k *kind) actsOnObject() bool { return k.moved != nil }

func (k *kind) name() string { return "stripe." + k.noun + "." + k.verb }

func (k *kind) spec() activities.Spec {
	s := activities.Spec{
		Name: k.name(), Summary: k.summary, Params: k.params, UndoParams: parameterNames(k.params), Keys: k.keys, Risk: k.risk,
		Strategy: k.strategy, Undo: k.undo, Redo: k.redo, Outputs: map[string]string{},
	}
	for _, o := range k.outputs {
		s.Outputs[o.name] = o.doc
	}
	return s
}

// parameterNames are the parameters of a schema: the undo needs them all, to send or to recognize the same request.
func parameterNames(schema json.RawMessage) []string {
	var s struct {
		Properties map[string]any `json:"properties"`
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		panic(err) // the schema is ours
	}
	return slices.Sorted(maps.Keys(s.Properties))
}

// newKind completes a kind with the parameters that it takes: their schema, and how they become a request.
func newKind[P any](k kind, build func(p P, token string) (request, error)) *kind {
	k.params = activities.ParamsSchema[P]()
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

// pathOf is the path of the object whose id came as a parameter.
func pathOf(plural, param, id string) (string, error) {
	if !idPattern.MatchString(id) {
		return "", activities.Errorf(activities.Refused, "%s: %q is no id of Stripe's", param, id)
	}
	return "/v1/" + plural + "/" + id, nil
}

// pathsOf is pathOf for several; those whose id is empty are left out.
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

// withToken is what a create writes: the task's own, and the token.
func withToken(own map[string]string, token string) (map[string]string, error) {
	m := map[string]string{tokenMark: token}
	for name, value := range own {
		if strings.HasPrefix(name, markPrefix) {
			return nil, activities.Errorf(activities.Refused, "metadata.%s: names that start with %s are Unwind's own", name, markPrefix)
		}
		m[name] = value
	}
	return m, nil
}

// optionalString leaves an empty parameter out of a request.
func optionalString(s string) *string {
	if s == "" {
		return nil
	}
	return stripe.String(s)
}

func optionalInt(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return stripe.Int64(n)
}

// orNull is how an object shows a parameter that may be left out.
func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}
