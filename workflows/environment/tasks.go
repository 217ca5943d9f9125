package environment

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The prefixes of the ids of steps that are about a part. What follows is its name.
const (
	keepPrefix    = "keep-"
	aheadPrefix   = "ahead-"
	verifyPrefix  = "verify-"
	restorePrefix = "restore-"
	comparePrefix = "compare-"
)

// The ids of the steps that are about the unit.
const (
	beforeStep = "was-healthy"
	stopStep   = "stop"
	startStep  = "start"
	healthStep = "health"
)

// pastStep is the id of the step of a rollback that looks for tasks right before the unit is stopped.
const pastStep = "tasks"

// FieldOf is the field of the document that a step is about.
func FieldOf(step string) string {
	for _, prefix := range []string{keepPrefix, aheadPrefix, verifyPrefix, restorePrefix, comparePrefix} {
		if name, is := strings.CutPrefix(step, prefix); is {
			return "parts." + name
		}
	}
	if slices.Contains([]string{beforeStep, stopStep, startStep, healthStep}, step) {
		return "unit"
	}
	if step == pastStep {
		return "parts"
	}
	return "step " + step
}

// taskFile is a task file, as far as one of these tasks needs it.
type taskFile struct {
	Name   string `json:"name"`
	Agent  string `json:"agent,omitempty"`
	Unwind string `json:"unwind"`
	Pinned bool   `json:"pinned"`
	Steps  []step `json:"steps"`
}

type step struct {
	ID        string         `json:"id"`
	Uses      string         `json:"uses"`
	With      map[string]any `json:"with"`
	Needs     []string       `json:"needs"`
	On        string         `json:"on,omitempty"`
	OnFailure string         `json:"on_failure,omitempty"`
	Timeout   string         `json:"timeout,omitempty"`
	Gate      string         `json:"gate,omitempty"`
	Undo      *undo          `json:"undo,omitempty"`
}

type undo struct {
	Drift string `json:"drift"`
}

// overwrite is for what is put back: what the unit has done to it until it was found not to work
// goes with the rollback that failed.
var overwrite = &undo{Drift: "force"}

// longStep bounds an attempt that reads or writes whole parts.
const longStep = "6h"

// draft is a task that is being written.
type draft struct {
	Document
	host string
	file taskFile
	// mayMiss: containers may be gone, as what is put back makes them again.
	mayMiss bool
}

func (d Document) newDraft(host, agent, format string, args ...any) *draft {
	return &draft{Document: d, host: host,
		file: taskFile{Name: fmt.Sprintf(format, args...), Agent: agent, Unwind: "parallel", Pinned: true}}
}

func (t *draft) add(s step) string {
	s.On = cmp.Or(s.On, t.host)
	if s.Needs == nil {
		s.Needs = []string{}
	}
	t.file.Steps = append(t.file.Steps, s)
	return s.ID
}

func (t *draft) json() json.RawMessage {
	raw, err := json.Marshal(t.file)
	if err != nil {
		panic(err) // texts and truth values
	}
	return raw
}

// capture keeps all parts beside each other, and returns the ids of these steps.
func (t *draft) capture(prefix, onFailure string, needs []string) (ids []string) {
	for _, name := range t.partNames() {
		p := t.Parts[name]
		k, resource := p.kindOf()
		if prefix == aheadPrefix && k.stage != RestoreFiles {
			continue // a database or a disk has no store that would keep what has not changed
		}
		with := map[string]any{k.param: resource}
		maps.Copy(with, k.with)
		if p.Ignored {
			with["ignored"] = true
		}
		if p.Memory {
			with["memory"] = true
		}
		if t.mayMiss && p.Container != "" {
			with["absent"] = true
		}
		ids = append(ids, t.add(step{ID: prefix + name, Uses: k.capture, With: with, Needs: needs, OnFailure: onFailure,
			On: p.On, Timeout: longStep}))
	}
	return ids
}

