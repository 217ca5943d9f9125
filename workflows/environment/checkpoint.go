package environment

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

// Trigger is what made somebody take a checkpoint.
type Trigger string

// The triggers.
const (
	Deploy      Trigger = "deploy"
	Manual      Trigger = "manual"
	Agent       Trigger = "agent"
	PreRollback Trigger = "pre-rollback"
)

// Triggers are those that a person or an agent may name.
var Triggers = []string{string(Deploy), string(Manual), string(Agent)}

// Checkpoint is one checkpoint of an environment.
type Checkpoint struct {
	ID          string  `json:"checkpoint_id"`
	Environment string  `json:"environment"`
	Trigger     Trigger `json:"trigger"`
	Notes       string  `json:"notes,omitempty"`
	// Task is the task that has taken it.
	Task string `json:"task"`
	// Quiesced: the unit was stopped, or paused, as long as the parts were captured.
	Quiesced bool `json:"quiesced"`
	// Healthy is whether the unit was, before it was stopped; nil where it could not be asked. A
	// rollback to what was not healthy is not undone because it is not.
	Healthy *bool `json:"healthy,omitempty"`
	Pinned  bool  `json:"pinned"`
	// NeededBy are the steps that have taken it, or whose undo needs it. It stays until their records
	// are released.
	NeededBy []Step `json:"needed_by,omitempty"`
	// Bytes are those of the parts; what parts of several checkpoints have in common is kept once.
	Bytes int64 `json:"size_bytes"`
	// RolledBackTo is where the rollback went whose safety checkpoint it is, which was taken at
	// RolledBackToCreated. PutBack are the parts that it put back, Past are the tasks whose changes
	// it has taken back, and MorePast is how many more there are. Own is what it has taken back of
	// the task that asked for it.
	RolledBackTo        string      `json:"rolled_back_to,omitempty"`
	RolledBackToCreated time.Time   `json:"rolled_back_to_created_at,omitzero"`
	PutBack             []string    `json:"put_back,omitempty"`
	Past                []TaskWrote `json:"past,omitempty"`
	MorePast            int         `json:"more_past,omitempty"`
	Own                 *TaskWrote  `json:"own,omitempty"`

	Created time.Time  `json:"created_at"`
	Parts   []KeptPart `json:"parts"`
}

// Step is a step of a task, which has taken a checkpoint or gone back to one.
type Step struct {
	Token string `json:"token"`
	Task  string `json:"task"`
	ID    string `json:"step"`
}

// IsKept reports whether a checkpoint stays whatever the retention says.
func (c Checkpoint) IsKept() bool { return c.Pinned || len(c.NeededBy) > 0 }

// Only is the checkpoint with some of its parts; with all if none are named.
func (c Checkpoint) Only(parts []string) Checkpoint {
	if len(parts) > 0 {
		c.Parts = slices.DeleteFunc(slices.Clone(c.Parts), func(p KeptPart) bool { return !slices.Contains(parts, p.Name) })
	}
	return c
}

// KeptPart is what a checkpoint has of a part.
type KeptPart struct {
	Name     string `json:"part"`
	Kind     string `json:"kind"`
	Resource string `json:"resource"`
	// On is the host that has it; empty: that of the environment.
	On string `json:"on,omitempty"`
	// Snapshot is the name by which a step puts it back.
	Snapshot string `json:"snapshot_id"`
	Bytes    int64  `json:"size_bytes"`
	// Ref is the commit of a git repository.
	Ref string `json:"ref,omitempty"`
}

// Compared is what differs in a part.
type Compared struct {
	Name     string `json:"part"`
	Kind     string `json:"kind"`
	Resource string `json:"resource"`
	// Changed is how many paths, objects and tables, or bytes of a disk, differ; Diff has a line for each, as far as
	// they can be shown.
	Changed int64 `json:"changed"`
	// Times are how many of these are folders of which only the time differs.
	Times int64  `json:"times,omitempty"`
	Diff  string `json:"diff,omitempty"`
	// Digest is that of all that it was compared with.
	Digest string `json:"digest"`
}

// Comparison is how a checkpoint and another one, or what is there now, differ.
type Comparison struct {
	From string `json:"from"`
	// To is the other checkpoint; empty: what was there when it was looked at.
	To    string     `json:"to,omitempty"`
	Parts []Compared `json:"parts"`
	// Left are parts of From that are not compared: the other, or the environment, has none like them.
	Left []string `json:"left,omitempty"`
}

