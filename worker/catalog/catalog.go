// Package catalog holds the specs of the built-in actions as data: what checks tasks and runs none
// of them needs no world, and works where no worker can run.
//
// catalog.json is written by `go run ./docs/reference`.
package catalog

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/seed-62bf7108/unwind/activities"
)

//go:embed catalog.json
var content []byte

var specs = sync.OnceValue(func() (all []activities.Spec) {
	if err := json.Unmarshal(content, &all); err != nil {
		panic(fmt.Sprintf("catalog.json: %v", err)) // found by any test
	}
	return all
})

// Specs are the built-in actions, sorted by name.
func Specs() []activities.Spec { return slices.Clone(specs()) }
