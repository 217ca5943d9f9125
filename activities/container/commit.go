package container

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/engine"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// commits is the plain backend: docker commit, and a new container from the image. It needs nothing but the engine's
// API, works with any storage driver, and costs what the container's own layer weighs.
type commits struct {
	engine  engine.Client
	lineage lineage
}

// A checkpoint is known by its name while a token needs it, and by its comment afterwards: a label would turn up among
// those of the container made from it. Each attempt gives it a name of its own: an engine may still be committing for one
// that died, and would take a common name away from the image that counts.
const (
	checkpointRepository = "unwind/checkpoint"
	checkpointComment    = "Unwind: checkpoint before a step"
)

// standingRepository names what has lost the name that its token gave it, and a container stands on. An engine takes the
// last name of such an image only by force, and by force it takes the image away under a container that does not run.
const standingRepository = "unwind/standing"

// ours says that an image with this comment was made here.
func ours(comment string) bool { return comment == checkpointComment || comment == keptComment }

// checkpointRefs is what the names of a token's checkpoints begin with.
func checkpointRefs(token string) string { return checkpointRepository + ":" + token }

func (c *commits) take(ctx context.Context, token, id string) (string, error) {
	had, now, err := c.taken(ctx, token, id)
	if had != "" || err != nil {
		return had, err
	}
	if err := c.enough(ctx, now); err != nil {
		return "", err
	}
	made, err := c.snapshot(ctx, id, checkpointRefs(token)+"-"+strings.ToLower(rand.Text()[:8]), checkpointComment)
	return made, engine.Explain("checkpoint of the container", err)
}

// taken is the checkpoint that an attempt has taken which died; empty for none. Where the engine is at it still, the
// container is paused, and the image has its name before the container goes on. It returns the container as it is now.
func (c *commits) taken(ctx context.Context, token, id string) (had string, now container.InspectResponse, err error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if now, err = c.engine.ContainerInspect(ctx, id); err != nil {
			return "", now, engine.Explain("looking at the container", err)
		}
		found, err := c.named(ctx, checkpointRefs(token))
		if err != nil {
			return "", now, err
		}
		switch {
		case len(found) > 0:
			return found[0].ID, now, nil
		case !now.State.Paused:
			return "", now, nil
		}
		select {
		case <-ctx.Done():
			return "", now, activities.Errorf(activities.ActionFailed, "container %s is paused; docker unpause %[1]s wakes it", nameOf(now))
		case <-tick.C:
		}
	}
}

func (c *commits) look(ctx context.Context, _, id string, ignore []string) (manifest, error) {
	return takeManifest(ctx, c.engine, id, ignore)
}

// standing resolves the id that a container had when a step recorded it to the one that it has now, after the rollbacks
// that have been since. Rollbacks that were cut short are finished first. The container may be gone.
func (c *commits) standing(ctx context.Context, id string) (string, error) {
	last, err := c.lineage.walk(ctx, id, c.settle, func(successor) bool { return false })
	return last.ID, err
}

func (c *commits) begun(ctx context.Context, to rollback) (bool, error) {
	last, err := c.lineage.walk(ctx, to.Container.ID, c.settle, to.mine)
	return to.mine(last), err
}

// rollback builds the new container beside the old one, complete but not started, looks at it, and has it named the old
// one's successor. Only then do the two change places.
func (c *commits) rollback(ctx context.Context, r rollback) (restored, error) {
	for {
		last, err := c.lineage.walk(ctx, r.Container.ID, c.settle, r.decidedBy)
		if err != nil {
			return restored{}, err
		}
		if r.mine(last) {
			return restored{ID: last.ID, Differs: last.Differs, Stopped: !last.Start}, c.sweep(ctx, r, last)
		}
		if r.fencedBy(last) {
			return restored{}, activities.Errorf(activities.Fenced, "the step has been taken back: this call came too late")
		}
		if err := c.replace(ctx, r, last.ID); err != nil {
			return restored{}, err
		}
	}
}