// Stored is a checkpoint as its environment stores it.
type Stored struct {
	Checkpoint

	// Entries are those of the steps that made it: their records are held.
	Entries []activities.Entry `json:"entries"`
}

// On are the entries of the steps that ran on a host.
func (s Stored) On(host string) (entries []activities.Entry) {
	for _, e := range s.Entries {
		if e.Place.Host == host {
			entries = append(entries, e)
		}
	}
	return entries
}

// Others are the hosts, without the one of the environment, that have some of it.
func (s Stored) Others(home string) (hosts []string) {
	for _, e := range s.Entries {
		if on := e.Place.Host; on != home && !slices.Contains(hosts, on) {
			hosts = append(hosts, on)
		}
	}
	slices.Sort(hosts)
	return hosts
}

// Done is a step of a finished task.
type Done struct {
	Entry   activities.Entry  `json:"entry"`
	Result  activities.Result `json:"result"`
	Settled bool              `json:"settled,omitempty"` // it was undone
	Began   time.Time         `json:"began"`
	Ended   time.Time         `json:"ended"`
}

// Find reads the checkpoint that a task has taken from the steps that are done.
func (d Document) Find(id, task string, trigger Trigger, steps []Done) (s Stored, err error) {
	s.Checkpoint = Checkpoint{ID: id, Environment: d.Name, Trigger: trigger, Task: task}
	for _, name := range d.partNames() {
		i := slices.IndexFunc(steps, func(done Done) bool { return done.Entry.Step == keepPrefix+name && !done.Settled })
		if i < 0 {
			return s, fmt.Errorf("task %s has not kept the part %s", task, name)
		}
		done := steps[i]
		k, resource := d.Parts[name].kindOf()
		outputs := done.Result.Outputs
		part := KeptPart{Name: name, Kind: k.name, Resource: resource, On: d.Parts[name].On,
			Bytes: wholeNumber(outputs["bytes"])}
		part.Snapshot, _ = outputs["checkpoint"].(string)
		part.Ref, _ = outputs["commit"].(string)
		s.Parts, s.Entries = append(s.Parts, part), append(s.Entries, done.Entry)
		s.Bytes += part.Bytes
		if done.Ended.After(s.Created) {
			s.Created = done.Ended
		}
	}
	for _, done := range steps {
		if asked, _ := done.Result.Outputs["asked"].(bool); asked && done.Entry.Step == beforeStep {
			healthy, _ := done.Result.Outputs["healthy"].(bool)
			s.Healthy = &healthy
		}
	}
	s.Quiesced = isQuiesced(steps)
	return s, nil
}

// isQuiesced reports whether the unit was stopped or paused, and stayed so until it was let go on: one
// that was found to run then has been let go on by somebody else.
func isQuiesced(steps []Done) (quiesced bool) {
	for _, done := range steps {
		switch ran, _ := done.Result.Outputs["ran"].(bool); done.Entry.Step {
		case stopStep:
			quiesced = true
		case startStep:
			if ran {
				return false
			}
		}
	}
	return quiesced
}

// wholeNumber is an output that counts: a json.Number where a history was read.
func wholeNumber(v any) int64 {
	var n int64
	_, _ = fmt.Sscan(fmt.Sprint(v), &n)
	return n
}

// Stage is a stage of a rollback.
type Stage string

// The stages in their order.
const (
	Verify                Stage = "verify"
	StopUnit              Stage = "stop-unit"
	SafetyCheckpoint      Stage = "safety-checkpoint"
	RestoreFiles          Stage = "restore-files"
	RestoreDisks          Stage = "restore-disks"
	RestoreDatabases      Stage = "restore-databases"
	RestoreInfrastructure Stage = "restore-infrastructure"
	StartUnit             Stage = "start-unit"
	HealthCheck           Stage = "health-check"
)

var stages = []Stage{Verify, StopUnit, SafetyCheckpoint, RestoreFiles, RestoreDisks, RestoreDatabases,
	RestoreInfrastructure, StartUnit, HealthCheck}

