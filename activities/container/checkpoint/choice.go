package checkpoint

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/docker/docker/api/types/container"
)

// Selective is a backend that not every container can have.
type Selective interface {
	Backend

	// Admit says why a container's next checkpoint cannot be one of this backend, and what would make
	// it one; empty where it can. An error of the type Refused says that the container can have no
	// checkpoint of any other backend either, or that the worker's config wants none.
	Admit(ctx context.Context, target container.InspectResponse) (obstacle string, err error)
}

// Backends are those of an engine: layers wherever they can be, else docker commit.
type Backends struct {
	Layers Selective
	Commit Backend
}

// Choice is the backend that a step's checkpoint is taken by, as its record has it; zero is docker
// commit. What anybody wants to know of it, the backend says: see [Backends.Of].
type Choice struct {
	layers bool
	why    string // it is not layers
}

type choiceJSON struct {
	Layers bool   `json:"layers,omitempty"`
	Why    string `json:"why,omitempty"`
}

// MarshalJSON has the format of records.
func (c Choice) MarshalJSON() ([]byte, error) { return json.Marshal(choiceJSON{c.layers, c.why}) }

// UnmarshalJSON has the format of records.
func (c *Choice) UnmarshalJSON(raw []byte) error {
	var read choiceJSON
	err := json.Unmarshal(raw, &read)
	c.layers, c.why = read.Layers, read.Why
	return err
}

// Choose decides how a container's next checkpoint is taken.
func (b Backends) Choose(ctx context.Context, target container.InspectResponse) (Choice, Backend, error) {
	why, err := b.Layers.Admit(ctx, target)
	if err != nil {
		return Choice{}, nil, err
	}
	c := Choice{layers: why == "", why: why}
	return c, b.Of(c), nil
}

// Of is the backend that has the checkpoint of a record.
func (b Backends) Of(c Choice) Backend {
	if c.layers {
		return b.Layers
	}
	return b.Commit
}

// Drop lets go of the token's checkpoint with whatever backend: its record may be gone.
func (b Backends) Drop(ctx context.Context, token string) error {
	return errors.Join(b.Commit.Drop(ctx, token, ""), b.Layers.Drop(ctx, token, ""))
}

// Release lets go of all that the token has with any backend: its record may be gone.
func (b Backends) Release(ctx context.Context, token string) error {
	return errors.Join(b.Commit.Release(ctx, token), b.Layers.Release(ctx, token))
}

// Bytes is what a token takes with any backend: its record may be gone.
func (b Backends) Bytes(token string) int64 { return b.Commit.Bytes(token) + b.Layers.Bytes(token) }

// Fact is what a plan and a result say of the choice.
func (c Choice) Fact() string {
	switch {
	case c.layers:
		return "the checkpoint is a layer over the container's root (overlay)"
	case c.why != "":
		return "the checkpoint is taken " + c.Remark()
	}
	return ""
}

// Remark says how a checkpoint was taken that could not be taken in the better way, and why; else
// it is empty.
func (c Choice) Remark() string {
	if c.why == "" {
		return ""
	}
	return "by docker commit, not by a layer: " + c.why
}