// replace gives the container old a successor: a new one from the checkpoint, or whoever was quicker.
func (c *commits) replace(ctx context.Context, r rollback, old string) (err error) {
	model, retire, err := c.model(ctx, r, old)
	if err != nil {
		return err
	}
	mine := successor{
		Name: nameOf(model), Start: !r.Stopped, Retire: retire, Stood: model.Image, Token: r.Token, Turn: r.Turn,
	}
	claiming := false
	defer func() {
		if !claiming {
			err = errors.Join(err, c.discard(context.WithoutCancel(ctx), mine))
		}
	}()
	if r.Keep != "" && retire == old {
		if mine.Kept, err = c.keep(ctx, r, model); err != nil {
			return err
		}
	}
	// To keep something takes long. Who was quicker meanwhile may have swept up already: what is built now and left by a
	// process that dies would stay.
	if late, err := c.lineage.decided(old); late || err != nil {
		return err
	}
	if mine.ID, err = c.build(ctx, r, model); err != nil {
		return err
	}
	point.Reach("container.exec:candidate-built")
	if mine.Differs, err = c.compare(ctx, r, mine.ID); err != nil {
		return err
	}
	claiming = true // from here on the journal decides, also where it fails to answer: a sweep clears away who has lost
	won, err := c.lineage.claim(old, mine)
	if err != nil {
		return err
	}
	point.Reach("container.exec:successor-named")
	if won.ID != mine.ID {
		return c.discard(ctx, mine)
	}
	return nil
}

// discard clears away what was made for a successor that was not chosen.
func (c *commits) discard(ctx context.Context, s successor) error {
	var err error
	if s.ID != "" {
		err = c.remove(ctx, s.ID)
	}
	if s.Kept != nil {
		_, removed := c.engine.ImageRemove(ctx, s.Kept.Image, image.RemoveOptions{})
		if removed != nil && !engine.IsNotFound(removed) && !engine.IsConflict(removed) {
			err = errors.Join(err, engine.Explain("dropping what was kept", removed))
		}
	}
	return err
}

// compare lists what in a candidate is not as it has to be.
func (c *commits) compare(ctx context.Context, r rollback, candidate string) ([]string, error) {
	if r.Before == nil {
		return nil, nil
	}
	seen, err := takeManifest(ctx, c.engine, candidate, r.Ignore)
	if err != nil {
		return nil, err
	}
	differs := r.Before.diff(seen)
	if r.Exactly && len(differs) > 0 {
		return nil, activities.Errorf(activities.DamagedRecord, "%d paths of what was kept of %s are not as they were: %s",
			len(differs), nameOf(r.Container), strings.Join(few(differs), "; "))
	}
	return differs, nil
}

// model is the container to copy the settings of, and the one to retire.
func (c *commits) model(ctx context.Context, r rollback, old string) (model container.InspectResponse, retire string, err error) {
	switch present, err := c.engine.ContainerInspect(ctx, old); {
	case err == nil && !isPutAside(present):
		return present, old, nil
	case err != nil && !engine.IsNotFound(err):
		return model, "", engine.Explain("looking at the container", err)
	}
	return r.Container, r.Usurper, nil
}

// build makes the candidate under a name of its own. Nothing else knows its id until it is claimed.
func (c *commits) build(ctx context.Context, r rollback, model container.InspectResponse) (id string, err error) {
	plan := copyOf(model, r.Checkpoint)
	name := candidates(r.Token) + r.Turn + "-" + strings.ToLower(rand.Text()[:8])
	made, err := c.engine.ContainerCreate(ctx, plan.config, plan.host, plan.network, nil, name)
	if engine.IsNotFound(err) { // of the image, or of a network or a volume that may come back
		if _, gone := c.engine.ImageInspect(ctx, r.Checkpoint); engine.IsNotFound(gone) {
			return "", activities.Errorf(activities.DamagedRecord, "the image to make container %s anew from is gone: somebody has removed %s from the engine", nameOf(r.Container), r.Checkpoint)
		}
	}
	if err != nil {
		return "", engine.Explain("making the container anew from its image", err)
	}
	for _, n := range plan.extra {
		if err := c.engine.NetworkConnect(ctx, n.id, made.ID, n.endpoint); err != nil {
			err = engine.Explain("connecting the new container to network "+n.id, err)
			return "", errors.Join(err, c.remove(context.WithoutCancel(ctx), made.ID))
		}
	}
	return made.ID, nil
}

// candidates is what the names of a token's candidates begin with; the turn follows, and a part of each one's own.
func candidates(token string) string { return "unwind-" + token + "-" }

// beaten says of a candidate's name that whoever builds it has lost against this rollback.
func (r rollback) beaten(name string) bool {
	turn, ours := strings.CutPrefix(strings.TrimPrefix(name, "/"), candidates(r.Token))
	if i := strings.LastIndexByte(turn, '-'); i >= 0 {
		turn = turn[:i]
	}
	return ours && (turn == r.Turn || rank(turn) < rank(r.Turn))
}

