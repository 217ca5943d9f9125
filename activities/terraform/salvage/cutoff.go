package salvage

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/terraform-exec/tfexec"

	"github.com/seed-62bf7108/unwind/activities/terraform/run"
	"github.com/seed-62bf7108/unwind/activities/terraform/state"
	"github.com/seed-62bf7108/unwind/activities/terraform/stream"
	"github.com/seed-62bf7108/unwind/activities/terraform/workspace"
)

// A creation interrupted in one of its provisioners leaves an object that terraform either calls
// tainted, and then destroys without its destroy-time provisioners, or, if terraform itself was
// killed, takes for complete. Neither undoes what the provisioner had done. A destruction
// interrupted there leaves an object whose provisioners may find nothing to do any more, and fail.
// The output of the runs of a token shows which objects these are.

// cutOffObjects are such objects, by address.
type cutOffObjects struct {
	// partlyMade are those whose creation was cut off, partlyDestroyed those whose destruction was; no
	// run has destroyed them or made them anew since.
	partlyMade, partlyDestroyed map[string]bool
	// refused are those whose destroy-time provisioners failed, with what that means: they are
	// destroyed without them.
	refused map[string]string

	// creating and ending are the objects that the run being read creates and destroys.
	creating, ending map[string]bool
	// interrupted: the run was interrupted, so what failed in it was cut off.
	interrupted bool
}

// readCutOff reads the output of a token's runs, in their order.
func readCutOff(ws *workspace.Workspace) (cutOffObjects, error) {
	h := cutOffObjects{partlyMade: map[string]bool{}, partlyDestroyed: map[string]bool{}, refused: map[string]string{}}
	all, err := run.List(ws.Token)
	if err != nil {
		return h, err
	}
	for _, r := range all {
		h.creating, h.ending = map[string]bool{}, map[string]bool{}
		var at time.Time
		if h.interrupted, err = r.Token.Read(r.Doc(run.DocInterrupted), &at); err != nil {
			return h, err
		}
		if err := stream.ReadEvents(run.Stdout(r.Folder()), h.addEvent); err != nil {
			return h, err
		}
		maps.Copy(h.partlyDestroyed, h.ending)
	}
	return h, nil
}

const (
	refusedMade = "a provisioner was cut off while it was made, and those for its destruction failed: " +
		"it was destroyed without them, and what it had done by then may still exist"
	refusedUnmade = "its destruction was cut off in a provisioner, and the next time its provisioners failed: " +
		"it was destroyed without them, and what they were to remove may still exist"
)

func (h *cutOffObjects) addEvent(e stream.Event) {
	if e.Hook == nil {
		return
	}
	address := e.Hook.Resource.Address
	switch e.Type {
	case "apply_start":
		h.creating[address] = e.Hook.Action == "create"
	case "provision_start":
		if h.creating[address] {
			h.partlyMade[address] = true
		} else {
			h.ending[address] = true
		}
	case "provision_errored":
		if h.creating[address] || h.interrupted {
			return
		}
		delete(h.ending, address) // not cut off
		switch {
		case h.partlyMade[address]:
			h.refused[address] = refusedMade
		case h.partlyDestroyed[address]:
			h.refused[address] = refusedUnmade
		}
	case "apply_complete":
		delete(h.partlyMade, address)
		delete(h.partlyDestroyed, address)
		delete(h.ending, address)
	}
}

// PrepareCutOff prepares these objects for a plan that destroys or remakes them, and returns their
// addresses: tainted ones are untainted, so that terraform runs their destroy-time provisioners; if
// these have failed before, terraform destroys the object without them.
func PrepareCutOff(ctx context.Context, ws *workspace.Workspace, now *state.State,
	of func(address string) bool) (addresses []string, err error) {
	h, err := readCutOff(ws)
	if err != nil {
		return nil, err
	}
	tainted := now.Tainted()
	all := maps.Clone(h.partlyMade)
	maps.Copy(all, h.partlyDestroyed)
	for _, address := range slices.Sorted(maps.Keys(all)) {
		is, there := tainted[address]
		if !there || !of(address) {
			continue
		}
		addresses = append(addresses, address)
		limit := tfexec.LockTimeout(ws.LockTimeout.String())
		switch refused := h.refused[address] != ""; {
		case refused && !is:
			_, err = ws.RunChange(ctx, "taint", func(run.Order) error { return ws.CLI.Taint(ctx, address, limit) })
		case !refused && is:
			_, err = ws.RunChange(ctx, "untaint", func(run.Order) error { return ws.CLI.Untaint(ctx, address, limit) })
		}
		if err != nil {
			return nil, err
		}
	}
	return addresses, nil
}

// ReplaceOptions are the plan options that remake these objects.
func ReplaceOptions(addresses []string) (options []tfexec.PlanOption) {
	for _, address := range addresses {
		options = append(options, tfexec.Replace(address))
	}
	return options
}

// IsRefusal reports whether a run failed in the destroy-time provisioners of one of these objects:
// prepared again, it is destroyed without them.
func IsRefusal(said stream.Report, addresses []string) bool {
	return slices.ContainsFunc(said.Refused, func(a string) bool { return slices.Contains(addresses, a) })
}

// ListRefusals are the objects whose destroy-time provisioners failed in this step or its undo,
// each described as a loss.
func ListRefusals(ws *workspace.Workspace) ([]string, error) {
	h, err := readCutOff(ws)
	var all []string
	for _, address := range slices.Sorted(maps.Keys(h.refused)) {
		all = append(all, address+": "+h.refused[address])
	}
	return all, err
}
