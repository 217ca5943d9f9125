package disk

import (
	"github.com/seed-62bf7108/unwind/activities"
)

// The names of the actions.
const (
	keepName    = "disk.checkpoint"
	restoreName = "disk.restore"
	verifyName  = "disk.verify"
	compareName = "disk.compare"
)

func actionsOf(w *world) (all []activities.Action) {
	for _, spec := range []activities.Spec{keepSpec(), restoreSpec(), verifySpec(), compareSpec()} {
		spec.Keys = []activities.Key{{Prefix: keyPrefix, Param: "disk", Path: true}}
		spec.HostBound, spec.Preflights = true, true
		all = append(all, &action{w, spec})
	}
	return all
}

// keepParams are the parameters of disk.checkpoint.
type keepParams struct {
	Disk   string `json:"disk"             jsonschema:"the absolute path of the qcow2 image, below one of the worker's disk.roots"`
	Memory bool   `json:"memory,omitempty" jsonschema:"whether to keep the running machine's memory as well, and all disks that it writes, at one moment: it stands still while its memory is written"`
}

// restoreParams are the parameters of disk.restore and of disk.verify.
type restoreParams struct {
	Disk       string `json:"disk"             jsonschema:"the absolute path of the qcow2 image, below one of the worker's disk.roots"`
	Checkpoint string `json:"checkpoint"       jsonschema:"the checkpoint of it: an output of disk.checkpoint"`
	Memory     bool   `json:"memory,omitempty" jsonschema:"whether the machine, which must be running, goes on where it was: the checkpoint must have its memory"`
}

// compareParams are the parameters of disk.compare.
type compareParams struct {
	Disk       string `json:"disk"           jsonschema:"the absolute path of the qcow2 image, below one of the worker's disk.roots"`
	Checkpoint string `json:"checkpoint"     jsonschema:"the checkpoint to compare: an output of disk.checkpoint"`
	With       string `json:"with,omitempty" jsonschema:"the checkpoint to compare it with; by default what the disk holds now"`
}

// allParams are the parameters of any of the actions.
type allParams struct {
	compareParams

	Memory bool `json:"memory,omitempty"`
}

// other is what a checkpoint is compared with.
func (p compareParams) other() string {
	if p.With == "" {
		return "what it holds now"
	}
	return p.With
}

func keepSpec() activities.Spec {
	return activities.Spec{
		Name: keepName, Summary: "Keeps what the disk of a virtual machine holds (a qcow2 image), for disk.restore.",
		Params: activities.ParamsSchema[keepParams](), UndoParams: []string{"disk", "memory"},
		Outputs: map[string]string{
			"checkpoint": "the name of the checkpoint, for disk.restore",
			"bytes":      "how many bytes it has: of the image, shared with the disk until they are overwritten, and of memory",
			"memory":     "how many bytes it has of the machine's memory and devices",
			"running":    "whether a machine had the disk open",
			"frozen":     "whether the guest's filesystems were frozen meanwhile, so that they are as after a clean stop",
		},
		Risk: activities.Low, Strategy: activities.Snapshot,
		Undo: "The checkpoint is dropped; the disk was never changed.",
		Redo: "It runs again: the checkpoint holds what the disk holds then.",
	}
}

func restoreSpec() activities.Spec {
	return activities.Spec{
		Name: restoreName,
		Summary: "Makes the disk of a virtual machine hold what a checkpoint has kept of it, exactly. No machine may have " +
			"it open, unless the memory of one is put back too.",
		Params: activities.ParamsSchema[restoreParams](), UndoParams: []string{"disk", "checkpoint", "memory"},
		Outputs: map[string]string{"changed": "how many bytes of the disk were put back, in whole clusters"},
		Risk:    activities.High, Strategy: activities.Snapshot,
		Undo: "What the disk held before is kept, and put back, unless somebody has written to it since.",
		Redo: "It runs again: the disk holds what the checkpoint has, as long as that is kept.",
	}
}

func verifySpec() activities.Spec {
	return activities.Spec{
		Name: verifyName,
		Summary: "Reads the map of a checkpoint of a disk, and fails where it is not as it was kept, or QEMU finds the " +
			"image to be damaged.",
		Params: activities.ParamsSchema[restoreParams](), UndoParams: []string{"disk"},
		Outputs:  map[string]string{"bytes": "how many bytes of the image the checkpoint has"},
		ReadOnly: true, Risk: activities.Low, Strategy: activities.NoUndo,
		Undo: "It changes nothing.",
		Redo: "The checkpoint is read again.",
	}
}

func compareSpec() activities.Spec {
	return activities.Spec{
		Name:    compareName,
		Summary: "Says where a disk differs between a checkpoint of it and another, or now.",
		Params:  activities.ParamsSchema[compareParams](), UndoParams: []string{"disk"},
		Outputs: map[string]string{
			"changed": "how many bytes of the disk differ, in whole clusters",
			"diff":    "the places of the disk, a line each; at most 8 KiB",
		},
		ReadOnly: true, Risk: activities.Low, Strategy: activities.NoUndo,
		Undo: "It changes nothing.",
		Redo: "They are compared again.",
	}
}
