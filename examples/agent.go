package examples

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// Act is one request that the agent of a session makes. One of Savepoint, Rollback and Step is set.
// After its last act the agent finishes the session.
type Act struct {
	// Why is what the agent says about it.
	Why string
	// Savepoint is the name of a place to mark; Rollback, the one to go back to.
	Savepoint string
	Rollback  string
	// Step is a step as in a task file, in JSON.
	Step json.RawMessage
	// Ends is what becomes of the step.
	Ends protocol.StepState
}

// ID is the id of the act's step.
func (a Act) ID() string { return a.field("id") }

func (a Act) field(name string) string {
	var step map[string]any
	_ = json.Unmarshal(a.Step, &step) // an act without a step has no fields
	value, _ := step[name].(string)
	return value
}

// readActs reads what the agent of an example does.
func readActs(source []byte) ([]Act, error) {
	var written []struct {
		Why, Savepoint, Rollback string
		Step                     map[string]any
		Ends                     protocol.StepState
	}
	d := yaml.NewDecoder(bytes.NewReader(source))
	d.KnownFields(true)
	if err := d.Decode(&written); err != nil {
		return nil, err
	}
	acts := make([]Act, len(written))
	for i, w := range written {
		acts[i] = Act{Why: w.Why, Savepoint: w.Savepoint, Rollback: w.Rollback, Ends: w.Ends}
		if w.Step == nil {
			continue
		}
		step, err := json.Marshal(w.Step)
		if err != nil {
			return nil, fmt.Errorf("act %d: %w", i+1, err)
		}
		acts[i].Step = step
		if w.Ends == "" {
			acts[i].Ends = protocol.Done
		}
	}
	return acts, nil
}

// actsWithout leaves out the steps of some worlds, and returns their ids.
func actsWithout(acts []Act, worlds []string) (left []Act, gone []string) {
	for _, a := range acts {
		if a.Step != nil && slices.Contains(worlds, activities.WorldOf(a.field("uses"))) {
			gone = append(gone, a.ID())
			continue
		}
		left = append(left, a)
	}
	return left, gone
}
