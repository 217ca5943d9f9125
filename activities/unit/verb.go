package unit

import "github.com/seed-62bf7108/unwind/activities"

// The names of the actions that change a unit.
const (
	stopAction   = "unit.stop"
	startAction  = "unit.start"
	pauseAction  = "unit.pause"
	resumeAction = "unit.resume"
)

// verb is what one of these actions does.
type verb struct {
	action string
	// run is how the unit is left; otherwise it does not run.
	run bool
	// pauses: its processes are frozen and go on, rather than end and begin.
	pauses bool
	// does and undo are words of a plan; summary, undone and redone of the Spec.
	does, undo, summary, undone, redone string
}

var verbs = []verb{
	{
		action: stopAction, does: "stop", undo: "it is started again",
		summary: "Stops a unit of the host: a service that the worker's config names.",
		undone:  "The unit is started again if it ran before.", redone: "It is stopped again.",
	},
	{
		action: startAction, run: true, does: "start", undo: "it is stopped again",
		summary: "Starts a unit of the host: a service that the worker's config names.",
		undone:  "The unit is stopped again if it did not run before.", redone: "It is started again.",
	},
	{
		action: pauseAction, pauses: true, does: "pause", undo: "it is resumed",
		summary: "Pauses a unit that is a container: its processes are frozen, and go on from there when it is resumed.",
		undone:  "The unit is resumed if it ran before. One that somebody has stopped meanwhile waits for a person.",
		redone:  "It is paused again.",
	},
	{
		action: resumeAction, run: true, pauses: true, does: "resume", undo: "it is paused again",
		summary: "Resumes a unit that is a container and is paused.",
		undone:  "The unit is paused again if it was paused before.", redone: "It is resumed again.",
	},
}

func verbOf(action string) verb {
	for _, v := range verbs {
		if v.action == action {
			return v
		}
	}
	return verb{}
}

func (v verb) stateOf(runs bool) string {
	switch {
	case runs:
		return "runs"
	case v.pauses:
		return "does not run"
	}
	return "is stopped"
}

// check refuses what the unit cannot do.
func (v verb) check(name string, u Unit) error {
	if v.pauses && u.Container == "" {
		return activities.Errorf(activities.Refused,
			"unit: %s is not a container, and only containers can be paused; stop it instead", name)
	}
	return nil
}