// settle lets the successor take the place of the container that it was made from. Every step is by id, and nothing once
// it has been done.
func (c *commits) settle(ctx context.Context, s successor) error {
	if s.Retire != "" {
		if err := c.stepAside(ctx, s); err != nil {
			return err
		}
	}
	point.Reach("container.exec:old-stopped")
	fresh, err := c.engine.ContainerInspect(ctx, s.ID)
	if engine.IsNotFound(err) { // someone has removed it since
		return nil
	}
	if err != nil {
		return engine.Explain("looking at the new container", err)
	}
	if fresh.Name != "/"+s.Name {
		if err := c.engine.ContainerRename(ctx, s.ID, s.Name); err != nil && !c.renamed(ctx, s) {
			return engine.Explain("giving the new container the name "+s.Name, err)
		}
	}
	point.Reach("container.exec:new-named")
	if s.Start && fresh.State.Status == container.StateCreated {
		if err := c.engine.ContainerStart(ctx, s.ID, container.StartOptions{}); err != nil && !engine.IsNotFound(err) {
			return engine.Explain("starting the new container "+s.Name, err)
		}
	}
	point.Reach("container.exec:new-started")
	if s.Retire == "" {
		return nil
	}
	if err := c.remove(ctx, s.Retire); err != nil {
		return err
	}
	return c.dropImage(ctx, s.Stood)
}

// renamed says that another process has renamed it in the meantime.
func (c *commits) renamed(ctx context.Context, s successor) bool {
	now, err := c.engine.ContainerInspect(ctx, s.ID)
	return err == nil && now.Name == "/"+s.Name
}

// stepAside frees the name, and then the ports and addresses, of the container that has to go, with every process in it.
func (c *commits) stepAside(ctx context.Context, s successor) error {
	old, err := c.engine.ContainerInspect(ctx, s.Retire)
	if engine.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return engine.Explain("looking at the old container", err)
	}
	if old.Name == "/"+s.Name {
		err := c.engine.ContainerRename(ctx, s.Retire, "unwind-old-"+s.Retire[:12])
		if err != nil && !engine.IsNotFound(err) && !engine.IsInvalid(err) {
			return engine.Explain("setting the old container aside", err)
		}
	}
	point.Reach("container.exec:old-renamed")
	return c.kill(ctx, s.Retire, old.State.Paused)
}

// kill ends every process in a container and waits until they are gone.
func (c *commits) kill(ctx context.Context, id string, paused bool) error {
	if paused { // an engine refuses to kill what it has paused
		if err := c.engine.ContainerUnpause(ctx, id); err != nil && !engine.IsNotFound(err) && !engine.IsConflict(err) {
			return engine.Explain("unpausing the old container", err)
		}
	}
	err := c.engine.ContainerKill(ctx, id, "KILL")
	if err != nil && !engine.IsNotFound(err) && !engine.IsConflict(err) { // conflict: it does not run
		return engine.Explain("ending the old container", err)
	}
	over, failed := c.engine.ContainerWait(ctx, id, container.WaitConditionNotRunning)
	select {
	case <-over:
		return nil
	case err := <-failed:
		if engine.IsNotFound(err) {
			return nil
		}
		return engine.Explain("waiting for the old container's end", err)
	}
}

// remove removes a container, never its volumes, and the checkpoint image that it alone was made from.
func (c *commits) remove(ctx context.Context, id string) error {
	return c.removeWith(ctx, id, container.RemoveOptions{Force: true})
}

func (c *commits) removeWith(ctx context.Context, id string, how container.RemoveOptions) error {
	gone, err := c.engine.ContainerInspect(ctx, id)
	if engine.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return engine.Explain("looking at container "+id[:12], err)
	}
	err = c.engine.ContainerRemove(ctx, id, how)
	if err != nil && !engine.IsNotFound(err) && !engine.IsConflict(err) { // conflict: its removal is in progress
		return engine.Explain("removing container "+id[:12], err)
	}
	return c.dropImage(ctx, gone.Image)
}

// sweep removes the candidates of calls that were cut short, and what they have kept: the successor of this rollback is
// chosen, so that all others of its turn, and those of turns which it fences, have lost; also where the builder is still to
// find out.
func (c *commits) sweep(ctx context.Context, r rollback, chosen successor) error {
	err := c.dropCandidates(ctx, r.Token, func(candidate container.Summary) bool {
		return candidate.ID != chosen.ID && slices.ContainsFunc(candidate.Names, r.beaten)
	})
	if err != nil || r.Turn != undoTurn {
		return err
	}
	return c.dropKeptBut(ctx, r.Token, chosen.Kept)
}

