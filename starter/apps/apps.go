// Package apps is what agents and clients over HTTP see of environments, under the names that both
// know them by: an app with its checkpoints.
package apps

import (
	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/workflows/environment"
)

// Checkpoint is one checkpoint of an app.
type Checkpoint struct {
	environment.Checkpoint

	Ref      *string `json:"ref"             doc:"the commit of the first part that is a git repository"    jsonschema:"the commit of the first part that is a git repository"`
	VM       *string `json:"vm_snapshot_id"  doc:"the snapshot of the first part that is a disk or container" jsonschema:"the snapshot of the first part that is a disk or container"`
	Database *string `json:"db_snapshot_id"  doc:"the snapshot of the first part that is a database"        jsonschema:"the snapshot of the first part that is a database"`
	Deploy   *string `json:"deploy_id"       doc:"null"                                                     jsonschema:"null"`
	Next     string  `json:"next,omitempty"  doc:"what it is for"                                           jsonschema:"what it is for"`
}

// CheckpointOf is a checkpoint of an environment as one of an app.
func CheckpointOf(c environment.Checkpoint) Checkpoint {
	a := Checkpoint{Checkpoint: c}
	for _, p := range c.Parts {
		if a.Ref == nil && p.Ref != "" {
			a.Ref = &p.Ref
		}
		if a.VM == nil && (p.Kind == "disk" || p.Kind == "container") {
			a.VM = &p.Snapshot
		}
		if a.Database == nil && environment.IsDatabase(p.Kind) {
			a.Database = &p.Snapshot
		}
	}
	return a
}

// Checkpoints are those of an app, the newest first.
type Checkpoints struct {
	Checkpoints []Checkpoint      `json:"checkpoints"`
	Usage       environment.Usage `json:"storage_usage"`
}

// CheckpointsOf are those of an environment.
func CheckpointsOf(v environment.View) Checkpoints {
	all := Checkpoints{Checkpoints: []Checkpoint{}, Usage: v.Usage}
	for _, one := range v.Checkpoints {
		all.Checkpoints = append(all.Checkpoints, CheckpointOf(one))
	}
	return all
}

// RolledBack is what a rollback has done.
type RolledBack struct {
	To     Checkpoint           `json:"rolled_back_to"`
	Safety Checkpoint           `json:"safety_checkpoint" doc:"how everything was before"       jsonschema:"how everything was before"`
	Stages []environment.Passed `json:"stages"`
	Notes  []string             `json:"notes,omitempty"   doc:"what was not touched"            jsonschema:"what was not touched"`
	Next   string               `json:"next,omitempty"    doc:"how to go forward again"         jsonschema:"how to go forward again"`
}

// RolledBackOf is what a rollback of an environment has done.
func RolledBackOf(r environment.RolledBack) RolledBack {
	return RolledBack{To: CheckpointOf(r.To), Safety: CheckpointOf(r.Safety), Stages: r.Stages, Notes: r.Notes}
}

// CheckpointID is the id of what a request takes: the same request again has the same. An empty
// request is another one each time. back is the checkpoint that a rollback goes back to.
func CheckpointID(app, back, request string) string {
	if request == "" {
		return tasks.NewCheckpointID()
	}
	return "cp-" + activities.DigestOf([]byte(app), []byte(back), []byte(request)).Short()
}
