// Package stream reads what terraform prints with -json while it plans and applies.
package stream

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"strings"
)

// Event is a line of output of `terraform plan -json` or `apply -json`.
type Event struct {
	Type string `json:"type"`
	// Change is set in planned_change and resource_drift.
	Change *struct {
		Resource Resource `json:"resource"`
		Action   string   `json:"action"`
	} `json:"change"`
	// Hook is set in apply_start, apply_progress, apply_complete and apply_errored, and without an
	// action in refresh_start, refresh_complete, provision_start and provision_errored.
	Hook *struct {
		Resource Resource `json:"resource"`
		Action   string   `json:"action"`
		// Provisioner is its kind.
		Provisioner string `json:"provisioner"`
		IDKey       string `json:"id_key"`
		ID          string `json:"id_value"`
		// Elapsed is in seconds.
		Elapsed float64 `json:"elapsed_seconds"`
	} `json:"hook"`
	Diagnostic *Diagnostic `json:"diagnostic"`
	Outputs    map[string]struct {
		Action string `json:"action"`
	} `json:"outputs"`
	Changes *Counts `json:"changes"`
}

type Resource struct {
	Address string `json:"addr"`
}

type Diagnostic struct {
	Severity string `json:"severity"`
	Summary  string `json:"summary"`
	Detail   string `json:"detail"`
	Address  string `json:"address"`
}

// Counts are how many objects a run has changed, or would.
type Counts struct {
	Add       int    `json:"add"`
	Change    int    `json:"change"`
	Remove    int    `json:"remove"`
	Import    int    `json:"import"`
	Operation string `json:"operation"`
}

// PlannedChange is one action of a plan.
type PlannedChange struct{ Address, Action string }

// Provisioning is a provisioner that has run.
type Provisioning struct {
	Address string `json:"address"`
	Kind    string `json:"kind"`
	When    string `json:"when"`
}

// Creation is an object that a run began to make.
type Creation struct {
	Address string `json:"address"`
	// ID is set if terraform has reported it.
	ID string `json:"id,omitempty"`
	// Fate is how far it got.
	Fate CreationFate `json:"fate"`
}

type CreationFate string

const (
	InFlight  CreationFate = "in flight" // begun; nothing more was reported
	Errored   CreationFate = "failed"    // the provider reported an error
	Completed CreationFate = "made"      // terraform reported it done
)

// Report is the output of a run.
type Report struct {
	Planned []PlannedChange
	// Drifted are the addresses that the refresh found changed.
	Drifted []string
	// Begun: at least one object was touched.
	Begun bool
	// Created are the creations, in the order in which they began.
	Created []Creation
	// Refused are the addresses of objects whose destroy-time provisioners failed.
	Refused []string
	// Updating are other actions that began and never completed.
	Updating []string
	// Outputs: the value of an output changes.
	Outputs bool
	Counts  Counts
	Errors  []Diagnostic
}

// ReadReport reads the output of a run.
func ReadReport(path string) (r Report, err error) {
	return r, ReadEvents(path, r.addEvent)
}

// ReadEvents reads the event stream of a run, if there is one; the last line may be incomplete.
func ReadEvents(path string, add func(Event)) error {
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReader(f)
	for {
		line, err := in.ReadBytes('\n')
		var e Event
		if json.Unmarshal(line, &e) == nil {
			add(e)
		}
		if err != nil {
			return nil
		}
	}
}

func (r *Report) addEvent(e Event) {
	switch e.Type {
	case "planned_change":
		r.Planned = append(r.Planned, PlannedChange{e.Change.Resource.Address, e.Change.Action})
	case "resource_drift":
		r.Drifted = append(r.Drifted, e.Change.Resource.Address)
	case "apply_start":
		r.Begun = true
		if address := e.Hook.Resource.Address; e.Hook.Action == "create" {
			r.Created = append(r.Created, Creation{Address: address, Fate: InFlight})
		} else {
			r.Updating = append(r.Updating, address)
		}
	case "provision_errored":
		if slices.Contains(r.Updating, e.Hook.Resource.Address) {
			r.Refused = append(r.Refused, e.Hook.Resource.Address)
		}
	case "apply_complete", "apply_errored":
		r.addEnd(e)
	case "outputs":
		for _, o := range e.Outputs {
			r.Outputs = r.Outputs || o.Action != "" && o.Action != "noop"
		}
	case "change_summary":
		r.Counts = *e.Changes
	case "diagnostic":
		if e.Diagnostic.Severity == "error" {
			r.Errors = append(r.Errors, *e.Diagnostic)
		}
	}
}

func (r *Report) addEnd(e Event) {
	address, fate := e.Hook.Resource.Address, Completed
	if e.Type == "apply_errored" {
		fate = Errored
	}
	if e.Hook.Action != "create" {
		if fate == Completed {
			r.Updating = slices.DeleteFunc(r.Updating, func(a string) bool { return a == address })
		}
		return
	}
	for i := range r.Created {
		if r.Created[i].Address == address && r.Created[i].Fate == InFlight {
			r.Created[i].Fate, r.Created[i].ID = fate, e.Hook.ID
		}
	}
}

// IsUnchanged reports whether a plan would do nothing.
func (r Report) IsUnchanged() bool { return len(r.Actions()) == 0 && !r.Outputs }

// Actions are the planned ones that change something.
func (r Report) Actions() []PlannedChange {
	return slices.DeleteFunc(slices.Clone(r.Planned), func(p PlannedChange) bool {
		return p.Action == "noop" || p.Action == "read"
	})
}

// keeping are the actions after which the present object is still there and in the state; any other
// may end it.
var keeping = []string{"noop", "read", "create", "update", "move", "import"}

// LostAddresses are the addresses whose present object a plan would end, sorted: terraform lists
// them in any order.
func (r Report) LostAddresses() []string {
	var lost []string
	for _, p := range r.Planned {
		if !slices.Contains(keeping, p.Action) {
			lost = append(lost, p.Address)
		}
	}
	slices.Sort(lost)
	return lost
}

// Failure is the errors in one text.
func (r Report) Failure() string {
	var lines []string
	for _, d := range r.Errors {
		line := d.Summary
		if d.Address != "" {
			line = d.Address + ": " + line
		}
		if d.Detail != "" {
			line += ": " + d.Detail
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