// ask asks the unit, if there is one, whether it is healthy before anything is done.
func (t *draft) ask() []string {
	if t.Unit == "" {
		return nil
	}
	return []string{t.add(step{ID: beforeStep, Uses: "unit.health", With: map[string]any{"unit": t.Unit, "must": false}})}
}

// readAhead reads what changes little before the unit, if there is one, is stopped: from then on, only
// what has changed since has to be.
func (t *draft) readAhead() []string {
	if t.Unit == "" {
		return nil
	}
	return t.capture(aheadPrefix, "continue", nil)
}

// stop stops the unit, if there is one to stop, once needs are done.
func (t *draft) stop(needs []string) []string {
	if t.Stops() == "" {
		return needs
	}
	return []string{t.add(step{ID: stopStep, Uses: "unit.stop", With: t.unit(), Needs: needs})}
}

// unit names the unit for a step that stops or starts it.
func (t *draft) unit() map[string]any {
	with := map[string]any{"unit": t.Unit}
	if t.mayMiss {
		with["absent"] = true
	}
	return with
}

// CheckpointTask is the task that takes a checkpoint: all parts beside each other, while the unit is
// quiesced.
func (d Document) CheckpointTask(host, id, agent string) json.RawMessage {
	t := d.newDraft(host, agent, "take checkpoint %s of environment %s", id, d.Name)
	before := t.ask()
	quiesces := t.Quiesced() != ""
	hold, letGo := "unit.stop", "unit.start"
	if t.Quiesce == PauseUnitFor {
		hold, letGo = "unit.pause", "unit.resume"
	}
	if quiesces {
		before = []string{t.add(step{ID: stopStep, Uses: hold, With: t.unit(), Needs: append(before, t.readAhead()...)})}
	}
	after := t.capture(keepPrefix, "", before)
	if quiesces {
		after = []string{t.add(step{ID: startStep, Uses: letGo, Needs: after,
			With: map[string]any{"unit": t.Unit, "if": "${{ steps." + stopStep + ".outputs.ran }}"}})}
	}
	for _, name := range t.partNames() {
		if k, resource := t.Parts[name].kindOf(); k.readsLater {
			t.add(step{ID: verifyPrefix + name, Uses: k.verify, On: t.Parts[name].On, Needs: after, Timeout: longStep,
				With: map[string]any{k.param: resource, "checkpoint": "${{ steps." + keepPrefix + name + ".outputs.checkpoint }}"}})
		}
	}
	return t.json()
}

// RollbackTask is the task that puts all parts back to a checkpoint of the environment. It takes
// the safety checkpoint first, once the unit is stopped. Parts that only one of the two has are not
// put back.
func (d Document) RollbackTask(host string, to Checkpoint, agent string) json.RawMessage {
	return d.draftRollback(host, to, agent).json()
}

func (d Document) draftRollback(host string, to Checkpoint, agent string) *draft {
	t := d.newDraft(host, agent, "roll environment %s back to %s", d.Name, to.ID)
	t.mayMiss = slices.ContainsFunc(to.Parts, func(p KeptPart) bool { return p.Kind == "container" && d.Has(p) })
	var first []string
	for _, p := range to.Parts {
		if k := kindNamed(p.Kind); d.Has(p) {
			first = append(first, t.add(step{ID: verifyPrefix + p.Name, Uses: k.verify, On: p.On, Timeout: longStep,
				With: d.kept(p)}))
		}
	}
	first = append(append(first, t.ask()...), t.readAhead()...)
	look := t.add(step{ID: pastStep, Uses: "environment.tasks", Needs: first, Timeout: "1h",
		With: map[string]any{"environment": d.Name}})
	kept := t.capture(keepPrefix, "", t.stop([]string{look}))
	var back []string
	for _, p := range to.Parts {
		if k := kindNamed(p.Kind); d.Has(p) {
			with := d.kept(p)
			if k.hands != "" {
				with[k.hands] = "${{ steps." + verifyPrefix + p.Name + ".outputs." + k.hands + " }}"
			}
			back = append(back, t.add(step{ID: restorePrefix + p.Name, Uses: k.restore, On: p.On, Needs: kept, Timeout: longStep,
				Gate: k.gate, Undo: overwrite, With: with}))
		}
	}
	if t.Stops() != "" {
		back = []string{t.add(step{ID: startStep, Uses: "unit.start", With: t.unit(), Needs: back})}
	}
	if t.Unit != "" {
		var must any = "${{ steps." + beforeStep + ".outputs.healthy }}"
		if to.Healthy != nil && !*to.Healthy {
			must = false // somebody enters a failed state again
		}
		t.add(step{ID: healthStep, Uses: "unit.health", Needs: append(back, beforeStep), Timeout: "1h",
			With: map[string]any{"unit": t.Unit, "within": cmp.Or(d.Healthy, defaultHealthy.String()), "must": must}})
	}
	return t
}

