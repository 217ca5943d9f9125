package folder

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/docker/aside"
	"github.com/seed-62bf7108/unwind/activities/docker/blueprint"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/activities/snapshot"
)

// remaking is a remake that a call is at.
type remaking struct {
	*world
	remake

	entry activities.Entry
	token *journal.Token
	// name is that of the container in its place, kept and found are what is in the remake.
	name        string
	kept, found *container.InspectResponse
	// left is the name under which a later step had left aside what the token has set aside.
	left string
	// holds is what the files of the container that is made are to be.
	holds snapshot.Content
}

// The documents of a token that makes a container again.
const (
	madeDoc = "made" // the container that was made, before it has its name
	turnDoc = "turn" // whose turn it is: a forward's, which changes places, or an undo's
	backDoc = "back" // an undo has looked for drift, and goes back
)

// goingBack is a document: what an undo has found before it goes back.
type goingBack struct {
	// Left is the name under which a later step has left aside what the token has set aside.
	Left string `json:"left,omitempty"`
}

// made is a document: the container that a forward has made. It is empty where an undo came first.
type made struct {
	ID string `json:"id,omitempty"`
}

// turn is a document. It is not taken where an undo came first.
type turn struct {
	Taken bool `json:"taken"`
}

// remaking is a remake that has a record.
func (a *restore) remaking(t *journal.Token, e activities.Entry, s *step) (m *remaking, err error) {
	m = &remaking{world: a.world, remake: *s.Remake, entry: e, token: t, name: s.Container, holds: s.after}
	if m.kept, err = readContainer(m.Kept); err == nil {
		m.found, err = readContainer(m.Found)
	}
	return m, err
}

// run lets the container that was kept take the place of the one that has its name.
func (m *remaking) run(ctx context.Context) error {
	if err := m.checkFound(ctx); err != nil {
		return err
	}
	id := ""
	if m.kept != nil {
		var err error
		if id, err = m.prepare(ctx); err != nil {
			return err
		}
	}
	point.Reach("folder.restore:filled")
	if err := m.checkFound(ctx); err != nil { // filling takes its time
		return err
	}
	if err := m.takeTurn(); err != nil {
		return err
	}
	point.Reach("folder.restore:turn-taken")
	if m.found != nil {
		if err := m.setAside().SetAside(ctx); err != nil {
			return err
		}
		if err := m.checkFound(ctx); err != nil { // somebody may have started it up to here
			return activities.Errorf(activities.ActionFailed, "%v", err)
		}
	}
	if id == "" {
		return nil
	}
	if m.Aside != "" {
		err := m.keptAside().BringForward(ctx, m.Aside, m.wayForward())
		if errors.Is(err, aside.ErrLate) {
			return errors.Join(made{}.fenced(), err)
		}
		return err
	}
	holder, err := engine.FindHolder(ctx, m.engine, m.name)
	if err != nil || holder == id {
		return err
	}
	return engine.Explain("giving the container that was kept the name "+m.name,
		m.engine.ContainerRename(ctx, id, m.name))
}

// prepare has the container that was kept ready, with its files.
func (m *remaking) prepare(ctx context.Context) (id string, err error) {
	if m.Aside != "" {
		return m.bringForward()
	}
	if id, err = m.make(ctx); err != nil {
		return "", err
	}
	return id, errors.Join(m.sweep(ctx, id), m.fill(ctx, id))
}

// checkFound is an error where what is to be set aside is not at rest, or is not what was found.
func (m *remaking) checkFound(ctx context.Context) error {
	if m.found == nil {
		return nil
	}
	return m.checkStopped(ctx, *m.found)
}

// make makes the container that was kept, once, and names it in a document.
func (m *remaking) make(ctx context.Context) (id string, err error) {
	var doc made
	if found, err := m.token.Read(madeDoc, &doc); err != nil || found {
		return doc.ID, errors.Join(err, doc.fenced())
	}
	image := m.kept.Image
	if named, err := m.engine.ImageInspect(ctx, m.kept.Config.Image); err == nil && named.ID == image {
		image = m.kept.Config.Image
	}
	plan := blueprint.Copy(*m.kept, image)
	if err := m.token.CheckOpen(); err != nil {
		return "", err
	}
	own, err := m.engine.ContainerCreate(ctx, plan.Config, plan.Host, plan.Network, nil,
		m.namePrefix()+strings.ToLower(rand.Text()[:8]))
	if err != nil {
		return "", engine.Explain("making container "+m.name+" again", err)
	}
	point.Reach("folder.restore:created")
	if err := m.complete(ctx, own.ID, plan.Extra); err != nil {
		return "", errors.Join(err, m.remove(context.WithoutCancel(ctx), own.ID))
	}
	doc.ID = own.ID
	if _, err := m.token.Create(madeDoc, &doc); err != nil {
		return "", err
	}
	point.Reach("folder.restore:made")
	if doc.ID != own.ID {
		err = m.remove(ctx, own.ID)
	}
	return doc.ID, errors.Join(err, doc.fenced())
}

// namePrefix begins the name of a container that has not its own yet.
func (m *remaking) namePrefix() string { return aside.NamePrefix(m.entry.Token) + "again-" }

func (d made) fenced() error {
	if d.ID == "" {
		return activities.Errorf(activities.Fenced, "the step has been undone: this forward came too late")
	}
	return nil
}

