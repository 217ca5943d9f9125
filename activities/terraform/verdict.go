package terraform

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/terraform/plan"
	"github.com/seed-62bf7108/unwind/activities/terraform/salvage"
	"github.com/seed-62bf7108/unwind/activities/terraform/state"
	"github.com/seed-62bf7108/unwind/activities/terraform/stream"
)

// verdict is the outcome of an undo in the making, by what was observed.
type verdict struct {
	*undo
	activities.Undone
	// anew, programs, stays and lost say why the outcome is no better.
	anew, programs, stays, lost bool
}

// lower makes the outcome at most this one: restored, compensated, residue, unknown.
func (v *verdict) lower(to activities.Outcome, losses ...string) {
	order := []activities.Outcome{activities.Restored, activities.Compensated, activities.Residue, activities.Unknown}
	if slices.Index(order, to) > slices.Index(order, v.Outcome) {
		v.Outcome = to
	}
	v.Losses = append(v.Losses, losses...)
}

// compare adds how the state differs from the one before, and what no state tells.
func (v *verdict) compare(ctx context.Context, now *state.State) error {
	left, done, err := v.records.ReadLeft(ctx, v.ws.Token)
	if err != nil {
		return err
	}
	for _, line := range v.before.Changes(now) {
		v.addDifference(line, left, now)
	}
	for _, address := range v.record.Drifted {
		v.lower(activities.Compensated, address+lostDrift)
	}
	begun, err := salvage.ListBegun(v.ws.Token)
	if err != nil {
		return err
	}
	for _, a := range v.record.Planned {
		if len(a.Changed) > 0 && (done || slices.Contains(begun, a.Address)) {
			v.stays = true
			v.lower(activities.Residue,
				fmt.Sprintf("%s: it is forgotten again; what the step changed in the imported object (%s) stays",
					a.Address, strings.Join(a.Changed, ", ")))
		}
	}
	return nil
}

// addDifference adds a difference from the state before.
func (v *verdict) addDifference(line string, left, now *state.State) {
	kind, what, _ := strings.Cut(line, " ")
	address := what
	if at := strings.LastIndex(what, " ["); at > 0 {
		address = what[:at] // the names of attributes follow
	}
	switch kind {
	case "~":
		if names := now.StayedAs(v.before, left, address, v.leftAt(address)); len(names) > 0 {
			v.stays = true
			v.lower(activities.Residue,
				fmt.Sprintf(
					"%s: %v stays as the step left it: the previous configuration does not put that back (ignore_changes, for "+
						"example)", address, names))
			return
		}
		v.anew = true
		says := ": differs from before"
		if slices.Contains(strings.Fields(strings.Trim(what[len(address):], " []")), "id") {
			says += "; the data inside a replaced or destroyed object did not come back"
		}
		v.lower(activities.Compensated, what+says)
	case "+":
		v.stays = true
		v.lower(activities.Residue, what+": did not exist before, and is still there")
	case "-":
		v.anew = true
		v.lower(activities.Compensated, what+": existed before")
	}
}

// leftAt is where the step left the object that stood at an address.
func (v *verdict) leftAt(address string) string {
	for _, a := range v.record.Planned {
		if a.Origin() == address {
			return a.Address
		}
	}
	return address
}

func (v *verdict) addPrograms(ran []string) {
	if len(ran) > 0 {
		v.programs = true
		v.lower(activities.Compensated, ran...)
	}
}

// addRemains adds what the previous configuration would still change, and what provisioners
// refused.
func (v *verdict) addRemains(remains, refused []string) {
	for _, address := range remains {
		v.stays = true
		v.lower(activities.Residue, address+": still differs from the previous configuration")
	}
	if len(refused) > 0 {
		v.stays = true
		v.lower(activities.Residue, refused...)
	}
}

// addLost adds creations that no state tells of.
func (v *verdict) addLost(lost []stream.Creation) {
	for _, c := range lost {
		v.lost = true
		switch c.Fate {
		case stream.Errored:
			v.lower(activities.Residue,
				c.Address+": its creation failed and no id was reported; whatever the provider had made by then still exists")
		case stream.Completed:
			v.lower(activities.Residue,
				fmt.Sprintf("%s: it was made with the id %q, no state holds it, and its provider cannot import it", c.Address,
					c.ID))
		default:
			v.lower(activities.Unknown,
				c.Address+": it was in flight when terraform was killed; whether it was made cannot be known")
		}
	}
}

// told is the outcome with what was observed.
func (v *verdict) told() activities.Undone {
	switch {
	case v.lost:
		v.Observed = "the state is restored, but may lack objects that the step made"
	case v.stays:
		v.Observed = "the undo is done as far as the previous configuration goes; something of the step remains"
	case v.anew:
		v.Observed = "the previous configuration is applied; objects that the step replaced or destroyed are new ones"
	default:
		v.Observed = fmt.Sprintf("the state says the same as before: %s, their attributes and the outputs",
			activities.CountOf(len(v.before.Managed()), "object"))
	}
	if slices.ContainsFunc(v.record.Planned, plan.Action.Makes) {
		v.Observed += "; whether providers have destroyed what they say they have was not looked at"
	}
	if v.programs && v.Outcome == activities.Compensated && !v.anew {
		v.Observed += "; what programs have changed outside of Terraform was not looked at"
	}
	return v.Undone
}