// Passed is a stage that a rollback has gone through.
type Passed struct {
	Stage Stage `json:"stage"`
	// Status is ok, failed, or warning: it is done, and its notes say what is not as it should be.
	Status string `json:"status"`
	// At is when it ended, and Seconds how long it took.
	At      time.Time `json:"ts"`
	Seconds float64   `json:"seconds"`
	// Parts are those that it was about.
	Parts []string `json:"parts,omitempty"`
	Notes string   `json:"notes,omitempty"`
}

// stageOf is the stage of a step, and the part that it is about.
func (d Document) stageOf(id string) (s Stage, part string) {
	for prefix, stage := range map[string]Stage{verifyPrefix: Verify, keepPrefix: SafetyCheckpoint} {
		if name, is := strings.CutPrefix(id, prefix); is {
			return stage, name
		}
	}
	if name, is := strings.CutPrefix(id, restorePrefix); is {
		return kindNamed(d.Parts[name].Kind()).stage, name
	}
	return map[string]Stage{stopStep: StopUnit, startStep: StartUnit, healthStep: HealthCheck}[id], ""
}

// Stages are the stages that a rollback has gone through.
func (d Document) Stages(steps []Done) (all []Passed) {
	for _, stage := range stages {
		p := Passed{Stage: stage, Status: "ok"}
		var began time.Time
		var notes []string
		for _, s := range steps {
			is, part := d.stageOf(s.Entry.Step)
			if is != stage {
				continue
			}
			if part != "" {
				p.Parts = append(p.Parts, part)
			}
			if began.IsZero() || s.Began.Before(began) {
				began = s.Began
			}
			if s.Ended.After(p.At) {
				p.At = s.Ended
			}
			notes = append(notes, s.Result.Summary)
			if healthy, told := s.Result.Outputs["healthy"].(bool); told && !healthy {
				p.Status = "warning"
			}
		}
		if began.IsZero() {
			continue
		}
		p.Seconds, p.Notes = p.At.Sub(began).Seconds(), strings.Join(notes, "; ")
		all = append(all, p)
	}
	return all
}

// PassedStages are the first stages of a rollback to a checkpoint, as far as all their steps are
// done, while it is under way.
func (d Document) PassedStages(to Checkpoint, steps []Done) []Passed {
	left := map[Stage]int{}
	for _, s := range d.draftRollback("", to, "").file.Steps {
		stage, _ := d.stageOf(s.ID)
		left[stage]++
	}
	for _, s := range steps {
		stage, _ := d.stageOf(s.Entry.Step)
		left[stage]--
	}
	over := stages
	if i := slices.IndexFunc(stages, func(s Stage) bool { return left[s] > 0 }); i >= 0 {
		over = stages[:i]
	}
	return slices.DeleteFunc(d.Stages(steps), func(p Passed) bool { return !slices.Contains(over, p.Stage) })
}

// RolledBack is the answer of a rollback.
type RolledBack struct {
	To Checkpoint `json:"rolled_back_to"`
	// Safety is how the environment was before: roll back to it to go forward again.
	Safety Checkpoint `json:"safety_checkpoint"`
	Stages []Passed   `json:"stages"`
	// Past are the tasks whose changes it has taken back, and MorePast is how many more there are.
	Past     []TaskWrote `json:"past,omitempty"`
	MorePast int         `json:"more_past,omitempty"`
	// Notes say what the rollback has not touched.
	Notes []string `json:"notes,omitempty"`
}

// Untouched says which parts a rollback to a checkpoint leaves as they are.
func (d Document) Untouched(to Checkpoint) (notes []string) {
	kept := map[string]bool{}
	for _, p := range to.Parts {
		kept[p.Name] = d.Has(p)
		if _, there := d.Parts[p.Name]; !there {
			notes = append(notes,
				fmt.Sprintf("part %s (%s %s) is in the checkpoint, and no longer in the environment: it is left as it is",
					p.Name, p.Kind, p.Resource))
		}
	}
	for _, name := range d.partNames() {
		if p := d.Parts[name]; !kept[name] {
			notes = append(notes, fmt.Sprintf("part %s (%s %s) is not in the checkpoint: it is left as it is", name, p.Kind(),
				p.Resource()))
		}
	}
	return notes
}

// IsDone reports whether a task of an environment has done what it is for: a step that reads ahead
// may fail.
func IsDone(r compensations.Report) bool {
	return r.Status == compensations.Committed || r.Status == compensations.Partly
}
