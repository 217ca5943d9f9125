package lineage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities/container/checkpoint"
	"github.com/seed-62bf7108/unwind/activities/container/manifest"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// Lineage is that of an engine's containers.
type Lineage struct {
	journal *journal.Journal
	engine  engine.Client
}

// Successor is the container that takes another's place.
type Successor struct {
	ID string `json:"id"`
	// Name and Start are how it stands when the change of places is done; Resumes is as in
	// [checkpoint.Rollback].
	Name    string `json:"name"`
	Start   bool   `json:"start"`
	Resumes bool   `json:"resumes,omitempty"`
	// Retire is the container that has to go: the one it was made from, or one that had taken its
	// name. May be empty.
	Retire string `json:"retire,omitempty"`
	// Stood is the image that the retired one stood on: one that removes itself at its end cannot be
	// asked any more.
	Stood string `json:"stood,omitempty"`
	// Token and Turn say whose rollback it was.
	Token string `json:"token"`
	Turn  string `json:"turn"`
	// Kept is what it has taken away and kept.
	Kept *checkpoint.Salvage `json:"kept,omitempty"`

	// Unstartable says why the engine cannot start it; empty where it could.
	Unstartable string `json:"-"`
}

// settlement is the document that says that a successor is in its place.
type settlement struct {
	Unstartable string `json:"unstartable,omitempty"`
}

// Seen is the document of what a rollback has seen of what it has brought back.
type Seen struct {
	// Differs is what was not as before.
	Differs []string `json:"differs,omitempty"`
	// Started is what differed from before the step when the rollback ended: what its program had
	// written since its start.
	Started map[string]manifest.Difference `json:"started,omitempty"`
}

const (
	successorDoc = "successor"
	settledDoc   = "settled"
	seenDoc      = "seen"
)

// Open opens the lineage in folder dir.
func Open(dir string, e engine.Client) (*Lineage, error) {
	j, err := journal.Open(dir)
	return &Lineage{j, e}, err
}

// IsOf says whether s was made by this rollback.
func (s Successor) IsOf(r checkpoint.Rollback) bool { return s.Token == r.Token && s.Turn == r.Turn }

// Fences says that s makes this rollback come too late, whatever has become of the container since.
func (s Successor) Fences(r checkpoint.Rollback) bool {
	return s.Token == r.Token && checkpoint.Rank(s.Turn) > checkpoint.Rank(r.Turn)
}

// endsAtOnce is how soon after its start a container's program ends that lacks what it needs.
const endsAtOnce = 5 * time.Second

// HasFailed says that the container was to run and does not, though nobody has stopped it: it could
// not be started, or has ended at once.
func (s Successor) HasFailed(now container.InspectResponse) bool {
	if !s.Start && !s.Resumes || now.State.Running {
		return false
	}
	if now.State.Status == container.StateCreated {
		return true
	}
	began, err := time.Parse(time.RFC3339Nano, now.State.StartedAt)
	ended, failed := time.Parse(time.RFC3339Nano, now.State.FinishedAt)
	return err == nil && failed == nil && ended.Sub(began) < endsAtOnce
}

// tokenFor opens the documents of a container: half of its 64 hexadecimal digits are as unique as a
// token.
func (l *Lineage) tokenFor(id string) (*journal.Token, error) {
	if len(id) != 64 {
		return nil, fmt.Errorf("%q is not a whole container id", id)
	}
	return l.journal.Token(id[:32])
}

// Claim names s the successor of the container id, unless it has one already. It returns whoever is
// the successor.
func (l *Lineage) Claim(id string, s Successor) (Successor, error) {
	err := l.create(id, successorDoc, &s)
	return s, err
}

// create writes a document of a container, unless there is one already: then doc becomes that.
func (l *Lineage) create(id, name string, doc any) error {
	t, err := l.tokenFor(id)
	if err != nil {
		return err
	}
	_, err = t.Create(name, doc)
	return err
}

// Seen reads what the rollback that made the container id has seen, once that is noted.
func (l *Lineage) Seen(id string) (s Seen, noted bool, err error) {
	t, err := l.tokenFor(id)
	if err != nil {
		return s, false, err
	}
	noted, err = t.Read(seenDoc, &s)
	return s, noted, err
}

// NoteSeen notes what the rollback that made the container id has seen, unless that is noted
// already. It returns what is noted.
func (l *Lineage) NoteSeen(id string, s Seen) (Seen, error) {
	err := l.create(id, seenDoc, &s)
	return s, err
}

// HasSuccessor says whether the container id has a successor.
func (l *Lineage) HasSuccessor(id string) (bool, error) {
	t, err := l.tokenFor(id)
	if err != nil {
		return false, err
	}
	var s Successor
	return t.Read(successorDoc, &s)
}

// Standing resolves the id that a container had when a step recorded it to the one that it has now,
// after the rollbacks that have been since. The container may be gone.
func (l *Lineage) Standing(ctx context.Context, id string) (string, error) {
	last, err := l.Walk(ctx, id, func(Successor) bool { return false })
	return last.ID, err
}

// Walk follows the successors of a container, and stops early where stop says so. A change of
// places that was cut short is finished first; one that stop does not ask for need not run. It
// returns the last successor that it came to, and id itself where there is none.
func (l *Lineage) Walk(ctx context.Context, id string, stop func(Successor) bool) (last Successor, err error) {
	return l.WalkWatching(ctx, id, stop, func(Successor) {})
}

// WalkWatching walks, and calls started with a successor that this call has started, before it
// clears away the container in whose place that is.
func (l *Lineage) WalkWatching(ctx context.Context, id string, stop func(Successor) bool,
	started func(Successor)) (last Successor, err error) {
	last.ID = id
	for ctx.Err() == nil {
		t, err := l.tokenFor(last.ID)
		if err != nil {
			return last, err
		}
		var next Successor
		found, err := t.Read(successorDoc, &next)
		if err != nil || !found {
			return last, err
		}
		stops := stop(next)
		next.Unstartable, err = l.settleOnce(ctx, t, next, started)
		if _, onlyStart := errors.AsType[*startError](err); err != nil && (stops || !onlyStart) {
			return last, err
		}
		last = next
		if stops {
			return last, nil
		}
	}
	return last, ctx.Err()
}

// settleOnce keeps whoever comes late from touching a container that has long been at work.
func (l *Lineage) settleOnce(ctx context.Context, t *journal.Token, s Successor,
	started func(Successor)) (unstartable string, err error) {
	var settled settlement
	if found, err := t.Read(settledDoc, &settled); found || err != nil {
		return settled.Unstartable, err
	}
	err = l.settle(ctx, s, started)
	if unstarted, ok := errors.AsType[*startError](err); ok {
		settled.Unstartable = engine.WhyUnstartable(unstarted.error)
	}
	if err != nil && settled.Unstartable == "" {
		return "", err
	}
	_, err = t.Create(settledDoc, &settled)
	return settled.Unstartable, err
}
