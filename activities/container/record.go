package container

import (
	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// The world's own documents of a token, beside the journal's.
const (
	checkpointDoc = "checkpoint"
	ticketDoc     = "ticket"
	endingDoc     = "ending"
	beforeFile    = "before.gz"
	afterFile     = "after.gz"
)

// keptFile is the manifest of what a rollback has taken away: two at once may have seen two.
func keptFile(of activities.Digest) string { return "kept-" + of.Short() + ".gz" }

// record is what Apply captures before anything happens.
type record struct {
	journal.Owned

	// Want is the digest that was approved.
	Want activities.Digest `json:"want,omitempty"`
	// Container is the engine's whole inspection.
	Container container.InspectResponse `json:"container"`
	// Chosen says which backend has the checkpoint. Records from before there were two have none: it is docker commit.
	Chosen chosen `json:"backend,omitzero"`
	// Beside are digests, by path, of what layers do not have: see [layers.beside].
	Beside map[string]string `json:"beside,omitempty"`
	// ReadOnly steps have no checkpoint, no ticket and no manifest.
	ReadOnly bool `json:"readOnly,omitempty"`
	// Before is the digest of the manifest in beforeFile, made without what is below Ignore. Of layers it is that of none.
	Before activities.Digest `json:"before,omitempty"`
	Ignore []string          `json:"ignore,omitempty"`
	// Volumes are those that a copy is kept of.
	Volumes []volume `json:"volumes,omitempty"`
	// Redo is set where the step puts back what a rollback had kept.
	Redo *redo `json:"redo,omitempty"`
}

// checkpointAt says where the checkpoint is.
type checkpointAt struct {
	Checkpoint string `json:"checkpoint"`
}

// ticket says who came first: a forward, which may then enter the container, or an undo, after which none may.
type ticket struct {
	Holder string `json:"holder"`
}

const (
	forwardHolds = "forward"
	undoHolds    = "undo"
)

// attempt is one run of the command; a later one is in another container, for a rollback lies between the two.
type attempt struct {
	Container string `json:"container"`
}

// applied is how the step ended: what Apply returns, now and whenever it is called again.
type applied struct {
	// Container is the one that the command has run in.
	Container string `json:"container"`
	// After is the digest of the manifest in afterFile.
	After activities.Digest `json:"after,omitempty"`
	// Beside is what the step has changed that layers do not have.
	Beside []string `json:"beside,omitempty"`
	// Running says whether the container ran on.
	Running bool `json:"running"`
	// Result is set where the step has succeeded, Failure where it has not.
	Result  activities.Result `json:"result"`
	Failure *activities.Error `json:"failure,omitempty"`
}

// stoppedSince says that someone has stopped the container since the step.
func (a applied) stoppedSince(now container.InspectResponse) bool {
	return a.Running && !now.State.Running
}

func (a applied) answer() (activities.Result, error) {
	if a.Failure != nil {
		return activities.Result{}, a.Failure
	}
	return a.Result, nil
}

// readRecord is found where an Apply has begun.
func readRecord(t *journal.Token) (rec record, found bool, err error) {
	found, err = t.Read(journal.Record, &rec)
	return rec, found, err
}

func readApplied(t *journal.Token) (done applied, found bool, err error) {
	found, err = t.Read(journal.Applied, &done)
	return done, found, err
}
