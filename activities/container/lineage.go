package container

import (
	"context"
	"fmt"

	"github.com/seed-62bf7108/unwind/activities/journal"
)

// lineage remembers which container has taken the place of which: by docker commit, a container that is rolled back is
// made anew and has another id, while the records of earlier steps still name the old one.
//
// The successor of a container is a document that is written once. That makes it the fence between two rollbacks of the
// same container: both build a new one, one gets its own named here, the other finds that and removes what it built.
type lineage struct{ journal *journal.Journal }

// successor is the container that takes another's place.
type successor struct {
	ID string `json:"id"`
	// Name and Start are how it stands when the change of places is done.
	Name  string `json:"name"`
	Start bool   `json:"start"`
	// Retire is the container that has to go: the one it was made from, or one that had taken its name. May be empty.
	Retire string `json:"retire,omitempty"`
	// Stood is the image that the retired one stood on: a container that removes itself at its end tells it no more.
	Stood string `json:"stood,omitempty"`
	// Token and Turn say whose rollback it was.
	Token string `json:"token"`
	Turn  string `json:"turn"`
	// Differs is what was not as before.
	Differs []string `json:"differs,omitempty"`
	// Kept is what it has taken away and kept.
	Kept *kept `json:"kept,omitempty"`
}

const (
	successorDoc = "successor"
	settledDoc   = "settled"
)

func openLineage(dir string) (lineage, error) {
	j, err := journal.Open(dir)
	return lineage{j}, err
}

// of opens the documents of a container: half of its 64 hexadecimal digits are as unique as a token.
func (l lineage) of(id string) (*journal.Token, error) {
	if len(id) != 64 {
		return nil, fmt.Errorf("%q is not a whole container id", id)
	}
	return l.journal.Token(id[:32])
}

// claim names s the successor of the container id, unless it has one already. It returns whoever is the successor.
func (l lineage) claim(id string, s successor) (successor, error) {
	t, err := l.of(id)
	if err != nil {
		return s, err
	}
	_, err = t.Create(successorDoc, &s)
	return s, err
}

// decided says whether the container id has a successor.
func (l lineage) decided(id string) (bool, error) {
	t, err := l.of(id)
	if err != nil {
		return false, err
	}
	var s successor
	return t.Read(successorDoc, &s)
}

// walk follows the successors of a container. It calls settle for each that has not been settled yet, and stops early
// where stop says so. It returns the last one that it came to, and id itself where there is none.
func (l lineage) walk(ctx context.Context, id string, settle func(context.Context, successor) error, stop func(successor) bool) (last successor, err error) {
	last.ID = id
	for ctx.Err() == nil {
		t, err := l.of(last.ID)
		if err != nil {
			return last, err
		}
		var next successor
		found, err := t.Read(successorDoc, &next)
		if err != nil || !found {
			return last, err
		}
		if err := l.settleOnce(ctx, t, next, settle); err != nil {
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
func (l lineage) settleOnce(ctx context.Context, t *journal.Token, s successor, settle func(context.Context, successor) error) error {
	var settled struct{}
	if found, err := t.Read(settledDoc, &settled); found || err != nil {
		return err
	}
	if err := settle(ctx, s); err != nil {
		return err
	}
	_, err := t.Create(settledDoc, &settled)
	return err
}
