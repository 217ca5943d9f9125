package activities

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/google/jsonschema-go/jsonschema"
)

// Limits on what one action may return or take: all of it stands in the workflow's history.
const (
	MaxInline  = 64 << 10 // bytes of one step's parameters
	MaxOutputs = 16 << 10 // bytes of one step's outputs as JSON
	MaxDiff    = 32 << 10 // bytes of a diff
	MaxSummary = 200      // bytes of a summary
	MaxText    = 2000     // bytes of any other text
	MaxItems   = 50       // items of a list; one more counts the others
	MaxItem    = 500      // bytes of an item of a list
)

// Risk says how much a change asks for a person's eyes.
type Risk string

// Low needs nobody; Medium asks where a policy says so; High always asks unless the task file writes gate: none.
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
	Irreversible Strategy = "irreversible" // nothing takes it back
	NoUndo       Strategy = "none"         // read-only: there is nothing to take back
)

// Spec describes an action: pure data, the same in the catalog, in a compiled task and in the documentation.
type Spec struct {
	// Name is the action's name, "file.write": the activity type of its forward.
	Name string `json:"name"`
	// Summary is one sentence for the catalog.
	Summary string `json:"summary"`
	// Params is the JSON Schema of the parameters; see ParamsSchema.
	Params json.RawMessage `json:"params"`
	// Outputs names the outputs and says what each is.
	Outputs map[string]string `json:"outputs,omitempty"`
	// UndoParams names the top-level parameters that go into the Entry.
	UndoParams []string `json:"undoParams,omitempty"`
	// Digested names those of UndoParams whose value is bulky: the Entry holds their digest.
	Digested []string `json:"digested,omitempty"`
	// Keys says which parameters name resources. Nil: the action cannot name what it touches and conflicts with
	// everything in its place. Empty: it creates something new and conflicts with nothing.
	Keys []Key `json:"keys"`
	// HostBound steps run only on the queue of their host.
	HostBound bool `json:"hostBound,omitempty"`
	// ReadOnly steps change nothing.
	ReadOnly bool `json:"readOnly,omitempty"`
	// Commits says that the action is a Committer.
	Commits bool `json:"commits,omitempty"`
	// Risk is the least risk of any use of this action.
	Risk Risk `json:"risk"`
	// MayAsk says that Plan can set Change.Ask: the step is planned before it runs even where the file says gate: none.
	MayAsk bool `json:"mayAsk,omitempty"`
	// Strategy is how it is undone in general; Plan says it for one change.
	Strategy Strategy `json:"strategy"`
	// Undo says in one sentence how, and what it cannot bring back.
	Undo string `json:"undo"`
	// Redo says in one sentence how a rolled back step is done again: from what was kept, exactly, or anew.
	Redo string `json:"redo,omitempty"`
	// Reset says what Resetter.Reset does and loses; empty: the action has none.
	Reset string `json:"reset,omitempty"`
}

// Key makes resource keys out of a parameter.
type Key struct {
	// Prefix comes before the value: "file:".
	Prefix string `json:"prefix"`
	// Param is a dotted path into the parameters; "*" stands for each item of a list: "files.*.path".
	Param string `json:"param"`
	// Path says that the value is a file path: it is cleaned, and a key covers all below it.
	Path bool `json:"path,omitempty"`
}

// ParamsSchema derives the JSON Schema of an action's parameters from the struct that it decodes them into: json tags
// name the fields (omitempty or omitzero: optional), jsonschema tags describe them. Unknown fields are refused.
func ParamsSchema[T any]() json.RawMessage {
	s, err := jsonschema.For[T](nil)
	if err != nil {
		panic(fmt.Sprintf("parameters of %T: %v", *new(T), err)) // a mistake in the source, found by any test
	}
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return b
}

// DecodeParams reads With or Entry.Params into T. A field that T does not have is Refused.
func DecodeParams[T any](raw json.RawMessage) (T, error) {
	var v T
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		return v, Errorf(Refused, "parameters: %v", err)
	}
	return v, nil
}
