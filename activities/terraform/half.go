package terraform

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/terraform-exec/tfexec"
)

// A creation that was cut off in one of its provisioners leaves an object that terraform either calls tainted, and then
// destroys without its destroy-time provisioners, or, where it was killed itself, takes for whole. Neither takes back what the
// provisioner had done. A destruction that was cut off there leaves one whose provisioners may find nothing to do any more,
// and fail. What the runs of a token have said tells which objects these are.

// halves are such objects by their addresses.
type halves struct {
	// made are those whose creation was cut off, and unmade those whose destruction was; no run has destroyed them or made
	// them anew since.
	made, unmade map[string]bool
	// refused are those whose destroy-time provisioners failed, with what that means: they are destroyed without.
	refused map[string]string

	// creating and ending are of the run that is read.
	creating, ending map[string]bool
	// interrupted says that it was: what failed in it then was cut off.
	interrupted bool
}

// halves reads what a token's runs have said, in their order.
func (ws *workspace) halves() (halves, error) {
	h := halves{made: map[string]bool{}, unmade: map[string]bool{}, refused: map[string]string{}}
	all, err := runs(ws.token)
	if err != nil {
		return h, err
	}
	for _, r := range all {
		h.creating, h.ending = map[string]bool{}, map[string]bool{}
		var at time.Time
		if h.interrupted, err = r.token.Read(r.doc(docInterrupted), &at); err != nil {
			return h, err
		}
		if err := readEvents(stdoutOf(r.dir()), h.add); err != nil {
			return h, err
		}
		maps.Copy(h.unmade, h.ending)
	}
	return h, nil
}

const (
	refusedMade = "a provisioner was cut off while it was made, and those for its destruction failed: " +
		"it was destroyed without them, and what the first had done by then may still be there"
	refusedUnmade = "its destruction was cut off in a provisioner, and the next time its provisioners failed: " +
		"it was destroyed without them, and what they were to take away may still be there"
)

func (h *halves) add(e event) {
	if e.Hook == nil {
		return
	}
	address := e.Hook.Resource.Address
	switch e.Type {
	case "apply_start":
		h.creating[address] = e.Hook.Action == "create"
	case "provision_start":
		if h.creating[address] {
			h.made[address] = true
		} else {
			h.ending[address] = true
		}
	case "provision_errored":
		if h.creating[address] || h.interrupted {
			return
		}
		delete(h.ending, address) // not cut off
		switch {
		case h.made[address]:
			h.refused[address] = refusedMade
		case h.unmade[address]:
			h.refused[address] = refusedUnmade
		}
	case "apply_complete":
		delete(h.made, address)
		delete(h.unmade, address)
		delete(h.ending, address)
	}
}

// mend prepares the halves among now's objects for a plan that destroys them or makes them anew, and returns their addresses:
// those that terraform calls tainted are no longer, so that it runs their destroy-time provisioners; where these have failed
// before, it destroys the object without them.
func (ws *workspace) mend(ctx context.Context, now *state, of func(address string) bool) (addresses []string, err error) {
	h, err := ws.halves()
	if err != nil {
		return nil, err
	}
	tainted := now.tainted()
	all := maps.Clone(h.made)
	maps.Copy(all, h.unmade)
	for _, address := range slices.Sorted(maps.Keys(all)) {
		is, there := tainted[address]
		if !there || !of(address) {
			continue
		}
		addresses = append(addresses, address)
		limit := tfexec.LockTimeout(ws.LockTimeout.String())
		switch refused := h.refused[address] != ""; {
		case refused && !is:
			_, err = ws.act(ctx, "taint", func(order) error { return ws.tf.Taint(ctx, address, limit) })
		case !refused && is:
			_, err = ws.act(ctx, "untaint", func(order) error { return ws.tf.Untaint(ctx, address, limit) })
		}
		if err != nil {
			return nil, err
		}
	}
	return addresses, nil
}

// replacing are the options of a plan that makes these objects anew.
func replacing(addresses []string) (options []tfexec.PlanOption) {
	for _, address := range addresses {
		options = append(options, tfexec.Replace(address))
	}
	return options
}

// refuses says that a run failed at the destroy-time provisioners of one of these objects: prepared again, it is destroyed
// without them.
func refuses(said report, addresses []string) bool {
	return slices.ContainsFunc(said.Refused, func(a string) bool { return slices.Contains(addresses, a) })
}

// refusals are the objects whose destroy-time provisioners failed in this step or its undo: a loss each, in words.
func (ws *workspace) refusals() ([]string, error) {
	h, err := ws.halves()
	var all []string
	for _, address := range slices.Sorted(maps.Keys(h.refused)) {
		all = append(all, address+": "+h.refused[address])
	}
	return all, err
}
