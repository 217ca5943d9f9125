package activities

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// EntryVersion is the format that this code writes and undoes. An entry of another format is
// parked.
const EntryVersion = 1

// Entry is what the ledger holds of a step: together with the world's journal, all that undoing it
// needs. It is an argument of the step's forward, so it is in the history no later than the event
// that schedules the forward.
type Entry struct {
	// Version is the format of this entry.
	Version int `json:"v"`
	// Seq is its sequence number in the ledger, from 1, in the order in which steps start.
	Seq int `json:"seq"`
	// Step is the step's id.
	Step string `json:"step"`
	// Action is the activity type of the forward, UndoType that of the undo.
	Action   string `json:"action"`
	UndoType string `json:"undo"`
	// Token is the step's stable identity for its world: see NewToken.
	Token string `json:"token"`
	// Place is where the effects and the journal live.
	Place Place `json:"place"`
	// Needs are the ids of the steps that this one builds on: they are undone after it.
	Needs []string `json:"needs,omitempty"`
	// Keys are the resources that the step touches, as its parameters name them; nil may be any in the
	// place.
	Keys []string `json:"keys,omitzero"`
	// Changes are the canonical names of what the step changes, and Reads of what it only reads, as
	// its host has given them, without those that are among Keys: see Touched.
	Changes []string `json:"changes,omitempty"`
	Reads   []string `json:"reads,omitempty"`
	// Params are the parameters that undoing needs: bulky ones as digests, secrets as references.
	Params json.RawMessage `json:"params,omitempty"`
	// UndoOutputs names the outputs of the forward that undoing needs: see Spec.UndoOutputs.
	UndoOutputs []string `json:"undoOutputs,omitempty"`
	// Policy bounds the undo. Zero fields have their defaults: see UndoPolicy.WithDefaults.
	Policy UndoPolicy `json:"policy,omitzero"`
	// Savepoint names the place in the ledger just before this entry.
	Savepoint string `json:"savepoint,omitempty"`
	// Pivot means that once this step is done, nothing up to it is unwound any more.
	Pivot bool `json:"pivot,omitempty"`
	// Commits means that what the step did becomes durable only when its action is told so: see
	// Committer.
	Commits bool `json:"commits,omitempty"`
	// Keep is how long after its task has committed the step can be rolled back. Defaults to
	// DefaultKeep.
	Keep time.Duration `json:"keep,omitempty"`
	// Pinned means that the record stays for all of that time, whatever the limits of retention.
	Pinned bool `json:"pinned,omitempty"`
	// Redoes is the token of an earlier, rolled-back generation of the step, which this forward
	// repeats. A world that has kept what the rollback removed restores exactly that; others run the
	// forward again.
	Redoes string `json:"redoes,omitempty"`
	// Generation says which try of its step this is; absent for the first.
	Generation int `json:"generation,omitempty"`
	// Corrected means that a person has given the step other parameters than its task's document.
	Corrected bool `json:"corrected,omitempty"`
	// Since is when the entry was made: nothing of the step is older. A world whose record is a remote
	// service searches from here on for the effect of a request whose answer was lost. If it is zero,
	// the world has to search everything.
	Since time.Time `json:"since,omitzero"`
}

// DriftPolicy says what an undo does about drift.
type DriftPolicy string

// Ask is the default.
const (
	DriftAsk   DriftPolicy = "ask"   // park it and show it to a person
	DriftForce DriftPolicy = "force" // overwrite exactly what was observed
	DriftSkip  DriftPolicy = "skip"  // leave it, and what the step needs
)

// DefaultKeep is the rollback window of a committed task.
const DefaultKeep = time.Hour

// horizonOf is for how long after the end of its task a change can be undone, at most; 0 if it cannot
// be undone then.
func (f Forward) horizonOf(c Change) time.Duration {
	if f.Entry.Pivot || f.BeforePivot || c.Unchanged {
		return 0
	}
	switch c.Strategy {
	case Snapshot, Transaction, Compensation:
		return cmp.Or(f.Entry.Keep, DefaultKeep)
	}
	return 0
}

// Criticality says what happens if the undo of a step fails for good.
type Criticality string

// Normal is the default.
const (
	Normal      Criticality = "normal" // it is parked for a person
	LowCritical Criticality = "low"    // it is accepted as it is, and reported
)

// UndoPolicy bounds an undo. The zero value is the default policy and takes no space in a history.
type UndoPolicy struct {
	// Attempt bounds one attempt (StartToClose); it must outlast the slowest call of the world.
	// Defaults to 10 minutes.
	Attempt time.Duration `json:"attempt,omitempty"`
	// Within bounds all attempts together before the undo is parked. Defaults to 1 hour.
	Within time.Duration `json:"within,omitempty"`
	// Attempts bounds the number of attempts before the undo is parked. Defaults to no bound except
	// Within.
	Attempts int `json:"attempts,omitempty"`
	// Heartbeat is how long an attempt may go without a heartbeat before it counts as dead. Defaults
	// to 10 seconds.
	Heartbeat time.Duration `json:"heartbeat,omitempty"`
	// HostWait is how long an undo stays on the queue of a host before it shows as waiting for that
	// host. Defaults to the engine's setting.
	HostWait time.Duration `json:"hostWait,omitempty"`
	// Drift says what to do about drift. Defaults to DriftAsk.
	Drift DriftPolicy `json:"drift,omitempty"`
	// Criticality says what happens if the undo fails for good. Defaults to Normal.
	Criticality Criticality `json:"criticality,omitempty"`
}

