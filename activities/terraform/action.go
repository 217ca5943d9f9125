package terraform

import (
	"context"
	"os"
	"path/filepath"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// Action is the name of the world's only action.
const Action = "terraform.apply"

// applyAction is the action terraform.apply.
type applyAction struct{ *world }

// Params are the parameters of terraform.apply.
type Params struct {
	Dir      string            `json:"dir" jsonschema:"absolute path of the folder with the configuration; below a folder that the worker allows"`
	Vars     map[string]any    `json:"vars,omitempty" jsonschema:"values of variables; they win over var_files"`
	VarFiles []string          `json:"var_files,omitempty" jsonschema:"tfvars files below dir, in order"`
	Backend  map[string]string `json:"backend,omitempty" jsonschema:"settings that the configuration's backend block omits"`
	Previous *Previous         `json:"previous,omitempty" jsonschema:"the configuration that made the present state, if this worker has not applied it; an undo goes back to it"`
}

// Previous is the configuration to go back to.
type Previous struct {
	Dir      string         `json:"dir" jsonschema:"absolute path of a folder with the previous configuration; below a folder that the worker allows"`
	Vars     map[string]any `json:"vars,omitempty" jsonschema:"values of its variables"`
	VarFiles []string       `json:"var_files,omitempty" jsonschema:"tfvars files below its dir, in order"`
}

func (*applyAction) Spec() activities.Spec {
	return activities.Spec{
		Name:       Action,
		Summary:    "Apply a Terraform configuration. Its outputs are the step's, except for sensitive ones, with the counts added, changed and destroyed.",
		Params:     activities.ParamsSchema[Params](),
		UndoParams: []string{"dir"},
		Keys:       []activities.Key{{Prefix: "terraform:", Param: "dir", Path: true}},
		HostBound:  true,
		Risk:       activities.High,
		MayAsk:     true,
		Strategy:   activities.Compensation,
		Undo: "What the step added is destroyed under its own configuration, then the configuration from before is applied to the " +
			"present state. Data inside a replaced or destroyed object does not come back.",
		Redo: "The configuration that the step had applied, kept with its record, is applied again to the present state: objects " +
			"get new ids, and the data inside them does not come back.",
	}
}

// record is the undo record: durable before terraform is started to change anything.
type record struct {
	journal.Owned
	Version int               `json:"v"`
	Want    activities.Digest `json:"want,omitempty"`
	Dir     string            `json:"dir"`
	// Had: there was a state; Backup: there was a backup of it.
	Had    bool `json:"had,omitempty"`
	Backup bool `json:"backup,omitempty"`
	// Lineage, Serial and Addresses are those of the state before.
	Lineage   string   `json:"lineage,omitempty"`
	Serial    uint64   `json:"serial,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
	// Planned is what the step is going to do. Unchanged: nothing, so there is nothing to undo.
	Planned   []plannedChange `json:"planned,omitempty"`
	Unchanged bool            `json:"unchanged,omitempty"`
	// Back is how the step will be undone.
	Back undoPlan `json:"back"`
	// Sealed holds the contents, encrypted.
	Sealed []byte `json:"sealed"`
}

const recordVersion = 1

// secretParts are the parts of a record that can hold secrets.
type secretParts struct {
	// Forward is the configuration that the step applies, with the lock file that init made.
	Forward bundle `json:"forward"`
	// Prior is the configuration to go back to, if Back needs one.
	Prior *bundle `json:"prior,omitempty"`
	// State is the state before, as it stood.
	State []byte `json:"state,omitempty"`
	// Secrets are values that an undo must not show either.
	Secrets []string `json:"secrets,omitempty"`
}

// resultState is the state that the step left.
type resultState struct {
	Digest  activities.Digest `json:"digest"`
	Lineage string            `json:"lineage"`
	Serial  uint64            `json:"serial"`
	// Refused are the refusals of the step's runs, whose output is removed when the step is done.
	Refused []string `json:"refused,omitempty"`
	// Sealed holds the state, encrypted.
	Sealed []byte `json:"sealed"`
}

// The documents of a token besides the journal's own.
const (
	docLeft    = "left"
	docCleared = "cleared" // an undo has looked for drift, found none or was forced, and begun to change things
)

// readRecord reads a token's record; found is false if there is none.
func (w *world) readRecord(ctx context.Context, t *journal.Token) (r record, c secretParts, found bool, err error) {
	if found, err = t.Read(journal.Record, &r); err != nil || !found {
		return r, c, found, err
	}
	if r.Version != recordVersion {
		return r, c, true, activities.Errorf(activities.UnknownFormat,
			"recorded by a version that this one cannot undo: the record has format %d, and this worker knows %d; run a worker of the version that recorded it",
			r.Version, recordVersion)
	}
	err = w.seal.decrypt(journal.Record, r.Sealed, &c)
	hideSecrets(ctx, c.Secrets)
	return r, c, true, err
}

// readLeft reads what a step left; found is false if it did not get that far.
func (w *world) readLeft(ctx context.Context, t *journal.Token) (s *state, found bool, err error) {
	var l resultState
	if found, err = t.Read(docLeft, &l); err != nil || !found {
		return nil, found, err
	}
	var raw []byte
	if err := w.seal.decrypt(docLeft, l.Sealed, &raw); err != nil {
		return nil, true, err
	}
	s, err = parseHidden(ctx, raw)
	return s, true, err
}

// appliedRecord is the result of the step, encrypted: values are masked only in what leaves the worker.
type appliedRecord struct {
	Sealed []byte `json:"sealed"`
}

func (w *world) readApplied(t *journal.Token) (r activities.Result, found bool, err error) {
	var done appliedRecord
	if found, err = t.Read(journal.Applied, &done); err != nil || !found {
		return r, found, err
	}
	return r, true, w.seal.decrypt(journal.Applied, done.Sealed, &r)
}

// writeApplied stores the result; if there is one already, r becomes that.
func (w *world) writeApplied(t *journal.Token, r *activities.Result) error {
	sealed, err := w.seal.encrypt(journal.Applied, r)
	if err != nil {
		return err
	}
	done := appliedRecord{sealed}
	if _, err := t.Create(journal.Applied, &done); err != nil {
		return err
	}
	return w.seal.decrypt(journal.Applied, done.Sealed, r)
}

// Release drops what an undo would need, and the working copies. The fate and the result stay.
func (a *applyAction) Release(_ context.Context, e activities.Entry) error {
	t, err := a.token(e)
	if err != nil {
		return err
	}
	if _, err := t.DecideReleasing(); err != nil {
		return err
	}
	if err := dropRecord(t); err != nil {
		return err
	}
	return t.MarkReleased()
}

// dropRecord removes the large and the secret parts of a token.
func dropRecord(t *journal.Token) error {
	docs := []string{journal.Record, docLeft}
	offers, err := filepath.Glob(filepath.Join(t.Dir(), docOffer("*")))
	if err != nil {
		return err
	}
	for _, offer := range offers {
		docs = append(docs, filepath.Base(offer))
	}
	for _, doc := range docs {
		if err := t.Drop(doc); err != nil {
			return err
		}
	}
	for _, dir := range []string{"work", errandsName, looksName, "runs"} {
		if err := os.RemoveAll(filepath.Join(t.Dir(), dir)); err != nil {
			return err
		}
	}
	return nil
}