// complete puts a container into its other networks, and refuses one that is not as it was.
func (m *remaking) complete(ctx context.Context, id string, networks []blueprint.Connection) error {
	for _, n := range networks {
		if err := m.engine.NetworkConnect(ctx, n.Network, id, n.Endpoint); err != nil {
			return engine.Explain("connecting container "+m.name+" to network "+n.Network, err)
		}
	}
	_, said, err := m.engine.ContainerInspectWithRaw(ctx, id, false)
	if err != nil {
		return engine.Explain("looking at the container that was made again", err)
	}
	differs, err := blueprint.Differs(m.Kept, said)
	if err == nil && len(differs) > 0 {
		err = activities.Errorf(activities.Refused,
			"container: %s cannot be made again as it was: the engine makes it with another %s", m.name,
			strings.Join(differs, ", "))
	}
	return err
}

// fill puts the files that were kept into the container that was made, which has none of its own.
func (m *remaking) fill(ctx context.Context, id string) error {
	at, err := m.locateMade(ctx, id)
	if err != nil {
		return err
	}
	defer at.close()
	progress, stop := snapshot.Show(ctx, at.name)
	defer stop()
	r := snapshot.Restore{Root: at.root(), Want: m.holds, From: m.store, Stage: at.stage(m.entry.Token),
		Over: m.token.CheckOpen, Look: snapshot.Look{Progress: progress}}
	differs, err := r.Run(ctx)
	err = errors.Join(err, r.Clear())
	if err == nil && len(differs) > 0 {
		err = fmt.Errorf("%s is being changed by someone else: %s is not as it was put back", at.name, differs[0])
	}
	return explain(err)
}

// locateMade finds the files of a container that was made, and is at rest.
func (m *remaking) locateMade(ctx context.Context, id string) (at location, err error) {
	c, said, err := m.engine.ContainerInspectWithRaw(ctx, id, false)
	if err != nil {
		return at, engine.Explain("looking at the container that was made again", err)
	}
	if err := m.checkStopped(ctx, c); err != nil {
		return at, err
	}
	at, err = m.locateFiles(ctx, c)
	at.said = said
	return at, err
}

// takeTurn is the last thing that an undo can forestall without a trace: whoever writes the document
// first, has the turn.
func (m *remaking) takeTurn() error {
	if err := m.token.CheckOpen(); err != nil {
		return err
	}
	doc := turn{Taken: true}
	if _, err := m.token.Create(turnDoc, &doc); err != nil {
		return err
	}
	if !doc.Taken {
		return made{}.fenced()
	}
	return m.token.CheckOpen()
}

// setAside is the container that was found, as what the token sets aside.
func (m *remaking) setAside() aside.Container {
	c := aside.Container{
		Engine: m.engine, Token: m.entry.Token, ID: m.found.ID, Name: m.name,
		Restarts: m.found.HostConfig.RestartPolicy, Images: []string{m.found.Image}, Left: m.left, Reach: reachRestore,
	}
	if m.kept != nil {
		c.Images = append(c.Images, m.kept.Image)
	}
	return c
}

func reachRestore(what string) { point.Reach("folder.restore:" + what) }

// remove removes a container, never its volumes.
func (w *world) remove(ctx context.Context, id string) error {
	err := w.engine.ContainerRemove(ctx, id, container.RemoveOptions{Force: true})
	if engine.IsNotFound(err) || engine.IsConflict(err) { // conflict: its removal is in progress
		return nil
	}
	return engine.Explain("removing container "+id, err)
}

// sweep removes what forwards of the token have made and that has not its name, but not what is kept.
func (m *remaking) sweep(ctx context.Context, keep string) error {
	found, err := m.engine.ContainerList(ctx,
		container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("name", "^/"+m.namePrefix()))})
	if err != nil {
		return engine.Explain("looking for what was left over", err)
	}
	for _, c := range found {
		made := slices.ContainsFunc(c.Names, func(name string) bool { return strings.HasPrefix(name, "/"+m.namePrefix()) })
		if !made || c.ID == keep {
			continue
		}
		if err := m.remove(ctx, c.ID); err != nil {
			return err
		}
	}
	return nil
}

// release removes what has a name of the token, or was left aside for it: after a commit the
// container that was set aside, after an undo what holds its names, and never that container. What
// it has brought forward stays.
func (m *remaking) release(ctx context.Context, fate journal.Fate) error {
	names, err := m.ownNames(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		holder, err := engine.FindHolder(ctx, m.engine, name)
		if err != nil {
			return err
		}
		isFound := m.found != nil && holder == m.found.ID
		if holder == "" || fate == journal.Undoing && isFound || m.Aside != "" && holder == m.kept.ID {
			continue
		}
		if !isFound {
			if isOurs, err := m.journals.MayDrop(name, m.entry.Token); err != nil {
				return err
			} else if !isOurs {
				continue
			}
		}
		if err := m.remove(ctx, name); err != nil { // by name: another step may be bringing it back
			return err
		}
	}
	return m.sweep(ctx, "")
}

// ownNames are those that the token has given or held.
func (m *remaking) ownNames(ctx context.Context) ([]string, error) {
	token := m.entry.Token
	names := []string{aside.NameFor(token), aside.ReturnName(token)}
	if m.Aside != "" {
		names = append(names, aside.FormerName(m.Aside), aside.LeftName(token, m.Aside))
	}
	var back goingBack
	if _, err := m.token.Read(backDoc, &back); err != nil || m.found == nil {
		return names, err
	}
	left, err := m.setAside().LeftBy(ctx)
	return append(names, slices.DeleteFunc([]string{back.Left, left}, func(n string) bool { return n == "" })...), err
}
