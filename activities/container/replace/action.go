package replace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/go-connections/nat"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/lease"
	"github.com/seed-62bf7108/unwind/activities/container/lineage"
	"github.com/seed-62bf7108/unwind/activities/container/target"
	"github.com/seed-62bf7108/unwind/activities/docker/aside"
	"github.com/seed-62bf7108/unwind/activities/docker/blueprint"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
)

// Action is container.replace: a new container takes the place of another, which is put aside until
// the step's record is released.
type Action struct {
	Store   target.Store
	Engine  target.Engine
	Leases  *lease.Leases
	Lineage *lineage.Lineage
	// Journals are those of this host whose steps set containers aside.
	Journals aside.Journals
}

// params are what a task file writes below with:.
type params struct {
	Container string   `json:"container" jsonschema:"name of the container to replace; it must be running"`
	Image     string   `json:"image" jsonschema:"name or id of the image to make the new container from, or a checkpoint of container.exec; the engine must have it"`
	Ignore    []string `json:"ignore,omitempty" jsonschema:"absolute paths that an undo neither compares nor asks about before it throws them away; defaults to /tmp, /run and /var/log"`
}

func (a *Action) Spec() activities.Spec {
	return activities.Spec{
		Name: "container.replace",
		Summary: "Replace a container by a new one from another image, and keep the old one until the step's record is " +
			"dropped.",
		Params: activities.ParamsSchema[params](),
		Outputs: map[string]string{
			"container": "the new container's id", "replaced": "the old container's id",
			"image": "the id of the new container's image",
		},
		UndoParams: []string{"container"},
		Keys:       []activities.Key{{Prefix: target.KeyPrefix, Param: "container"}},
		MayChange:  []string{"file:"}, // the new container's program, through a mount
		HostBound:  true,
		Preflights: true,
		Risk:       activities.Medium,
		Strategy:   activities.Snapshot,
		Undo:       "The new container is removed, and the old one takes its name again and is started.",
		Redo:       "The image is started anew: nothing is kept of the container that the rollback removed.",
	}
}

func decode(s activities.Step) (params, error) {
	p, err := activities.DecodeParams[params](s.With)
	if err != nil {
		return p, err
	}
	return p, p.check()
}

func (p params) check() error {
	switch {
	case p.Container == "":
		return activities.Errorf(activities.Refused, "container: name the container to replace")
	case p.Image == "":
		return activities.Errorf(activities.Refused, "image: name the image to make the new container from")
	}
	return target.CleanIgnore(p.Ignore)
}

func (p params) ignored() []string {
	if p.Ignore == nil {
		return target.DefaultIgnore()
	}
	return p.Ignore
}

// replacement is what a step would do.
type replacement struct {
	Old   container.InspectResponse `json:"old"`
	Image string                    `json:"image"`
	// Volumes is where the image asks for volumes that the old container does not have.
	Volumes []string `json:"volumes,omitempty"`
}

// locate finds the container and the image, and refuses what could not be taken back.
func (a *Action) locate(ctx context.Context, p params) (r replacement, err error) {
	if r.Old, err = target.Find(ctx, a.Engine, a.Lineage, p.Container); err != nil {
		return r, err
	}
	if name := engine.NameOf(r.Old); name != p.Container {
		return r, activities.Errorf(activities.Refused, "container: %s is not the name of a container: it is called %s",
			p.Container, name)
	}
	if aside.IsStepName(p.Container) {
		return r, activities.Errorf(activities.Refused,
			"container: %s belongs to a step that has replaced another container, or is about to; name that one", p.Container)
	}
	if r.Old.HostConfig.AutoRemove {
		return r, activities.Errorf(activities.Refused,
			"container: %s is removed when it stops (--rm), so that it could not be switched back to; start it without --rm",
			p.Container)
	}
	img, err := a.Engine.ImageInspect(ctx, p.Image)
	if engine.IsNotFound(err) {
		return r, refuseImage(p.Image)
	}
	if err != nil {
		return r, engine.Explain("looking for image "+p.Image, err)
	}
	r.Image = img.ID
	if img.Config != nil {
		for _, at := range slices.Sorted(maps.Keys(img.Config.Volumes)) {
			if !slices.ContainsFunc(r.Old.Mounts, func(m container.MountPoint) bool { return m.Destination == at }) {
				r.Volumes = append(r.Volumes, at)
			}
		}
	}
	return r, nil
}

func refuseImage(name string) error {
	return activities.RefuseCurrent("image:"+name,
		"image: the engine has no image %q; docker pull or docker build brings it", name)
}

// Preflight looks for the container and the image.
func (a *Action) Preflight(ctx context.Context, o activities.Outlook) error {
	p, err := activities.DecodeParams[params](o.With)
	if err != nil {
		return err
	}
	given := p
	if o.Awaits("container") {
		p.Container = awaited
	}
	if o.Awaits("image") {
		p.Image = awaited
	}
	problems := []error{p.check()}
	if given.Container != "" {
		problems = append(problems, target.Preflight(ctx, a.Engine, given.Container))
	}
	if given.Image != "" {
		switch _, err := a.Engine.ImageInspect(ctx, given.Image); {
		case engine.IsNotFound(err):
			problems = append(problems, refuseImage(given.Image))
		case err != nil:
			problems = append(problems, engine.Explain("looking for image "+given.Image, err))
		}
	}
	return errors.Join(problems...)
}

