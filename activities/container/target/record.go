package target

import (
	"context"
	"strings"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// Identifier is an engine that says which one it is: a journal belongs to it.
type Identifier interface {
	EngineID(ctx context.Context) (string, error)
}

// Store is a journal of steps on one engine: a record is worth nothing at another one.
type Store struct {
	Journal *journal.Journal
	Engine  Identifier
}

// Place is the mark of the journal, and the engine's id.
func (s Store) Place(ctx context.Context) (string, error) {
	id, err := s.Engine.EngineID(ctx)
	if err != nil {
		return "", err
	}
	mark, err := s.Journal.Mark()
	return mark + "@" + id, err
}

// Open opens the entry's token after making sure that its record can be nowhere else.
func (s Store) Open(ctx context.Context, e activities.Entry) (*journal.Token, error) {
	if err := s.CheckPlace(ctx, e.Place); err != nil {
		return nil, err
	}
	return s.Journal.Token(e.Token)
}

// CheckPlace refuses the steps of another place.
func (s Store) CheckPlace(ctx context.Context, at activities.Place) error {
	records, engine, _ := strings.Cut(at.Journal, "@")
	if err := s.Journal.Check(records); err != nil {
		return err
	}
	here, err := s.Engine.EngineID(ctx)
	if err != nil {
		return err
	}
	if engine != here {
		return activities.Errorf(activities.WrongPlace, "the step ran on container engine %s; this worker's engine is %s",
			engine, here)
	}
	return nil
}

// AfterFile has the manifest of the container as the step left it.
const AfterFile = "after.gz"

// Completion is how a step ended: what Apply returns, now and whenever it is called again.
type Completion struct {
	// Container is the one that the step has left.
	Container string `json:"container"`
	// After is the digest of the manifest in AfterFile.
	After activities.Digest `json:"after,omitempty"`
	// Beside is what the step has changed that no checkpoint covers: lines as of a manifest's Diff.
	Beside []string `json:"beside,omitempty"`
	// Running says whether the container ran on.
	Running bool `json:"running"`
	// Result is set where the step has succeeded, Failure where it has not.
	Result  activities.Result `json:"result"`
	Failure *activities.Error `json:"failure,omitempty"`
}

// ReadCompletion is found where the step has come to its end.
func ReadCompletion(t *journal.Token) (done Completion, found bool, err error) {
	found, err = t.Read(journal.Applied, &done)
	return done, found, err
}

// IsStoppedSince says that someone has stopped the container since the step.
func (c Completion) IsStoppedSince(now container.InspectResponse) bool {
	return c.Running && !now.State.Running
}

// Answer is what Apply returns: of how the step ended, or the error that keeps it from its end.
func Answer(c Completion, err error) (activities.Result, error) {
	if err != nil {
		return activities.Result{}, err
	}
	return c.Answer()
}

// Answer is the result or the failure.
func (c Completion) Answer() (activities.Result, error) {
	if c.Failure != nil {
		return activities.Result{}, c.Failure
	}
	return c.Result, nil
}

// IsDamaged says that an error is about a record that cannot be used.
func IsDamaged(err error) bool { return activities.TypeOf(err) == activities.DamagedRecord }
