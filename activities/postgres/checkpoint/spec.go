package checkpoint

import "github.com/seed-62bf7108/unwind/activities"

// params are the parameters of postgres.checkpoint.
type params struct {
	Database  string `json:"database"            jsonschema:"the name of one of the worker's postgres.databases"`
	Exclusive bool   `json:"exclusive,omitempty" jsonschema:"whether nobody but the task writes to the database while the task lives, so that an undo may restore it without asking; defaults to false"`
	As        string `json:"as,omitempty"        jsonschema:"how it is kept: dump, in a file on the worker, or copy, as a database of its own on the server, which is much faster, both ways, and ends the sessions of the database; defaults to dump"`
	ReadLater bool   `json:"read_later,omitempty" jsonschema:"with as: copy, leaves it to postgres.verify to read what the copy contains, which takes longer than to make it; defaults to false"`
}

// asCopy is a value of As; the other one is the default.
const asCopy = "copy"

// decode reads the parameters of a step.
func decode(raw []byte) (p params, err error) {
	p, err = activities.DecodeParams[params](raw)
	if err == nil && p.As != "" && p.As != "dump" && p.As != asCopy {
		err = activities.Errorf(activities.Refused, "as: %q must be dump or copy", p.As)
	}
	if err == nil && p.ReadLater && p.As != asCopy {
		err = activities.Errorf(activities.Refused, "read_later: a dump is read at once; it goes with as: copy")
	}
	return p, err
}

var spec = activities.Spec{
	Name:    "postgres.checkpoint",
	Summary: "Takes a checkpoint of a whole PostgreSQL database, so that whatever later steps do to it can be taken back.",
	Params:  activities.ParamsSchema[params](), UndoParams: []string{"database", "exclusive"},
	Outputs: map[string]string{"checkpoint": "the name of the checkpoint, for postgres.restore",
		"bytes": "the size of the checkpoint"},
	Keys: []activities.Key{{Prefix: "postgres:", Param: "database"}}, HostBound: true, Preflights: true,
	Risk: activities.Low, Strategy: activities.Snapshot,
	Undo: "Restores the whole database as it was at the checkpoint, if it has changed since and the step is exclusive " +
		"or a person forces it; its sessions are ended. " +
		"What is replaced is kept beside it until the record is released.",
	Redo: "Another checkpoint is taken.",
}
