package host

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// String says in one line what the worker serves.
func (w *Worker) String() string {
	var worlds []string
	for _, s := range w.Registry.Specs() {
		worlds = append(worlds, activities.WorldOf(s.Name)) // the specs are sorted by name
	}
	s := fmt.Sprintf("host %s serves %s on queues %s and %s", w.Config.Host, listedWorlds(slices.Compact(worlds)),
		w.Config.Queue, task.HostQueue(w.Config.Queue, w.Config.Host))
	if w.Address != "" {
		s += ", health and metrics at http://" + w.Address
	}
	return s
}

func listedWorlds(worlds []string) string {
	if len(worlds) == 0 {
		return "no worlds (its config opens none)"
	}
	return strings.Join(worlds, ", ")
}
