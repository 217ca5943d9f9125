package host

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// checkGates refuses gates for actions that no worker has: neither those that are built in, nor
// those that this one serves. A typing mistake would leave an action below the level that the
// config demands.
func (c Config) checkGates(served []activities.Spec) error {
	if len(c.Gates) == 0 {
		return nil
	}
	builtIn, err := Specs(nil)
	if err != nil {
		return err
	}
	all := slices.Concat(builtIn, served)
	known := []string{"*"}
	for _, s := range all {
		known = append(known, s.Name, activities.WorldOf(s.Name)+".*")
	}
	slices.Sort(known)
	var problems []error
	for _, pattern := range slices.Sorted(maps.Keys(c.Gates)) {
		if slices.ContainsFunc(all, func(s activities.Spec) bool { return activities.MatchesAction(pattern, s) }) {
			continue
		}
		fix := task.SuggestNearest(pattern, slices.Compact(known))
		if fix == "" {
			fix = "name an action, all actions of a world, as in file.*, or * for all; starter catalog lists them"
		}
		problems = append(problems,
			fmt.Errorf("%s: gates.%s: there is no such action; %s", c.cite("gates."+pattern), pattern, fix))
	}
	return errors.Join(problems...)
}
