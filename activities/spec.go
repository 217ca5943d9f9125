package activities

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"
)

// Limits on what one action may return or take: all of it is in the workflow's history.
const (
	MaxInline  = 64 << 10 // bytes of one step's parameters
	MaxOutputs = 16 << 10 // bytes of one step's outputs as JSON
	MaxKnown   = 4 << 10  // bytes of those of one step's outputs that its undo is given, as JSON
	MaxDiff    = 32 << 10 // bytes of a diff
	MaxSummary = 200      // bytes of a summary
	MaxText    = 2000     // bytes of any other text
	MaxItems   = 50       // items of a list; one more item counts the rest
	MaxItem    = 500      // bytes of an item of a list
)

// Risk says how much a change needs a person's attention.
type Risk string

// Low needs no approval; Medium needs one if the task file says gate: auto; High always needs one
// unless it says gate: none.
const (
	Low    Risk = "low"
	Medium Risk = "medium"
	High   Risk = "high"
)

// Strategy is how a step is undone.
type Strategy string

// The strategies.
const (
	Snapshot     Strategy = "snapshot"     // the pre-image is kept and put back
	Transaction  Strategy = "transaction"  // the change is one atomic unit with its own record
	Compensation Strategy = "compensation" // another operation offsets it
	Irreversible Strategy = "irreversible" // it cannot be undone
	NoUndo       Strategy = "none"         // it is read-only: there is nothing to undo
)

// Spec describes an action: pure data, the same in the catalog, in a compiled task and in the
// documentation.
type Spec struct {
	// Name is the action's name, "file.write": the activity type of its forward.
	Name string `json:"name"`
	// Summary is one sentence for the catalog.
	Summary string `json:"summary"`
	// Params is the JSON Schema of the parameters; see ParamsSchema.
	Params json.RawMessage `json:"params"`
	// Outputs names the outputs and says what each is.
	Outputs map[string]string `json:"outputs,omitempty"`
	// UndoParams names the top-level parameters that the Entry holds.
	UndoParams []string `json:"undoParams,omitempty"`
	// Digested names those of UndoParams that are bulky: the Entry holds only their digests.
	Digested []string `json:"digested,omitempty"`
	// Intent names those of UndoParams that say what a step is for, whatever words go with it: the
	// amount, the currency and the customer of a payment, not its description. A session refuses a
	// second step with the same purpose as one that stands, unless it says again; a worker asks a
	// person about one of another task of the same agent.
	Intent []string `json:"intent,omitempty"`
	// UndoOutputs names the outputs that Undo is given in Decision.Result, for a compensation that is
	// computed from a response: it needs an id that the server has made. Together they have at most
	// MaxKnown bytes as JSON; they are never cut.
	UndoOutputs []string `json:"undoOutputs,omitempty"`
	// Keys says which parameters name resources. If it is nil, the action cannot name what it touches
	// and conflicts with everything in its place. If it is empty, the action creates something new and
	// conflicts with nothing.
	Keys []Key `json:"keys"`
	// Reads says which parameters name files that the action only reads, each as Key.Param does.
	Reads []string `json:"reads,omitempty"`
	// Names says which other parameters decide what the action touches, each as Key.Param does: the
	// settings of a backend. Where a step leaves one of them to an earlier step, its host names what
	// it touches when it is about to run.
	Names []string `json:"names,omitempty"`
	// HostBound steps run only on the queue of their host.
	HostBound bool `json:"hostBound,omitempty"`
	// ReadOnly steps change nothing.
	ReadOnly bool `json:"readOnly,omitempty"`
	// MayChange are the key prefixes of resources that a use may create or change in addition to those
	// that Keys names: "file:" for a command that can write files, "" for anything. If Keys is nil it
	// may change anything.
	MayChange []string `json:"mayChange,omitempty"`
	// Commits means that the action is a Committer, Preflights that it is a Preflighter.
	Commits    bool `json:"commits,omitempty"`
	Preflights bool `json:"preflights,omitempty"`
	// Risk is the lowest risk that any use of this action has.
	Risk Risk `json:"risk"`
	// Strategy is how it is undone in general; Plan says how for one change.
	Strategy Strategy `json:"strategy"`
	// Undo says in one sentence how it is undone, and what an undo cannot bring back.
	Undo string `json:"undo"`
	// Redo says in one sentence how a rolled-back step is redone: exactly, from what was kept, or by
	// running it again.
	Redo string `json:"redo,omitempty"`
	// Reset says what Resetter.Reset does and loses; empty if the action has none.
	Reset string `json:"reset,omitempty"`
}

// Key makes resource keys out of a parameter.
type Key struct {
	// Prefix comes before the value: "file:".
	Prefix string `json:"prefix"`
	// Param is a dotted path into the parameters; "*" stands for each item of a list: "files.*.path".
	Param string `json:"param"`
	// Path means that the value is a file path: it is cleaned, and the key covers everything below it.
	Path bool `json:"path,omitempty"`
}

// ParamsSchema derives the JSON Schema of an action's parameters from the struct that they are
// decoded into: json tags name the fields (optional with omitempty or omitzero), jsonschema tags
// describe them. Unknown fields are refused.
func ParamsSchema[T any]() json.RawMessage { return ParamsSchemaOf[T](nil) }

// ParamsSchemaOf is ParamsSchema with the schemas of types that say more than Go does, such as
// those of an enum.
func ParamsSchemaOf[T any](types map[reflect.Type]*jsonschema.Schema) json.RawMessage {
	s, err := jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: types})
	if err != nil {
		panic(fmt.Sprintf("parameters of %T: %v", *new(T), err)) // a mistake in the source, found by any test
	}
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return b
}

// DecodeParams reads With or Entry.Params into T, with numbers as they are written. A field that T
// does not have is Refused.
func DecodeParams[T any](raw json.RawMessage) (T, error) {
	var v T
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return v, Errorf(Refused, "parameters: %v", err)
	}
	return v, nil
}
