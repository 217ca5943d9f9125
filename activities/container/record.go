package container

import (
	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/checkpoint"
	"github.com/seed-62bf7108/unwind/activities/container/volumes"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// The world's own documents of a token, beside the journal's.
const (
	ticketDoc  = "ticket"
	endingDoc  = "ending"
	beforeFile = "before.gz"
)

// containerID is empty where there is no record.
func (r stepRecord) containerID() string {
	if r.Container.ContainerJSONBase == nil {
		return ""
	}
	return r.Container.ID
}

// salvageFile is the manifest of what a rollback has taken away: two at once may have seen two.
func salvageFile(of activities.Digest) string { return "kept-" + of.Short() + ".gz" }

// stepRecord is what Apply captures before anything happens.
type stepRecord struct {
	journal.Owned

	// Want is the digest that was approved.
	Want activities.Digest `json:"want,omitempty"`
	// Container is the engine's whole inspection.
	Container container.InspectResponse `json:"container"`
	// Backend is the one that has the checkpoint.
	Backend checkpoint.Choice `json:"backend,omitzero"`
	// Beside has digests of what no checkpoint covers, as it was before the step: see
	// [checkpoint.Uncovered].
	Beside map[string]string `json:"beside,omitempty"`
	// Nodes are those of it that a rollback can make again.
	Nodes map[string]string `json:"nodes,omitempty"`
	// ReadOnly steps have no checkpoint, no ticket and no manifest.
	ReadOnly bool `json:"readOnly,omitempty"`
	// Before is the digest of the manifest in beforeFile, made without what is below Ignore. Of
	// differential backends it is empty.
	Before activities.Digest `json:"before,omitempty"`
	Ignore []string          `json:"ignore,omitempty"`
	// Volumes are those that a copy is kept of.
	Volumes []volumes.Volume `json:"volumes,omitempty"`
	// After is the token of the step that was at work in the container before.
	After string `json:"after,omitempty"`
	// Redo is set where the step puts back what a rollback had kept.
	Redo *redo `json:"redo,omitempty"`
}

// ticket says who came first: a forward, which may then enter the container, or an undo, after
// which none may.
type ticket struct {
	Holder string `json:"holder"`
	// Checkpoint is where a forward has its checkpoint.
	Checkpoint string `json:"checkpoint,omitempty"`
}

// readTicket reads the ticket of a step.
func readTicket(t *journal.Token) (taken ticket, found bool, err error) {
	found, err = t.Read(ticketDoc, &taken)
	return taken, found, err
}

const (
	forwardHolds = "forward"
	undoHolds    = "undo"
)

// attempt is one run of the command; a later one is in another container, for a rollback lies
// between the two.
type attempt struct {
	Container string `json:"container"`
}

// readRecord is found where an Apply has begun.
func readRecord(t *journal.Token) (rec stepRecord, found bool, err error) {
	found, err = t.Read(journal.Record, &rec)
	return rec, found, err
}