// kept are the parameters of a step that verifies or puts back what was kept of a part.
func (d Document) kept(p KeptPart) map[string]any {
	with := map[string]any{kindNamed(p.Kind).param: p.Resource, "checkpoint": p.Snapshot}
	if d.Parts[p.Name].Memory {
		with["memory"] = true
	}
	return with
}

// CompareTask is the task that compares a checkpoint with another one, or with what is there now. It
// compares the parts that both have, and the environment still has.
func (d Document) CompareTask(host, id string, from Checkpoint, with *Checkpoint, agent string) json.RawMessage {
	t := d.newDraft(host, agent, "compare %s of environment %s, %s", from.ID, d.Name, id)
	for _, p := range from.Parts {
		other, found := d.counterpart(p, with)
		if !found {
			continue
		}
		k := kindNamed(p.Kind)
		params := map[string]any{k.param: p.Resource, "checkpoint": p.Snapshot}
		if with != nil {
			params["with"] = other.Snapshot
		}
		t.add(step{ID: comparePrefix + p.Name, Uses: k.compare, On: p.On, With: params, Timeout: longStep})
	}
	return t.json()
}

// counterpart is what another checkpoint has of a part; found is false where it has none, or the
// environment has not any more. Without another one it is found in what is there now.
func (d Document) counterpart(p KeptPart, with *Checkpoint) (other KeptPart, found bool) {
	if with == nil || !d.Has(p) {
		return p, d.Has(p)
	}
	i := slices.IndexFunc(with.Parts, func(q KeptPart) bool {
		return p.Name == q.Name && p.Kind == q.Kind && p.Resource == q.Resource && p.On == q.On
	})
	if i < 0 {
		return p, false
	}
	return with.Parts[i], true
}

// NotCompared are the parts of a checkpoint that have no counterpart.
func (d Document) NotCompared(from Checkpoint, with *Checkpoint) (names []string) {
	for _, p := range from.Parts {
		if _, found := d.counterpart(p, with); !found {
			names = append(names, p.Name)
		}
	}
	return names
}

// Compare reads what a task has found to differ from its steps.
func (d Document) Compare(from Checkpoint, steps []Done) (all []Compared) {
	for _, p := range from.Parts {
		for _, done := range steps {
			if done.Entry.Step == comparePrefix+p.Name {
				outputs := done.Result.Outputs
				diff, _ := outputs["diff"].(string)
				digest, _ := outputs["digest"].(string)
				all = append(all, Compared{Name: p.Name, Kind: p.Kind, Resource: p.Resource,
					Changed: wholeNumber(outputs["changed"]), Times: wholeNumber(outputs["times"]), Diff: diff, Digest: digest})
			}
		}
	}
	return all
}

// Has reports whether the document still has what was kept.
func (d Document) Has(p KeptPart) bool {
	now, there := d.Parts[p.Name]
	return there && now.Kind() == p.Kind && now.Resource() == p.Resource && now.On == p.On
}
