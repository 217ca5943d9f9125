package folder

import (
	"context"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities/docker/aside"
	"github.com/seed-62bf7108/unwind/activities/docker/blueprint"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/activities/snapshot"
)

// findAside finds the container that was kept where an earlier step has set it aside, and nobody has
// changed it since: so it has its own id when somebody goes forward again. It is empty where there
// is none such, and one has to be made.
func (w *world) findAside(ctx context.Context, m *remake, holds snapshot.Content) (name string, err error) {
	was, err := readContainer(m.Kept)
	if err != nil || was == nil {
		return "", err
	}
	c, said, err := w.engine.ContainerInspectWithRaw(ctx, was.ID, false)
	if engine.IsNotFound(err) || err == nil && (!aside.Is(c) || !engine.IsAtRest(c)) {
		return "", nil
	}
	if err != nil {
		return "", engine.Explain("looking for the container that was kept", err)
	}
	differs, err := blueprint.Differs(m.Kept, said)
	if err != nil {
		return "", err
	}
	differs = slices.DeleteFunc(differs, func(name string) bool { // that of what is set aside is another one
		return strings.HasPrefix(name, "HostConfig.RestartPolicy.")
	})
	if len(differs) > 0 {
		return "", nil
	}
	at, err := w.locateFiles(ctx, c)
	if err != nil {
		return "", err
	}
	defer at.close()
	now, err := w.store.Scan(ctx, at.root(), snapshot.Look{})
	if err != nil || len(holds.Differs(now)) > 0 {
		return "", explain(err)
	}
	return engine.NameOf(c), nil
}

// keptAside is the container that was kept, as what an earlier step has set aside.
func (m *remaking) keptAside() aside.Container {
	c := aside.Container{Engine: m.engine, Token: m.entry.Token, ID: m.kept.ID, Name: m.name,
		Restarts: m.kept.HostConfig.RestartPolicy, Images: []string{m.kept.Image}, Reach: reachRestore}
	if m.found != nil {
		c.Images = append(c.Images, m.found.Image)
	}
	return c
}

// wayForward is the name that the container has while it is brought forward.
func (m *remaking) wayForward() string { return m.namePrefix() + "forward" }

// bringForward names the container that was kept in the document of what the step makes.
func (m *remaking) bringForward() (id string, err error) {
	doc := made{ID: m.kept.ID}
	if _, err := m.token.Create(madeDoc, &doc); err != nil {
		return "", err
	}
	return doc.ID, doc.fenced()
}

// leaveAside sets the container that was brought forward aside again for the step that had done so,
// or removes it where the record of that is released. It has a name of this step then, which
// whoever brings it forward next, or back, holds: an undo that comes late cannot move it again.
func (m *remaking) leaveAside(ctx context.Context) error {
	name := aside.LeftName(m.entry.Token, m.Aside)
	c, err := m.engine.ContainerInspect(ctx, m.kept.ID)
	if engine.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return engine.Explain("looking at the container that was brought forward", err)
	}
	if slices.Contains([]string{m.name, m.Aside, m.wayForward()}, engine.NameOf(c)) {
		point.Reach("folder.restore:before-left")
		if err := m.engine.ContainerRename(ctx, m.kept.ID, name); err != nil {
			return engine.Explain("setting the container aside again that was brought forward", err)
		}
	}
	point.Reach("folder.restore:left-aside")
	if _, err := m.keptAside().Hold(ctx, aside.FormerName(m.Aside)); err != nil { // the forward may not have got so far
		return err
	}
	if err := m.keptAside().StopRestarts(ctx, name); err != nil && !engine.IsNotFound(err) {
		return err
	}
	if isReleasing, err := m.journals.IsReleasing(aside.OwnerOf(m.Aside)); err != nil || !isReleasing {
		return err
	}
	err = m.engine.ContainerRemove(ctx, name, container.RemoveOptions{Force: true})
	if engine.IsNotFound(err) || engine.IsConflict(err) {
		return nil
	}
	return engine.Explain("removing container "+name, err)
}