// The defaults of an UndoPolicy. Entries in histories rely on them: a change needs a new entry
// format.
const (
	DefaultUndoAttempt   = 10 * time.Minute
	DefaultUndoWithin    = time.Hour
	DefaultUndoHeartbeat = 10 * time.Second
)

// WithDefaults returns p with every zero field set to its default, except HostWait, whose default
// is the engine's.
func (p UndoPolicy) WithDefaults() UndoPolicy {
	p.Attempt = cmp.Or(p.Attempt, DefaultUndoAttempt)
	p.Within = cmp.Or(p.Within, DefaultUndoWithin)
	p.Heartbeat = cmp.Or(p.Heartbeat, DefaultUndoHeartbeat)
	p.Drift = cmp.Or(p.Drift, DriftAsk)
	p.Criticality = cmp.Or(p.Criticality, Normal)
	return p
}

// Compact returns p with every field zero that has its default value.
func (p UndoPolicy) Compact() UndoPolicy {
	zero := func(at *time.Duration, preset time.Duration) {
		if *at == preset {
			*at = 0
		}
	}
	zero(&p.Attempt, DefaultUndoAttempt)
	zero(&p.Within, DefaultUndoWithin)
	zero(&p.Heartbeat, DefaultUndoHeartbeat)
	if p.Drift == DriftAsk {
		p.Drift = ""
	}
	if p.Criticality == Normal {
		p.Criticality = ""
	}
	return p
}

// identity tells entries apart whose undos would do something else. The policy only bounds an undo.
func (e Entry) identity() Digest {
	e.Policy = UndoPolicy{}
	raw, _ := json.Marshal(e) // plain data
	return DigestOf(raw)
}

// NewToken returns the identity of a step for its world: the same on every retry and in every
// continued run, but another one for each generation of the step and each task. Its 32 hexadecimal
// digits are safe in a file name, a container name and a key.
func NewToken(firstRunID, step string, generation int) string {
	sum := sha256.Sum256([]byte(firstRunID + "\x00" + step + "\x00" + strconv.Itoa(generation)))
	return hex.EncodeToString(sum[:16])
}

// Digest is "sha256:" and 64 hexadecimal digits.
type Digest string

// DigestOf returns the digest of parts. Each is framed by its length, so that different lists of
// parts do not collide.
func DigestOf(parts ...[]byte) Digest {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:", len(p))
		h.Write(p)
	}
	return Digest("sha256:" + hex.EncodeToString(h.Sum(nil)))
}

// Short returns the first 12 digits, for people.
func (d Digest) Short() string {
	if len(d) < 19 {
		return string(d)
	}
	return string(d[7:19])
}

// Forward is the argument of NAME and NAME.plan.
type Forward struct {
	Entry Entry `json:"entry"`
	Step  Step  `json:"step"`
	// Want is the digest of the change that was planned; empty where it was not. Consent says who has
	// let it be made.
	Want    Digest  `json:"want,omitempty"`
	Consent Consent `json:"consent,omitempty"`
	// Assents are the approvals that its gate has collected. The worker that acts checks them against
	// what its own rules demand.
	Assents []Assent `json:"assents,omitempty"`
	// Agent is who the task is for. It is a claim.
	Agent string `json:"agent,omitempty"`
	// BeforePivot means that a pivot of the task is to follow: once that is done, the step stays.
	BeforePivot bool `json:"beforePivot,omitempty"`
	// OriginalRunID is the workflow's: if it differs from the run's own id, the run was reset and must
	// not go forward.
	OriginalRunID string `json:"originalRunId"`
}

// Backward is the argument of NAME.undo.
type Backward struct {
	Entry    Entry    `json:"entry"`
	Decision Decision `json:"decision"`
}

// Known returns the part of a forward's result that its undo is given: the fingerprint, and the
// outputs that e.UndoOutputs names. It is nil if the undo needs none.
func (e Entry) Known(r Result) *Result {
	if len(e.UndoOutputs) == 0 {
		return nil
	}
	known := Result{After: r.After}
	for _, name := range e.UndoOutputs {
		if value, given := r.Outputs[name]; given {
			if known.Outputs == nil {
				known.Outputs = map[string]any{}
			}
			known.Outputs[name] = value
		}
	}
	return &known
}

// EntryParams reduces a step's parameters to what its Entry holds: the top-level ones that
// undoParams names. Of those that digested names too, it keeps only the digest of the value, as a
// string.
func EntryParams(with json.RawMessage, undoParams, digested []string) (json.RawMessage, error) {
	if len(undoParams) == 0 || len(with) == 0 {
		return nil, nil
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(with, &all); err != nil {
		return nil, Errorf(Refused, "parameters: %v", err)
	}
	kept := make(map[string]json.RawMessage, len(undoParams))
	for _, name := range undoParams {
		value, given := all[name]
		if !given {
			continue
		}
		if slices.Contains(digested, name) {
			var compact bytes.Buffer
			if err := json.Compact(&compact, value); err != nil {
				return nil, Errorf(Refused, "parameters: %s: %v", name, err)
			}
			value, _ = json.Marshal(DigestOf(compact.Bytes()))
		}
		kept[name] = value
	}
	return json.Marshal(kept)
}

// EntryParams returns what the Entry of a step holds of its parameters.
func (s Spec) EntryParams(with json.RawMessage) (json.RawMessage, error) {
	return EntryParams(with, s.UndoParams, s.Digested)
}
