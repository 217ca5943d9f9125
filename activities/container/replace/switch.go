package replace

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"
	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/docker/aside"
	"github.com/seed-62bf7108/unwind/activities/docker/blueprint"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// make makes a container, once, and names it in a document before anybody starts it.
func (w *swap) make(ctx context.Context, doc string, plan blueprint.Blueprint) (id string, err error) {
	var m reference
	if found, err := w.token.Read(doc, &m); err != nil || found {
		return m.ID, errors.Join(err, m.fenced())
	}
	if err := w.token.CheckOpen(); err != nil {
		return "", err
	}
	name := aside.NamePrefix(w.entry.Token) + doc + "-" + strings.ToLower(rand.Text()[:8])
	own, err := w.Engine.ContainerCreate(ctx, plan.Config, plan.Host, plan.Network, nil, name)
	if err != nil {
		return "", engine.Explain("making a container from the image", err)
	}
	point.Reach("container.replace:" + doc + "-made")
	for _, n := range plan.Extra {
		if err := w.Engine.NetworkConnect(ctx, n.Network, own.ID, n.Endpoint); err != nil {
			return "", errors.Join(engine.Explain("connecting the new container to network "+n.Network, err),
				w.Lineage.RemoveMade(context.WithoutCancel(ctx), own.ID))
		}
	}
	m.ID = own.ID
	if _, err := w.token.Create(doc, &m); err != nil {
		return "", err
	}
	point.Reach("container.replace:" + doc + "-named")
	if m.ID != own.ID {
		err = w.Lineage.RemoveMade(ctx, own.ID)
	}
	return m.ID, errors.Join(err, m.fenced())
}

func (m reference) fenced() error {
	if m.ID == "" {
		return activities.Errorf(activities.Fenced, "the step has been undone: this forward came too late")
	}
	return nil
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
	id, err := w.make(ctx, trialDoc, blueprint.ForTrial(blueprint.CopyFrom(w.rec.Old, w.rec.Image, w.defaults(ctx))))
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
	return tried.Failure, w.Lineage.RemoveMade(ctx, id)
}

// change puts the old container aside, gives its name to the new one, and starts that.
func (w *swap) change(ctx context.Context, fresh string) (*activities.Error, error) {
	if err := w.takeTurn(); err != nil {
		return nil, err
	}
	old := w.setAside(w.entry.Token, w.rec.replacement)
	name := old.Name
	if err := old.SetAside(ctx); err != nil {
		return nil, err
	}
	if err := w.Engine.ContainerStop(ctx, aside.NameFor(w.entry.Token), container.StopOptions{}); err != nil {
		return nil, engine.Explain("stopping the old container", err)
	}
	point.Reach("container.replace:old-stopped")
	now, err := w.Engine.ContainerInspect(ctx, fresh)
	if err != nil {
		return nil, engine.Explain("looking at the new container", err)
	}
	if engine.NameOf(now) != name {
		if err := w.Engine.ContainerRename(ctx, fresh, name); err != nil {
			return nil, engine.Explain("giving the new container the name "+name, err)
		}
	}
	point.Reach("container.replace:new-named")
	failure, err := w.start(ctx, fresh)
	point.Reach("container.replace:new-started")
	return failure, err
}

// takeTurn is the last thing that an undo can forestall without a trace: whoever writes the
// document first, has the turn.
func (w *swap) takeTurn() error {
	if err := w.token.CheckOpen(); err != nil {
		return err
	}
	m := reference{w.rec.Old.ID}
	if _, err := w.token.Create(asideDoc, &m); err != nil {
		return err
	}
	return errors.Join(m.fenced(), w.token.CheckOpen())
}

// setAside is the old container, as what a token sets aside.
func (a *Action) setAside(token string, r replacement) aside.Container {
	return aside.Container{
		Engine: a.Engine, Token: token, ID: r.Old.ID, Name: engine.NameOf(r.Old),
		Restarts: r.Old.HostConfig.RestartPolicy, Images: []string{r.Old.Image, r.Image},
		Reach: func(what string) { point.Reach("container.replace:" + what) },
	}
}

// start starts a container of ours and waits until it is well, as far as its image says what that
// is. One that does not come up is the step's failure.
func (w *swap) start(ctx context.Context, id string) (*activities.Error, error) {
	fail := func(format string, args ...any) *activities.Error {
		return &activities.Error{Type: activities.Unsuccessful, Message: fmt.Sprintf("the new container "+format, args...)}
	}
	err := w.Engine.ContainerStart(ctx, id, container.StartOptions{})
	switch {
	case engine.IsNotFound(err) || ctx.Err() != nil || client.IsErrConnectionFailed(err):
		return nil, engine.Explain("starting the new container", err)
	case err != nil:
		return fail("does not start: %v", err), nil
	}
	for {
		c, err := w.Engine.ContainerInspect(ctx, id)
		switch {
		case err != nil:
			return nil, engine.Explain("looking at the new container", err)
		case !c.State.Running:
			return fail("has ended with exit status %d", c.State.ExitCode), nil
		case c.State.Health == nil || c.State.Health.Status == container.Healthy ||
			c.State.Health.Status == container.NoHealthcheck:
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

// defaults are the settings that the old container had from its image, and not from people; nil:
// its image is gone.
func (w *swap) defaults(ctx context.Context) *dockerspec.DockerOCIImageConfig {
	from, err := w.Lineage.Origin(ctx, w.rec.Old)
	if err != nil {
		return nil
	}
	img, err := w.Engine.ImageInspect(ctx, from)
	if err != nil {
		return nil
	}
	return img.Config
}

// sweep removes what the token's forwards have made and not named, or named and not removed; but
// not what is kept.
func (a *Action) sweep(ctx context.Context, token, keep string) error {
	found, err := a.Engine.ContainerList(ctx,
		container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("name", "^/"+aside.NamePrefix(token)))})
	if err != nil {
		return engine.Explain("looking for what was left over", err)
	}
	for _, c := range found {
		left := slices.ContainsFunc(c.Names, func(name string) bool {
			return strings.HasPrefix(name, "/"+aside.NamePrefix(token)+newDoc+"-") ||
				strings.HasPrefix(name, "/"+aside.NamePrefix(token)+trialDoc+"-")
		})
		if left && c.ID != keep {
			if err := a.Lineage.RemoveMade(ctx, c.ID); err != nil {
				return err
			}
		}
	}
	return nil
}