// awaited stands for a parameter that depends on an earlier step.
const awaited = "awaited"

// digest covers what would be made, and the settings of what would be replaced.
func (r replacement) digest() activities.Digest {
	plan := blueprint.Copy(r.Old, r.Image)
	said, _ := json.Marshal([]any{plan.Config, plan.Host, plan.Network, r.Old.Name}) // what came as JSON goes as JSON
	return activities.DigestOf([]byte("container.replace"), []byte(r.Old.ID), []byte(r.Image), said)
}

// published lists the ports of the host that the two containers cannot both hold.
func (r replacement) published() []string {
	var ports []string
	for port, bindings := range r.Old.HostConfig.PortBindings {
		for _, b := range bindings {
			ports = append(ports, fmt.Sprintf("%s:%s to %s", b.HostIP, b.HostPort, port))
		}
	}
	slices.Sort(ports)
	return ports
}

// chosen names the addresses and ports that the engine may choose anew.
func (r replacement) chosen() []string {
	var lost []string
	for _, name := range slices.Sorted(maps.Keys(r.Old.NetworkSettings.Networks)) {
		if n := r.Old.NetworkSettings.Networks[name]; n.IPAddress != "" &&
			(n.IPAMConfig == nil || n.IPAMConfig.IPv4Address == "") {
			lost = append(lost, "the address in network "+name+" is the engine's choice ("+n.IPAddress+") and may be another")
		}
	}
	for _, port := range slices.Sorted(maps.Keys(r.Old.NetworkSettings.Ports)) {
		asked := r.Old.HostConfig.PortBindings[port]
		if slices.ContainsFunc(asked, func(b nat.PortBinding) bool { return b.HostPort == "" || b.HostPort == "0" }) ||
			len(asked) == 0 && r.Old.HostConfig.PublishAllPorts {
			lost = append(lost,
				fmt.Sprintf("the port of the host that %s is published at is the engine's choice and may be another", port))
		}
	}
	return lost
}

// weigh returns what says whether a person must approve it.
func (r replacement) weigh() activities.Change {
	if len(r.published()) > 0 {
		return activities.Change{Strategy: activities.Snapshot, Risk: activities.High}
	}
	return activities.Change{Strategy: activities.Snapshot, Risk: activities.Medium}
}

// Plan looks at both, and makes nothing.
func (a *Action) Plan(ctx context.Context, e activities.Entry, s activities.Step) (activities.Change, error) {
	p, err := decode(s)
	if err != nil {
		return activities.Change{}, err
	}
	t, err := a.Store.Open(ctx, e)
	if err != nil {
		return activities.Change{}, err
	}
	if err := t.CheckOpen(); err != nil {
		return activities.Change{}, err
	}
	r, err := a.locate(ctx, p)
	if err != nil {
		return activities.Change{}, err
	}
	name, weighed := engine.NameOf(r.Old), r.weigh()
	change := activities.Change{
		Summary: fmt.Sprintf("replace %s (%s) by a container from %s", name, r.Old.Config.Image, p.Image),
		Diff: fmt.Sprintf("container  %s\n-image     %s %s\n+image     %s %s\n", name, r.Old.Config.Image, r.Old.Image,
			p.Image, r.Image),
		Keys:     []string{"container:" + name},
		Strategy: weighed.Strategy,
		Risk:     weighed.Risk,
		Undo:     a.Spec().Undo,
		Losses:   slices.Concat(r.losses(), r.chosen(), target.NotRolledBack(r.Old, p.ignored())),
		Facts:    []string{name + " answers nobody between its stop and the start of the new one", keptAside(name)},
		Digest:   r.digest(),
	}
	if isTried(s) {
		change.Facts = append(change.Facts,
			"the image is tried beside "+name+" first, with what that has mounted read-only: "+
				"one that must write there before it is well does not pass; check it with when: live")
	}
	if ports := r.published(); len(ports) > 0 {
		change.Facts = append(change.Facts,
			"downtime for users of the published ports, which only one of the two can hold: "+strings.Join(ports, ", "))
	}
	return change, nil
}

// keptAside says what would make the undo impossible: an engine can label a container only when it
// makes it, so the old one has no mark by which others could leave it alone.
func keptAside(name string) string {
	return name +
		" is kept, stopped, until the step's record is released: `docker container prune` would remove it, and the " +
		"undo with it"
}

// losses is what an undo does not bring back, or takes away.
func (r replacement) losses() []string {
	lost := []string{
		"the processes of the old container end and start again: what they held in memory is gone",
		"what was written into the new container is gone with it",
	}
	for _, at := range r.Volumes {
		lost = append(lost, "the new container gets a volume without a name at "+at+", which is gone with it")
	}
	return lost
}

// Touches names the container and what is mounted in it.
func (a *Action) Touches(ctx context.Context, o activities.Outlook) ([]activities.Touch, error) {
	p, err := activities.DecodeParams[params](o.With)
	if err != nil || p.Container == "" {
		return nil, err
	}
	return target.Touches(ctx, a.Engine, p.Container)
}