// dropCandidates removes those of a token's candidates that have lost.
func (c *commits) dropCandidates(ctx context.Context, token string, lost func(container.Summary) bool) error {
	found, err := c.engine.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(
		filters.Arg("name", "^/"+candidates(token)), filters.Arg("status", "created"),
	)})
	if err != nil {
		return engine.Explain("looking for what was left over", err)
	}
	for _, candidate := range found {
		if lost(candidate) {
			if err := c.remove(ctx, candidate.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// release drops everything that is the token's. Nothing of it is under way any more: whatever candidate there is was left.
func (c *commits) release(ctx context.Context, token string) error {
	every := func(container.Summary) bool { return true }
	return errors.Join(c.dropNamed(ctx, checkpointRefs(token), ""), c.dropKept(ctx, token), c.dropCandidates(ctx, token, every))
}

// drop takes the names of all of the token's checkpoints away. The layers stay for as long as a container stands on them;
// when that container is replaced in its turn, they go with it.
func (c *commits) drop(ctx context.Context, token, id string) error {
	if id != "" {
		if err := c.settleCommit(ctx, id); err != nil {
			return err
		}
	}
	return c.dropNamed(ctx, checkpointRefs(token), "")
}

// commitLimit bounds how long a drop waits for the engine: a container may also be paused by a person. What is named after
// that goes when the record is released.
const commitLimit = 30 * time.Second

// settleCommit waits while the engine commits a container, as far as that can be told: it is paused.
func (c *commits) settleCommit(ctx context.Context, id string) error {
	over := time.After(commitLimit)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		now, err := c.engine.ContainerInspect(ctx, id)
		switch {
		case engine.IsNotFound(err):
			return nil
		case err != nil:
			return engine.Explain("looking at the container", err)
		case !now.State.Paused:
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-over:
			return nil
		case <-tick.C:
		}
	}
}

// named are the images with a name that begins so.
func (c *commits) named(ctx context.Context, refs string) ([]image.Summary, error) {
	found, err := c.engine.ImageList(ctx, image.ListOptions{Filters: filters.NewArgs(filters.Arg("reference", refs+"*"))})
	return found, engine.Explain("looking for images "+refs+"*", err)
}

// dropNamed takes these names away from all images but one.
func (c *commits) dropNamed(ctx context.Context, refs, but string) error {
	found, err := c.named(ctx, refs)
	if err != nil {
		return err
	}
	for _, img := range found {
		if img.ID == but {
			continue
		}
		for _, ref := range img.RepoTags {
			if !strings.HasPrefix(ref, refs) {
				continue
			}
			if err := c.dropRef(ctx, ref); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *commits) dropRef(ctx context.Context, ref string) error {
	named, err := c.engine.ImageInspect(ctx, ref)
	if engine.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return engine.Explain("looking for image "+ref, err)
	}
	_, err = c.engine.ImageRemove(ctx, ref, image.RemoveOptions{})
	if engine.IsConflict(err) { // a container stands on it
		if err = c.engine.ImageTag(ctx, named.ID, standingRef(named.ID)); err == nil {
			_, err = c.engine.ImageRemove(ctx, ref, image.RemoveOptions{})
		}
	}
	if err != nil && !engine.IsNotFound(err) && !engine.IsConflict(err) {
		return engine.Explain("dropping image "+ref, err)
	}
	// Where the name was the last thing that held the image it is gone already, and its parent has nothing above it now.
	return errors.Join(c.dropImage(ctx, named.ID), c.dropImage(ctx, named.Parent)) //nolint:staticcheck // see dropImage
}

func standingRef(id string) string {
	return standingRepository + ":" + strings.TrimPrefix(id, "sha256:")[:12]
}

// dropImage removes an image that was made here, that no token has a name for any more and that nothing stands on, and its
// parents while they are the same. Images that are not ours are never touched.
func (c *commits) dropImage(ctx context.Context, id string) error {
	for id != "" {
		img, err := c.engine.ImageInspect(ctx, id)
		if engine.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return engine.Explain("looking at image "+id, err)
		}
		nameless := !slices.ContainsFunc(img.RepoTags, func(ref string) bool { return ref != standingRef(img.ID) })
		if !ours(img.Comment) || !nameless {
			return nil
		}
		switch _, err := c.engine.ImageRemove(ctx, id, image.RemoveOptions{}); {
		case engine.IsConflict(err): // something stands on it
			return nil
		case err != nil && !engine.IsNotFound(err):
			return engine.Explain("dropping image "+id, err)
		}
		id = img.Parent //nolint:staticcheck // it is told by every engine that makes images by commit
	}
	return nil
}
