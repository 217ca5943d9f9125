package target

import (
	"fmt"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/manifest"
)

// View is what a container looks like now, against what the step knew.
type View struct {
	Name, ID string
	// Gone says that the container is not in its place; Occupant is another one that has its name.
	Gone     bool
	Occupant string
	// Stopped says that someone has stopped it since the step.
	Stopped bool
	Now     manifest.Manifest
	Before  manifest.Manifest
	// After is nil where the step has not come to its end: then nobody can tell its doings from
	// others'.
	After manifest.Manifest
	// Unread says that Now could not be read.
	Unread bool
}

// Drift is what someone else has done to the container since the step; nil is nothing.
func (v View) Drift() *activities.Drift {
	switch {
	case v.Gone && v.Occupant != "":
		return &activities.Drift{
			Digest: activities.DigestOf([]byte("occupied"), []byte(v.Occupant)),
			Diff:   fmt.Sprintf("- container %s\n+ container %s, another one: %s\n", v.Name, v.Name, v.Occupant[:12]),
		}
	case v.Gone:
		return &activities.Drift{Digest: activities.DigestOf([]byte("gone")), Diff: fmt.Sprintf("- container %s\n", v.Name)}
	case v.After == nil:
		return nil
	}
	lines := v.After.Diff(v.Now)
	if len(lines) == 0 || len(v.Before.Diff(v.Now)) == 0 {
		return nil
	}
	return &activities.Drift{
		Digest: activities.DigestOf([]byte("filesystem"), []byte(v.Now.Digest())),
		Diff:   strings.Join(lines, "\n") + "\n",
	}
}

// String says what has become of the container.
func (v View) String() string {
	switch {
	case v.Gone && v.Occupant != "":
		return "another container has the name " + v.Name + " now"
	case v.Gone:
		return "container " + v.Name + " has been removed, or put aside"
	}
	return fmt.Sprintf("%s changed in %s since the step", activities.CountOf(len(v.After.Diff(v.Now)), "path"), v.Name)
}

// Observation prefers what is expected where a step has changed nothing: as left, or after its undo
// as before.
func (v View) Observation(undone bool) activities.Observation {
	drift := v.Drift()
	left := activities.Observation{State: activities.AsLeft,
		Detail: fmt.Sprintf("the filesystem of %s equals that after the step", v.Name)}
	switch {
	case v.Unread:
		return activities.Observation{State: activities.Unseen, Detail: "the filesystem of " + v.Name + " cannot be read"}
	case v.Gone:
		return activities.Observation{State: activities.Elsewise, Detail: v.String(), Drift: drift}
	case !undone && v.After != nil && len(v.After.Diff(v.Now)) == 0:
		return left
	case len(v.Before.Diff(v.Now)) == 0:
		return activities.Observation{State: activities.AsBefore,
			Detail: fmt.Sprintf("the filesystem of %s equals that before the step", v.Name)}
	case v.After == nil:
		return activities.Observation{State: activities.Unseen,
			Detail: "the step has not come to its end: what it has changed cannot be told from what others have"}
	case drift == nil:
		return left
	}
	return activities.Observation{State: activities.Elsewise, Detail: v.String(), Drift: drift}
}

// Accept takes differences that are nobody's doing, as far as they are still there, for what was
// there before and after the step.
func (v *View) Accept(all map[string]manifest.Difference) {
	v.Before = v.Before.Accept(all, v.Now)
	if v.After != nil {
		v.After = v.After.Accept(all, v.Now)
	}
}

// AdoptOwn takes what the step has changed itself, and what is in folders that it has made, as it
// is now: processes that it had left running have gone on writing there.
func (v *View) AdoptOwn() {
	own := map[string]bool{}
	for _, line := range v.Before.Diff(v.After) {
		own[manifest.PathOf(line)] = true
	}
	after := manifest.Manifest{}
	for at, n := range v.After {
		if !v.isOwn(own, at) {
			after[at] = n
		}
	}
	for at, n := range v.Now {
		if v.isOwn(own, at) {
			after[at] = n
		}
	}
	v.After = after
}

// isOwn says that the step has changed a path, or made a folder that it is in.
func (v *View) isOwn(own map[string]bool, at string) bool {
	if own[at] {
		return true
	}
	for i := strings.LastIndexByte(at, '/'); i > 0; i = strings.LastIndexByte(at[:i], '/') {
		made, there := v.After[at[:i]]
		if _, was := v.Before[at[:i]]; own[at[:i]] && there && !was && !made.Over {
			return true
		}
	}
	return false
}
