package terraform

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"strings"
)

// event is a line of output of `terraform plan -json` or `apply -json`.
type event struct {
	Type string `json:"type"`
	// Change is set in planned_change and resource_drift.
	Change *struct {
		Resource eventResource `json:"resource"`
		Action   string        `json:"action"`
	} `json:"change"`
	// Hook is set in apply_start, apply_complete and apply_errored, and without an action in provision_start and
	// provision_errored.
	Hook *struct {
		Resource eventResource `json:"resource"`
		Action   string        `json:"action"`
		IDKey    string        `json:"id_key"`
		ID       string        `json:"id_value"`
	} `json:"hook"`
	Diagnostic *diagnostic `json:"diagnostic"`
	Outputs    map[string]struct {
		Action string `json:"action"`
	} `json:"outputs"`
	Changes *counts `json:"changes"`
}

type eventResource struct {
	Address string `json:"addr"`
}

type diagnostic struct {
	Severity string `json:"severity"`
	Summary  string `json:"summary"`
	Detail   string `json:"detail"`
	Address  string `json:"address"`
}

// counts are how many objects a run has changed, or would.
type counts struct {
	Add       int    `json:"add"`
	Change    int    `json:"change"`
	Remove    int    `json:"remove"`
	Operation string `json:"operation"`
}

// plannedChange is one action of a plan.
type plannedChange struct{ Address, Action string }

// creation is an object that a run began to make.
type creation struct {
	Address string `json:"address"`
	// ID is set if terraform has reported it.
	ID string `json:"id,omitempty"`
	// Fate is how far it got.
	Fate creationFate `json:"fate"`
}

type creationFate string

const (
	inFlight  creationFate = "in flight" // begun; nothing more was reported
	errored   creationFate = "failed"    // the provider reported an error
	completed creationFate = "made"      // terraform reported it done
)

// report is the output of a run.
type report struct {
	Planned []plannedChange
	// Drifted are the addresses that the refresh found changed.
	Drifted []string
	// Begun: at least one object was touched.
	Begun bool
	// Created are the creations, in the order in which they began.
	Created []creation
	// Refused are the addresses of objects whose destroy-time provisioners failed.
	Refused []string
	// Updating are other actions that began and never completed.
	Updating []string
	// Outputs: the value of an output changes.
	Outputs bool
	Counts  counts
	Errors  []diagnostic
}

// readReport reads the output of a run.
func readReport(path string) (r report, err error) {
	return r, readEvents(path, r.addEvent)
}

// readEvents reads the event stream of a run, if there is one; the last line may be incomplete.
func readEvents(path string, add func(event)) error {
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
		var e event
		if json.Unmarshal(line, &e) == nil {
			add(e)
		}
		if err != nil {
			return nil
		}
	}
}

func (r *report) addEvent(e event) {
	switch e.Type {
	case "planned_change":
		r.Planned = append(r.Planned, plannedChange{e.Change.Resource.Address, e.Change.Action})
	case "resource_drift":
		r.Drifted = append(r.Drifted, e.Change.Resource.Address)
	case "apply_start":
		r.Begun = true
		if address := e.Hook.Resource.Address; e.Hook.Action == "create" {
			r.Created = append(r.Created, creation{Address: address, Fate: inFlight})
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

func (r *report) addEnd(e event) {
	address, fate := e.Hook.Resource.Address, completed
	if e.Type == "apply_errored" {
		fate = errored
	}
	if e.Hook.Action != "create" {
		if fate == completed {
			r.Updating = slices.DeleteFunc(r.Updating, func(a string) bool { return a == address })
		}
		return
	}
	for i := range r.Created {
		if r.Created[i].Address == address && r.Created[i].Fate == inFlight {
			r.Created[i].Fate, r.Created[i].ID = fate, e.Hook.ID
		}
	}
}

// unchanged reports whether a plan would do nothing.
func (r report) unchanged() bool { return len(r.actions()) == 0 && !r.Outputs }

// actions are the planned ones that change something.
func (r report) actions() []plannedChange {
	return slices.DeleteFunc(slices.Clone(r.Planned), func(p plannedChange) bool {
		return p.Action == "noop" || p.Action == "read" || p.Action == "move"
	})
}

// onlyAdds reports whether nothing from before would change.
func (r report) onlyAdds() bool {
	for _, p := range r.actions() {
		if p.Action != "create" {
			return false
		}
	}
	return !r.Outputs
}

// lostAddresses are the addresses whose present object a plan would end, sorted: terraform lists them in any order.
func (r report) lostAddresses() []string {
	var lost []string
	for _, p := range r.Planned {
		if p.Action == "delete" || p.Action == "replace" || p.Action == "remove" || p.Action == "forget" {
			lost = append(lost, p.Address)
		}
	}
	slices.Sort(lost)
	return lost
}

// failure is the errors in one text.
func (r report) failure() string {
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
