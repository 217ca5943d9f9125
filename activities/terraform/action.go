package terraform

import (
	"context"
	"os"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/terraform/run"
	"github.com/seed-62bf7108/unwind/activities/terraform/salvage"
	"github.com/seed-62bf7108/unwind/activities/terraform/workspace"
)

// The names of the world's actions. Action changes something by a configuration; the others keep
// what there is, and go back to it.
const (
	Action        = "terraform.apply"
	KeepAction    = "terraform.checkpoint"
	RestoreAction = "terraform.restore"
	VerifyAction  = "terraform.verify"
	CompareAction = "terraform.compare"
)

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
		Name: Action,
		Summary: "Apply a Terraform configuration. Its outputs are the step's, except for sensitive ones, with the " +
			"counts added, changed and destroyed.",
		Params:     activities.ParamsSchema[Params](),
		UndoParams: []string{"dir"},
		Keys:       []activities.Key{{Prefix: "terraform:", Param: "dir", Path: true}},
		Reads:      []string{"previous.dir"},
		Names:      []string{"backend.*"},
		MayChange:  []string{""}, // what its providers and provisioners do
		HostBound:  true,
		Preflights: true,
		Risk:       activities.High,
		Strategy:   activities.Compensation,
		Undo: "What the step made is destroyed under its own configuration, what it imported, moved or made Terraform " +
			"forget is forgotten, moved " +
			"back or imported again, then the configuration from before is applied to the present state. Data inside a " +
			"replaced or destroyed object does not come back.",
		Redo: "The configuration that the step had applied, kept with its record, is applied again to the present state: " +
			"objects " +
			"get new ids, and the data inside them does not come back.",
	}
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
	if err := a.dropRecord(t); err != nil {
		return err
	}
	return t.MarkReleased()
}

// dropRecord removes the large and the secret parts of a token.
func (w *world) dropRecord(t *journal.Token) error {
	if err := w.records.Drop(t); err != nil {
		return err
	}
	for _, dir := range []string{workspace.Folder(t, ""), salvage.UnsavedFolder(t), workspace.ObservationsFolder(t),
		run.Folder(t)} {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}
