package folder

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/docker/aside"
	"github.com/seed-62bf7108/unwind/activities/docker/blueprint"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/snapshot"
)

// remake is what a restore has to know of a container that is not the one that was kept: that one is
// made again, and one that has its name now is set aside. All of it is in the journal alone, for an
// environment may hold secrets.
type remake struct {
	// Kept is what the engine said of the container that is made again; empty: there was none.
	Kept json.RawMessage `json:"kept,omitempty"`
	// Found is what it says of the container that is set aside; empty: there is none.
	Found json.RawMessage `json:"found,omitempty"`
	// Aside is the name under which an earlier step has set aside the one that was kept: it is brought
	// back as it is. Empty: it has to be made.
	Aside string `json:"aside,omitempty"`
	// Differs names the settings that differ between them.
	Differs []string `json:"differs,omitempty"`
}

// toRemake says what has to be made again for a location to be as it was kept; nil: nothing, the
// container is the one that was kept, or one that was made in the same way.
func toRemake(name string, kept snapshot.Kept, at location) (*remake, error) {
	m := &remake{Found: at.said}
	if kept.About == noContainer {
		return m, nil
	}
	m.Kept = json.RawMessage(kept.About)
	was, err := readContainer(m.Kept)
	if err != nil {
		return nil, &snapshot.DamageError{Why: fmt.Sprintf("checkpoint %s: what is kept of the container: %v", name, err)}
	}
	if !at.absent {
		now, err := readContainer(at.said)
		if err != nil {
			return nil, err
		}
		if was.ID == now.ID {
			return nil, nil //nolint:nilnil // there is nothing to make
		}
		if m.Differs, err = blueprint.Differs(m.Kept, at.said); err != nil || len(m.Differs) == 0 {
			return nil, err
		}
	}
	if has, is := engine.NameOf(*was), strings.TrimPrefix(at.key, containerKey); has != is {
		return nil, activities.Errorf(activities.Refused,
			"checkpoint: %s is of container %s, which is not the one that is called %s; name it as it was called then",
			name, has, is)
	}
	return m, nil
}

// readContainer reads what an engine has said of a container; nil of none.
func readContainer(said json.RawMessage) (*container.InspectResponse, error) {
	if len(said) == 0 {
		return nil, nil //nolint:nilnil // there is none
	}
	c := &container.InspectResponse{}
	return c, json.Unmarshal(said, c)
}

// describe says what would become of a container that is made again.
func (r *remake) describe(at location, name string, before, after snapshot.Content) (c activities.Change, err error) {
	how, err := blueprint.Digest(r.Found)
	if err != nil {
		return c, err
	}
	c = activities.Change{
		Summary: "make " + at.name + " again as " + name + " has it", Strategy: activities.Snapshot,
		Risk: activities.Medium, Keys: []string{at.key},
		Diff: describeSettings(r.Differs) + fmt.Sprintf("+ %s of its own\n", activities.CountOf(after.Paths(), "path")),
		Undo: "the one that is made is removed, and there is none again",
		Digest: activities.DigestOf([]byte(at.key), []byte(at.path), []byte(how), []byte(before.Digest()), r.Kept,
			[]byte(after.Digest())),
	}
	if !at.absent {
		c.Undo = "the one that has its name now is kept, stopped, and has it again"
	}
	switch {
	case r.Aside != "":
		c.Summary = "bring back " + at.name + " as " + name + " has it, which is set aside as " + r.Aside
		c.Diff, c.Undo = describeSettings(r.Differs), "it is set aside again, and the one that has its name now has it again"
	case len(r.Kept) > 0:
		c.Facts = []string{"made anew: another id"}
	case at.absent:
		c.Unchanged = true
		c.Summary, c.Diff, c.Undo = "leave it that there is no "+at.name, "", "nothing has to be undone"
	default:
		c.Summary, c.Diff = "set "+at.name+" aside: "+name+" has none", "- "+at.name+"\n"
	}
	return c, nil
}

// summary says what has become of a container.
func (r *remake) summary(at location, name, token string) string {
	switch {
	case r.Aside != "" && at.absent:
		return at.name + " is the one again that " + name + " has, with its own id"
	case r.Aside != "":
		return at.name + " is the one again that " + name + " has, with its own id; the one that had its name is kept, " +
			"stopped, as " + aside.NameFor(token)
	case len(r.Kept) > 0 && at.absent:
		return at.name + " is made anew as " + name + " has it, with another id: there was none"
	case len(r.Kept) > 0:
		return at.name + " is made anew as " + name + " has it, with another id; the one that had its name is kept, " +
			"stopped, as " + aside.NameFor(token)
	case at.absent:
		return "there is no " + at.name + ", as " + name + " has it"
	}
	return "there is no " + at.name + ", as " + name + " has it; it is kept, stopped, as " + aside.NameFor(token)
}

// describeSettings says in lines which settings differ.
func describeSettings(names []string) string {
	var b strings.Builder
	for _, name := range names {
		b.WriteString("~ " + name + "\n")
	}
	return b.String()
}
