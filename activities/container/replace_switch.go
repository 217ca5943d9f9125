package container

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/client"
	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/engine"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// The old container keeps its id, so that a late call could still do something to it. Therefore none is made by its id
// but the first, which gives it a name: asideName by a forward, returnName by an undo. Whatever follows names that, and
// who comes too late finds it taken by a container that was never started and cannot be (see barrier).
func asideName(token string) string  { return candidates(token) + "aside" }
func returnName(token string) string { return candidates(token) + "return" }

var asideNames = regexp.MustCompile(`^/unwind-[0-9a-f]{32}-(aside|return)$`)

// isPutAside says that a replacement has put a container aside: it does not stand in its place.
func isPutAside(c container.InspectResponse) bool { return asideNames.MatchString(c.Name) }

// barrierCommand is nothing that any image has.
const barrierCommand = "/unwind-holds-this-name"

// barrier takes a name for good, so that the old container cannot get it any more. It is not taken where the old
// container has it.
func (a *replaceAction) barrier(ctx context.Context, name string, r replacement) (taken bool, err error) {
	for _, image := range []string{r.Old.Image, r.Image} { // somebody may have removed one
		_, err = a.x.engine.ContainerCreate(ctx, &container.Config{Image: image, Entrypoint: []string{barrierCommand}},
			&container.HostConfig{NetworkMode: "none"}, nil, nil, name)
		if !engine.IsNotFound(err) {
			break
		}
	}
	if err != nil && !engine.IsConflict(err) {
		return false, engine.Explain("taking the name "+name, err)
	}
	holder, err := a.x.engine.ContainerInspect(ctx, name)
	return err == nil && holder.ID != r.Old.ID, engine.Explain("looking at "+name, err)
}

// make makes a container, once, and names it in a document before anybody starts it.
func (w *swap) make(ctx context.Context, doc string, plan blueprint) (id string, err error) {
	var m made
	if found, err := w.token.Read(doc, &m); err != nil || found {
		return m.ID, errors.Join(err, m.fenced())
	}
	if err := w.token.CheckOpen(); err != nil {
		return "", err
	}
	name := candidates(w.entry.Token) + doc + "-" + strings.ToLower(rand.Text()[:8])
	own, err := w.x.engine.ContainerCreate(ctx, plan.config, plan.host, plan.network, nil, name)
	if err != nil {
		return "", engine.Explain("making a container from the image", err)
	}
	point.Reach("container.replace:" + doc + "-made")
	for _, n := range plan.extra {
		if err := w.x.engine.NetworkConnect(ctx, n.id, own.ID, n.endpoint); err != nil {
			return "", errors.Join(engine.Explain("connecting the new container to network "+n.id, err), w.x.discard(context.WithoutCancel(ctx), own.ID))
		}
	}
	m.ID = own.ID
	if _, err := w.token.Create(doc, &m); err != nil {
		return "", err
	}
	point.Reach("container.replace:" + doc + "-named")
	if m.ID != own.ID {
		err = w.x.discard(ctx, own.ID)
	}
	return m.ID, errors.Join(err, m.fenced())
}

func (m made) fenced() error {
	if m.ID == "" {
		return activities.Errorf(activities.Fenced, "the step has been undone: this forward came too late")
	}
	return nil
}

