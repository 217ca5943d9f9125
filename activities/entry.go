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

// EntryVersion is the format that this code writes and undoes. An entry of another one parks.
const EntryVersion = 1

// Entry is what the ledger holds of a step: with the world's journal, all that undoing it needs. It is an argument of
// the step's forward, so it is in the history no later than the event that schedules the forward.
type Entry struct {
	// Version is the format of this entry.
	Version int `json:"v"`
	// Seq is its place in the ledger, from 1: the order of starting.
	Seq int `json:"seq"`
	// Step is the step's id.
	Step string `json:"step"`
	// Action is the forward's activity type; UndoType that of its undo.
	Action   string `json:"action"`
	UndoType string `json:"undo"`
	// Token is the step's stable identity for its world: see NewToken.
	Token string `json:"token"`
	// Place is where the effects and the journal live.
	Place Place `json:"place"`
	// Needs are the ids of the steps that this one builds on: they are undone after it.
	Needs []string `json:"needs,omitempty"`
	// Keys are the resources that it touches.
	Keys []string `json:"keys,omitempty"`
	// Params are the parameters that undoing needs; bulky ones as digests, secrets as references.
	Params json.RawMessage `json:"params,omitempty"`
	// Policy bounds the undo. Fields that are zero are at their default: see UndoPolicy.WithDefaults.
	Policy UndoPolicy `json:"policy,omitzero"`
	// Savepoint names the place in the ledger just before this entry.
	Savepoint string `json:"savepoint,omitempty"`
	// Pivot says that once this step is done, nothing up to it is unwound any more.
	Pivot bool `json:"pivot,omitempty"`
	// Commits says that what the step did is durable only once its action has been told so: see Committer.
	Commits bool `json:"commits,omitempty"`
	// Keep is for how long after the task has committed its step can still be rolled back. Zero is DefaultKeep.
	Keep time.Duration `json:"keep,omitempty"`
	// Pinned says that its record stays for all of that time, however many newer ones there are and however much they take.
	Pinned bool `json:"pinned,omitempty"`
	// Redoes is the token of an earlier generation of the step that was rolled back: this forward does it again. A world
	// that has kept what the rollback took away puts exactly that back; others go forward anew.
	Redoes string `json:"redoes,omitempty"`
	// Since is when the entry was made: nothing of the step is older. A world whose record is a remote service looks from
	// here on for what a lost answer made. Zero: not known, so it has to look at everything.
	Since time.Time `json:"since,omitzero"`
}

// Place is where a step's effects and journal live.
type Place struct {
	// Queue is the task queue of all attempts of the step and of its undo.
	Queue string `json:"queue"`
	// Host is the host that serves Queue; empty for the shared queue.
	Host string `json:"host,omitempty"`
	// Journal is the journal's own random id, as its world tells it (World.Journal). A world refuses another one with
	// WrongPlace.
	Journal string `json:"journal"`
}

// DriftPolicy says what an undo does about drift.
type DriftPolicy string

// Ask is the default.
const (
	DriftAsk   DriftPolicy = "ask"   // park and show it to a person
	DriftForce DriftPolicy = "force" // overwrite exactly what was seen
	DriftSkip  DriftPolicy = "skip"  // leave it and what it needs
)

// DefaultKeep is the rollback window of a committed task.
const DefaultKeep = time.Hour

// Criticality says what becomes of a step whose undo fails for good.
type Criticality string

// Normal is the default.
const (
	Normal      Criticality = "normal" // it is parked for a person
	LowCritical Criticality = "low"    // it is accepted as it is, and reported
)

// UndoPolicy bounds an undo. The zero value is the default policy, and takes no room in a history.
type UndoPolicy struct {
	// Attempt bounds one attempt (StartToClose); it must outlast the slowest call of the world. Defaults to 10 minutes.
	Attempt time.Duration `json:"attempt,omitempty"`
	// Within bounds all attempts together before the undo is parked. Defaults to 1 hour.
	Within time.Duration `json:"within,omitempty"`
	// Attempts bounds how often it is tried before it is parked. Defaults to no bound but Within.
	Attempts int `json:"attempts,omitempty"`
	// Heartbeat is after how long without a sign of life an attempt counts as dead. Defaults to 10 seconds.
	Heartbeat time.Duration `json:"heartbeat,omitempty"`
	// HostWait is how long an undo stays on the queue of a host before it shows as waiting for that host; zero is the
	// engine's own.
	HostWait time.Duration `json:"hostWait,omitempty"`
	// Drift says what to do about drift. Defaults to DriftAsk.
	Drift DriftPolicy `json:"drift,omitempty"`
	// Criticality says what becomes of it when the undo fails for good. Defaults to Normal.
	Criticality Criticality `json:"criticality,omitempty"`
}

// The defaults of an UndoPolicy. Entries in histories rely on them: a change needs a new entry format.
const (
	DefaultUndoAttempt   = 10 * time.Minute
	DefaultUndoWithin    = time.Hour
	DefaultUndoHeartbeat = 10 * time.Second
)

// WithDefaults is p with every zero field at its default but HostWait, which is the engine's own.
func (p UndoPolicy) WithDefaults() UndoPolicy {
	p.Attempt = cmp.Or(p.Attempt, DefaultUndoAttempt)
	p.Within = cmp.Or(p.Within, DefaultUndoWithin)
	p.Heartbeat = cmp.Or(p.Heartbeat, DefaultUndoHeartbeat)
	p.Drift = cmp.Or(p.Drift, DriftAsk)
	p.Criticality = cmp.Or(p.Criticality, Normal)
	return p
}

// Compact is p with every field that is at its default zero.
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

// NewToken is the identity of a step for its world: the same on every retry and in every continued run, another one for
// each generation of the step and each task. 32 hexadecimal digits: safe in a file name, a container name and a key.
func NewToken(firstRunID, step string, generation int) string {
	sum := sha256.Sum256([]byte(firstRunID + "\x00" + step + "\x00" + strconv.Itoa(generation)))
	return hex.EncodeToString(sum[:16])
}

// Digest is "sha256:" and 64 hexadecimal digits.
type Digest string

// DigestOf is the digest of parts; each is framed by its length, so that no two lists of parts collide.
func DigestOf(parts ...[]byte) Digest {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:", len(p))
		h.Write(p)
	}
	return Digest("sha256:" + hex.EncodeToString(h.Sum(nil)))
}

// Short is for people: the first 12 digits.
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
	// Want is the digest that was approved; empty without a gate.
	Want Digest `json:"want,omitempty"`
	// OriginalRunID is the workflow's: where it differs from the run's own id, the run was reset and goes no further.
	OriginalRunID string `json:"originalRunId"`
}

// Backward is the argument of NAME.undo.
type Backward struct {
	Entry    Entry    `json:"entry"`
	Decision Decision `json:"decision"`
}

// EntryParams projects a step's parameters to what its Entry holds: the top-level ones that undoParams names, and of
// those that digested names too, only the digest of their value, as a text.
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

// EntryParams is what the Entry of a step with these parameters holds of them.
func (s Spec) EntryParams(with json.RawMessage) (json.RawMessage, error) {
	return EntryParams(with, s.UndoParams, s.Digested)
}
