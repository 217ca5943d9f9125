package sessions

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// redos is what a session needs in order to redo what it has rolled back.
type redos struct {
	written  map[string]json.RawMessage // the steps as their agent wrote them, by id; only looked up
	parts    []protocol.TakenBack       // the oldest first
	released bool                       // some are no longer kept
}

// maxKeptSteps bounds the steps that are carried over as they were written, with what was taken
// back.
const maxKeptSteps = 256 << 10

// keep remembers steps as they were written, each for the host that it was compiled for.
func (d *redos) keep(written json.RawMessage, compiled []task.Step) {
	var all []map[string]json.RawMessage
	_ = json.Unmarshal(written, &all) // it was compiled
	hosts := map[string]string{}
	for _, s := range compiled {
		hosts[s.ID] = s.Place.Host
	}
	for _, fields := range all {
		var id string
		_ = json.Unmarshal(fields["id"], &id)
		if host := hosts[id]; host != "" && fields["on"] == nil {
			fields["on"], _ = json.Marshal(host)
		}
		d.written[id], _ = json.Marshal(fields)
	}
}

// correct gives a step the parameters that a person has written.
func (d *redos) correct(id string, with json.RawMessage) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(d.written[id], &fields) == nil && fields != nil {
		fields["with"] = with
		d.written[id], _ = json.Marshal(fields)
	}
}

// add remembers what a rollback has taken back. A step that was done again since an earlier one
// belongs to this one, and so does the rest of a branch of the same name.
func (d *redos) add(part protocol.TakenBack) {
	isHere := map[string]bool{}
	for _, s := range part.Steps {
		isHere[s.ID] = true
	}
	var parts []protocol.TakenBack
	for _, p := range d.parts {
		p.Steps = slices.DeleteFunc(slices.Clone(p.Steps), func(s protocol.TakenStep) bool { return isHere[s.ID] })
		switch {
		case len(p.Steps) == 0:
		case part.Branch != nil && p.Branch.IsNamed(part.Branch.Name):
			part.Steps = append(part.Steps, p.Steps...)
		default:
			parts = append(parts, p)
		}
	}
	if len(part.Steps) > 0 {
		parts = append(parts, part)
	}
	d.parts = parts
}

// choose notes that a branch stands, or part of it.
func (d *redos) choose(part protocol.TakenBack) {
	for i := range d.parts {
		if d.parts[i].Request == part.Request {
			d.parts[i].Chosen = true
		}
	}
}

// resumeRedos restores what the previous run carried over.
func (d *redos) resume(c protocol.SessionCarry) {
	d.parts, d.released = c.TakenBack, c.Released
	maps.Copy(d.written, c.Written)
}
