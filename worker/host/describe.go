package host

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	steps "github.com/seed-62bf7108/unwind/activities/environment"
)

// String says in one line what the worker serves.
func (w *Worker) String() string {
	var worlds []string
	for _, s := range w.Registry.Specs() {
		if s.Name != steps.TasksAction { // every worker serves it
			worlds = append(worlds, activities.WorldOf(s.Name)) // the specs are sorted by name
		}
	}
	s := fmt.Sprintf("host %s serves %s on queues %s", w.Config.Host, listedWorlds(slices.Compact(worlds)),
		strings.Join(w.Config.queues(), " and "))
	if w.Address != "" {
		s += ", health and metrics at http://" + w.Address
	}
	return s
}

// Notices say what does not work on this host now, and what is not as safe as it could be: an
// engine that is down, a program or a secret that is not there, a live key.
func (w *Worker) Notices(ctx context.Context) []string {
	notices := w.Registry.Notices()
	_, problems := w.Registry.Journals(ctx)
	for _, world := range slices.Sorted(maps.Keys(problems)) {
		notices = append(notices,
			fmt.Sprintf("world %s does not work now, and its steps are refused until it does: %s", world, problems[world]))
	}
	for _, name := range slices.Sorted(maps.Keys(w.Config.Secrets)) {
		if _, err := secrets(w.Config.Secrets).read(name); err != nil {
			notices = append(notices, fmt.Sprintf("secrets.%s: %v; steps that use it are refused", name, err))
		}
	}
	if w.Config.writtenState != "" && w.Config.writtenState != w.Config.State {
		notices = append(notices,
			fmt.Sprintf("state: UNWIND_STATE moves it to %s, and the config says %s: the undo records there are not used, "+
				"so steps that they belong to cannot be undone; unset UNWIND_STATE, or write its folder into the config",
				w.Config.State, w.Config.writtenState))
	}
	return append(notices, missingPrograms(w.Config.CheckCommands)...)
}

// missingPrograms are those of the check commands that this host does not have.
func missingPrograms(commands []string) (notices []string) {
	for _, program := range commands {
		if program == "*" {
			continue
		}
		if _, err := exec.LookPath(program); err != nil {
			notices = append(notices, fmt.Sprintf("checkCommands: %s is not on this host: checks that run it fail", program))
		}
	}
	return notices
}

func listedWorlds(worlds []string) string {
	if len(worlds) == 0 {
		return "no worlds"
	}
	return strings.Join(worlds, ", ")
}
