package salvage

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/terraform/run"
	"github.com/seed-62bf7108/unwind/activities/terraform/stream"
)

// ListProvisionings are the provisioners that a token's runs have run, in their order.
func ListProvisionings(t *journal.Token) ([]stream.Provisioning, error) {
	all, err := run.List(t)
	if err != nil {
		return nil, err
	}
	var ran []stream.Provisioning
	for _, r := range all {
		var s run.Supervisor
		if _, err := t.Read(r.Doc(run.DocProcess), &s); err != nil {
			return nil, err
		}
		who := "the step"
		if s.Turn != 0 {
			who = "the undo"
		}
		doing := map[string]string{}
		if err := stream.ReadEvents(run.Stdout(r.Folder()), func(e stream.Event) {
			switch e.Type {
			case "apply_start":
				doing[e.Hook.Resource.Address] = map[bool]string{true: " made it",
					false: " destroyed it"}[e.Hook.Action == "create"]
			case "provision_start":
				p := stream.Provisioning{Address: e.Hook.Resource.Address, Kind: e.Hook.Provisioner,
					When: who + doing[e.Hook.Resource.Address]}
				if !slices.Contains(ran, p) {
					ran = append(ran, p)
				}
			}
		}); err != nil {
			return nil, err
		}
	}
	return ran, nil
}

// ListBegun are the addresses of objects that a token's runs began to change, as far as their
// output is still there.
func ListBegun(t *journal.Token) ([]string, error) {
	all, err := run.List(t)
	if err != nil {
		return nil, err
	}
	var begun []string
	for _, r := range all {
		if err := stream.ReadEvents(run.Stdout(r.Folder()), func(e stream.Event) {
			if e.Type == "apply_start" {
				begun = append(begun, e.Hook.Resource.Address)
			}
		}); err != nil {
			return nil, err
		}
	}
	return begun, nil
}

// DescribeProvisionings describes what an undo leaves of the provisioners that ran: a line for each
// object.
func DescribeProvisionings(ran []stream.Provisioning) []string {
	kinds, whens := map[string][]string{}, map[string][]string{}
	for _, p := range ran {
		if !slices.Contains(kinds[p.Address], p.Kind) {
			kinds[p.Address] = append(kinds[p.Address], p.Kind)
		}
		if when := "when " + p.When; !slices.Contains(whens[p.Address], when) {
			whens[p.Address] = append(whens[p.Address], when)
		}
	}
	var lines []string
	for _, address := range slices.Sorted(maps.Keys(kinds)) {
		lines = append(lines,
			fmt.Sprintf(
				"%s: its provisioners (%s) ran %s; what they have changed outside of Terraform was not looked at, and may "+
					"still be there",
				address, strings.Join(kinds[address], ", "), strings.Join(whens[address], " and ")))
	}
	return lines
}
