package lineage

import (
	"context"
	"fmt"

	"github.com/seed-62bf7108/unwind/activities/container/checkpoint"
	"github.com/seed-62bf7108/unwind/activities/container/engine"
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
	// Name and Start are how it stands when the change of places is done.
	Name  string `json:"name"`
	Start bool   `json:"start"`
	// Retire is the container that has to go: the one it was made from, or one that had taken its name. May be empty.
	Retire string `json:"retire,omitempty"`
	// Stood is the image that the retired one stood on: one that removes itself at its end cannot be asked any more.
	Stood string `json:"stood,omitempty"`
	// Token and Turn say whose rollback it was.
	Token string `json:"token"`
	Turn  string `json:"turn"`
	// Differs is what was not as before.
	Differs []string `json:"differs,omitempty"`
	// Kept is what it has taken away and kept.
	Kept *checkpoint.Salvage `json:"kept,omitempty"`
}

const (
	successorDoc = "successor"
	settledDoc   = "settled"
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

// of opens the documents of a container: half of its 64 hexadecimal digits are as unique as a token.
func (l *Lineage) of(id string) (*journal.Token, error) {
	if len(id) != 64 {
		return nil, fmt.Errorf("%q is not a whole container id", id)
	}
	return l.journal.Token(id[:32])
}

// Claim names s the successor of the container id, unless it has one already. It returns whoever is the successor.
func (l *Lineage) Claim(id string, s Successor) (Successor, error) {
	t, err := l.of(id)
	if err != nil {
		return s, err
	}
	_, err = t.Create(successorDoc, &s)
	return s, err
}

// HasSuccessor says whether the container id has a successor.
func (l *Lineage) HasSuccessor(id string) (bool, error) {
	t, err := l.of(id)
	if err != nil {
		return false, err
	}
	var s Successor
	return t.Read(successorDoc, &s)
}

// Standing resolves the id that a container had when a step recorded it to the one that it has now, after the rollbacks
// that have been since. The container may be gone.
func (l *Lineage) Standing(ctx context.Context, id string) (string, error) {
	last, err := l.Walk(ctx, id, func(Successor) bool { return false })
	return last.ID, err
}

// Walk follows the successors of a container, and stops early where stop says so. A change of places that was cut short is
// finished first. It returns the last successor that it came to, and id itself where there is none.
func (l *Lineage) Walk(ctx context.Context, id string, stop func(Successor) bool) (last Successor, err error) {
	last.ID = id
	for ctx.Err() == nil {
		t, err := l.of(last.ID)
		if err != nil {
			return last, err
		}
		var next Successor
		found, err := t.Read(successorDoc, &next)
		if err != nil || !found {
			return last, err
		}
		if err := l.settleOnce(ctx, t, next); err != nil {
			return last, err
		}
		last = next
		if stop(next) {
			return last, nil
		}
	}
	return last, ctx.Err()
}

// settleOnce keeps whoever comes late from touching a container that has long been at work.
func (l *Lineage) settleOnce(ctx context.Context, t *journal.Token, s Successor) error {
	var settled struct{}
	if found, err := t.Read(settledDoc, &settled); found || err != nil {
		return err
	}
	if err := l.settle(ctx, s); err != nil {
		return err
	}
	_, err := t.Create(settledDoc, &settled)
	return err
}