// discard removes a container that a step has made, running or not, with the volumes that were made for it alone, and the
// checkpoint that it alone stood on: steps have run in it perhaps.
func (x *execAction) discard(ctx context.Context, id string) error {
	return (&commits{engine: x.engine}).removeWith(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
}

// discardOthers removes a container that no step has made. Its volumes stay.
func (x *execAction) discardOthers(ctx context.Context, id string) error {
	return (&commits{engine: x.engine}).remove(ctx, id)
}

// isTried says that a step has checks for a trial.
func isTried(s activities.Step) bool {
	return slices.ContainsFunc(s.Checks, func(c activities.Check) bool { return c.When != activities.Live })
}

// try starts the image beside the old container and holds the checks of what is staged against it.
func (w *swap) try(ctx context.Context) (*activities.Error, error) {
	if !isTried(w.step) {
		return nil, nil //nolint:nilnil // there is nothing to try, and nothing wrong
	}
	var tried struct {
		Failure *activities.Error `json:"failure,omitempty"`
	}
	if found, err := w.token.Read(triedDoc, &tried); found || err != nil {
		return tried.Failure, err
	}
	id, err := w.make(ctx, trialDoc, forTrial(copyFrom(w.rec.Old, w.rec.Image, w.defaults(ctx))))
	if err != nil {
		return nil, err
	}
	if tried.Failure, err = w.start(ctx, id); err != nil {
		return nil, err
	}
	point.Reach("container.replace:trial-started")
	if tried.Failure == nil {
		if tried.Failure, err = w.check(ctx, id, activities.Staged); err != nil {
			return nil, err
		}
	}
	if _, err := w.token.Create(triedDoc, &tried); err != nil {
		return nil, err
	}
	return tried.Failure, w.x.discard(ctx, id)
}

// change puts the old container aside, gives its name to the new one, and starts that.
func (w *swap) change(ctx context.Context, fresh string) (*activities.Error, error) {
	if err := w.takeTurn(); err != nil {
		return nil, err
	}
	name, aside := nameOf(w.rec.Old), asideName(w.entry.Token)
	old, err := w.x.engine.ContainerInspect(ctx, w.rec.Old.ID)
	if err != nil {
		return nil, engine.Explain("looking at the old container", err)
	}
	if nameOf(old) != aside {
		point.Reach("container.replace:before-aside")
		if err := w.x.engine.ContainerRename(ctx, old.ID, aside); err != nil {
			return nil, engine.Explain("setting the old container aside", err)
		}
	}
	point.Reach("container.replace:old-renamed")
	if !w.rec.Old.HostConfig.RestartPolicy.IsNone() { // it would come back with the engine, or count its end as a failure
		if err := w.x.restarts(ctx, aside, container.RestartPolicy{Name: container.RestartPolicyDisabled}); err != nil {
			return nil, err
		}
	}
	if err := w.x.engine.ContainerStop(ctx, aside, container.StopOptions{}); err != nil {
		return nil, engine.Explain("stopping the old container", err)
	}
	point.Reach("container.replace:old-stopped")
	now, err := w.x.engine.ContainerInspect(ctx, fresh)
	if err != nil {
		return nil, engine.Explain("looking at the new container", err)
	}
	if nameOf(now) != name {
		if err := w.x.engine.ContainerRename(ctx, fresh, name); err != nil {
			return nil, engine.Explain("giving the new container the name "+name, err)
		}
	}
	point.Reach("container.replace:new-named")
	failure, err := w.start(ctx, fresh)
	point.Reach("container.replace:new-started")
	return failure, err
}

// takeTurn is the last thing that an undo can forestall without a trace: whoever writes the document first, has the turn.
func (w *swap) takeTurn() error {
	if err := w.token.CheckOpen(); err != nil {
		return err
	}
	m := made{w.rec.Old.ID}
	if _, err := w.token.Create(asideDoc, &m); err != nil {
		return err
	}
	return errors.Join(m.fenced(), w.token.CheckOpen())
}

func (x *execAction) restarts(ctx context.Context, name string, policy container.RestartPolicy) error {
	_, err := x.engine.ContainerUpdate(ctx, name, container.UpdateConfig{RestartPolicy: policy})
	return engine.Explain("setting when container "+name+" is started again", err)
}

// start starts a container of ours and waits until it is well, as far as its image says what that is. One that does not
// come up is the step's failure.
func (w *swap) start(ctx context.Context, id string) (*activities.Error, error) {
	fail := func(format string, args ...any) *activities.Error {
		return &activities.Error{Type: activities.ActionDenied, Message: fmt.Sprintf("the new container "+format, args...)}
	}
	err := w.x.engine.ContainerStart(ctx, id, container.StartOptions{})
	switch {
	case engine.IsNotFound(err) || ctx.Err() != nil || client.IsErrConnectionFailed(err):
		return nil, engine.Explain("starting the new container", err)
	case err != nil:
		return fail("does not start: %v", err), nil
	}
	for {
		c, err := w.x.engine.ContainerInspect(ctx, id)
		switch {
		case err != nil:
			return nil, engine.Explain("looking at the new container", err)
		case !c.State.Running:
			return fail("has ended with exit status %d", c.State.ExitCode), nil
		case c.State.Health == nil || c.State.Health.Status == container.Healthy || c.State.Health.Status == container.NoHealthcheck:
			return nil, nil //nolint:nilnil // it is well
		case c.State.Health.Status == container.Unhealthy:
			return fail("is unhealthy, as its own health check says"), nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// defaults are the settings that the old container had from its image, and not from people; nil: its image is gone.
func (w *swap) defaults(ctx context.Context) *dockerspec.DockerOCIImageConfig {
	from, err := w.x.backend.origin(ctx, w.rec.Old)
	if err != nil {
		return nil
	}
	img, err := w.x.engine.ImageInspect(ctx, from)
	if err != nil {
		return nil
	}
	return img.Config
}

// copyFrom plans a container like the old one from another image: what it had from its image, it has from the new one.
func copyFrom(old container.InspectResponse, image string, had *dockerspec.DockerOCIImageConfig) blueprint {
	plan := copyOf(old, image)
	if had == nil {
		return plan
	}
	c := plan.config
	c.Env = slices.DeleteFunc(slices.Clone(c.Env), func(v string) bool { return slices.Contains(had.Env, v) })
	c.Labels = maps.Clone(c.Labels)
	maps.DeleteFunc(c.Labels, func(name, value string) bool { is, has := had.Labels[name]; return has && is == value })
	if slices.Equal(c.Entrypoint, had.Entrypoint) {
		c.Entrypoint = nil
		if slices.Equal(c.Cmd, had.Cmd) {
			c.Cmd = nil
		}
	}
	if c.User == had.User {
		c.User = ""
	}
	if c.WorkingDir == had.WorkingDir {
		c.WorkingDir = ""
	}
	if c.StopSignal == had.StopSignal {
		c.StopSignal = ""
	}
	return plan
}

// forTrial leaves out of a plan what only one container can have: published ports, fixed addresses, names in networks and of
// its own. What the old container has mounted, a trial only reads: nothing gives back what it would write there.
func forTrial(plan blueprint) blueprint {
	plan.config.Hostname, plan.config.Domainname = "", ""
	plan.host.Binds, plan.host.Mounts = onlyRead(plan.host.Binds), slices.Clone(plan.host.Mounts)
	for i, m := range plan.host.Mounts {
		plan.host.Mounts[i].ReadOnly = m.ReadOnly || m.Type != mount.TypeTmpfs
	}
	plan.host.VolumesFrom = slices.Clone(plan.host.VolumesFrom)
	for i, from := range plan.host.VolumesFrom {
		from, _, _ = strings.Cut(from, ":")
		plan.host.VolumesFrom[i] = from + ":ro"
	}
	plan.host.PortBindings, plan.host.PublishAllPorts = nil, false
	plan.host.RestartPolicy = container.RestartPolicy{}
	plan.config.MacAddress = "" //nolint:staticcheck // what an engine before API 1.44 reads
	for _, endpoint := range plan.network.EndpointsConfig {
		endpoint.Aliases, endpoint.IPAMConfig = nil, nil
	}
	for _, n := range plan.extra {
		n.endpoint.Aliases, n.endpoint.IPAMConfig = nil, nil
	}
	return plan
}

// onlyRead is a list of binds ("what:where" or "what:where:options") without those to write.
func onlyRead(binds []string) []string {
	read := make([]string, 0, len(binds))
	for _, b := range binds {
		parts := strings.SplitN(b, ":", 3)
		options := []string{"ro"}
		if len(parts) == 3 {
			for o := range strings.SplitSeq(parts[2], ",") {
				if o != "rw" && o != "ro" {
					options = append(options, o)
				}
			}
		}
		if len(parts) > 1 {
			b = parts[0] + ":" + parts[1] + ":" + strings.Join(options, ",")
		}
		read = append(read, b)
	}
	return read
}

// sweep removes what the token's forwards have made and not named, or named and not removed; but not what is kept.
func (a *replaceAction) sweep(ctx context.Context, token, keep string) error {
	found, err := a.x.engine.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("name", "^/"+candidates(token)))})
	if err != nil {
		return engine.Explain("looking for what was left over", err)
	}
	for _, c := range found {
		left := slices.ContainsFunc(c.Names, func(name string) bool {
			return strings.HasPrefix(name, "/"+candidates(token)+newDoc+"-") || strings.HasPrefix(name, "/"+candidates(token)+trialDoc+"-")
		})
		if left && c.ID != keep {
			if err := a.x.discard(ctx, c.ID); err != nil {
				return err
			}
		}
	}
	return nil
}
