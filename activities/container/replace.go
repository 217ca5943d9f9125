package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/go-connections/nat"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/engine"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// replaceAction is container.replace: a new container takes the place of another, which is put aside until the step's
// record is released.
type replaceAction struct{ x *execAction }

// replaceParams are what a task file writes below with:.
type replaceParams struct {
	Container string   `json:"container" jsonschema:"name of the container to replace; it must be running"`
	Image     string   `json:"image" jsonschema:"name or id of the image to make the new container from, or a checkpoint of container.exec; the engine must have it"`
	Ignore    []string `json:"ignore,omitempty" jsonschema:"absolute paths that an undo neither compares nor asks about before it throws them away; defaults to /tmp, /run and /var/log"`
}

func (a *replaceAction) Spec() activities.Spec {
	return activities.Spec{
		Name:    "container.replace",
		Summary: "Replace a container by a new one from another image, and keep the old one until the step's record is dropped.",
		Params:  activities.ParamsSchema[replaceParams](),
		Outputs: map[string]string{
			"container": "the new container's id", "replaced": "the old container's id", "image": "the id of the new container's image",
		},
		UndoParams: []string{"container"},
		Keys:       []activities.Key{{Prefix: "container:", Param: "container"}},
		HostBound:  true,
		Risk:       activities.Medium,
		Strategy:   activities.Snapshot,
		Undo:       "The new container is removed, and the old one takes its name again and is started.",
		Redo:       "The image is started anew: nothing is kept of the container that the rollback removed.",
	}
}

func decodeReplace(s activities.Step) (replaceParams, error) {
	p, err := activities.DecodeParams[replaceParams](s.With)
	switch {
	case err != nil:
		return p, err
	case p.Container == "":
		return p, activities.Errorf(activities.Refused, "container: name the container to replace")
	case p.Image == "":
		return p, activities.Errorf(activities.Refused, "image: name the image to make the new container from")
	}
	return p, cleanPaths(p.Ignore)
}

func (p replaceParams) ignored() []string { return params{Ignore: p.Ignore}.ignored() }

// stepsOwn are the names that steps give to containers: see candidates.
var stepsOwn = regexp.MustCompile(`^unwind-[0-9a-f]{32}-`)

// replacement is what a step would do.
type replacement struct {
	Old   container.InspectResponse `json:"old"`
	Image string                    `json:"image"`
	// Volumes is where the image asks for volumes that the old container does not have.
	Volumes []string `json:"volumes,omitempty"`
}

// aim finds the container and the image, and refuses what could not be taken back.
func (a *replaceAction) aim(ctx context.Context, p replaceParams) (r replacement, err error) {
	if r.Old, err = a.x.find(ctx, p.Container); err != nil {
		return r, err
	}
	if name := nameOf(r.Old); name != p.Container {
		return r, activities.Errorf(activities.Refused, "container: %s is not the name of a container: it is called %s", p.Container, name)
	}
	if stepsOwn.MatchString(p.Container) {
		return r, activities.Errorf(activities.Refused, "container: %s belongs to a step that has replaced another container, or is about to; name that one", p.Container)
	}
	if r.Old.HostConfig.AutoRemove {
		return r, activities.Errorf(activities.Refused, "container: %s is removed when it stops (--rm), so that it could not be switched back to; start it without --rm", p.Container)
	}
	img, err := a.x.engine.ImageInspect(ctx, p.Image)
	if engine.IsNotFound(err) {
		return r, activities.Errorf(activities.Refused, "image: the engine has no image %q; docker pull or docker build brings it", p.Image)
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

// digest covers what would be made, and the settings of what would be replaced.
func (r replacement) digest() activities.Digest {
	plan := copyOf(r.Old, r.Image)
	said, _ := json.Marshal([]any{plan.config, plan.host, plan.network, r.Old.Name}) // what came as JSON goes as JSON
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
		if n := r.Old.NetworkSettings.Networks[name]; n.IPAddress != "" && (n.IPAMConfig == nil || n.IPAMConfig.IPv4Address == "") {
			lost = append(lost, "the address in network "+name+" is the engine's choice ("+n.IPAddress+") and may be another")
		}
	}
	for _, port := range slices.Sorted(maps.Keys(r.Old.NetworkSettings.Ports)) {
		asked := r.Old.HostConfig.PortBindings[port]
		if slices.ContainsFunc(asked, func(b nat.PortBinding) bool { return b.HostPort == "" || b.HostPort == "0" }) || len(asked) == 0 && r.Old.HostConfig.PublishAllPorts {
			lost = append(lost, fmt.Sprintf("the port of the host that %s is published at is the engine's choice and may be another", port))
		}
	}
	return lost
}

// Plan looks at both, and makes nothing.
func (a *replaceAction) Plan(ctx context.Context, e activities.Entry, s activities.Step) (activities.Change, error) {
	p, err := decodeReplace(s)
	if err != nil {
		return activities.Change{}, err
	}
	t, err := a.x.token(ctx, e)
	if err != nil {
		return activities.Change{}, err
	}
	if err := t.CheckOpen(); err != nil {
		return activities.Change{}, err
	}
	r, err := a.aim(ctx, p)
	if err != nil {
		return activities.Change{}, err
	}
	name := nameOf(r.Old)
	change := activities.Change{
		Summary:  fmt.Sprintf("replace %s (%s) by a container from %s", name, r.Old.Config.Image, p.Image),
		Diff:     fmt.Sprintf("container  %s\n-image     %s %s\n+image     %s %s\n", name, r.Old.Config.Image, r.Old.Image, p.Image, r.Image),
		Keys:     []string{"container:" + name},
		Strategy: activities.Snapshot,
		Risk:     activities.Medium,
		Undo:     a.Spec().Undo,
		Losses:   slices.Concat(r.losses(), r.chosen(), outside(r.Old, p.ignored())),
		Facts:    []string{name + " answers nobody from its stop to the start of the new one"},
		Digest:   r.digest(),
	}
	if isTried(s) {
		change.Facts = append(change.Facts, "the image is tried beside "+name+" first, with what that has mounted read-only: "+
			"one that must write there before it is well does not pass; check it with when: live")
	}
	if ports := r.published(); len(ports) > 0 {
		change.Risk = activities.High
		change.Facts = append(change.Facts, "down time for who uses the published ports, which only one of the two can hold: "+strings.Join(ports, ", "))
	}
	return change, nil
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

// replaced is the record.
type replaced struct {
	journal.Owned
	replacement

	Want   activities.Digest `json:"want,omitempty"`
	Ignore []string          `json:"ignore,omitempty"`
}

// Documents of a token. Each container that a forward starts is named in one before it is; an undo that writes it first,
// with no id, keeps it from ever being started.
const (
	newDoc   = "new"
	trialDoc = "trial"
	triedDoc = "tried"
	asideDoc = "aside"
	backDoc  = "back"
)

type made struct {
	ID string `json:"id,omitempty"`
}

// swap is one call of Apply.
type swap struct {
	*replaceAction
	entry activities.Entry
	step  activities.Step
	token *journal.Token
	rec   replaced
}

func (a *replaceAction) Apply(ctx context.Context, e activities.Entry, s activities.Step, want activities.Digest) (activities.Result, error) {
	p, err := decodeReplace(s)
	if err != nil {
		return activities.Result{}, err
	}
	t, err := a.x.token(ctx, e)
	if err != nil {
		return activities.Result{}, err
	}
	unlock, err := t.Lock(ctx)
	if err != nil {
		return activities.Result{}, err
	}
	defer unlock()
	if err := t.CheckOpen(); err != nil {
		return activities.Result{}, err
	}
	if done, found, err := readApplied(t); found || err != nil {
		return result(done, err)
	}
	w := &swap{replaceAction: a, entry: e, step: s, token: t}
	if err := w.capture(ctx, p, want); err != nil {
		return activities.Result{}, err
	}
	done, err := w.run(ctx)
	if err != nil { // what an undo has taken away fails in many ways
		return activities.Result{}, errors.Join(t.CheckOpen(), err)
	}
	return done.answer()
}

func (w *swap) capture(ctx context.Context, p replaceParams, want activities.Digest) error {
	found, err := w.token.Read(journal.Record, &w.rec)
	if found || err != nil {
		return err
	}
	r, err := w.aim(ctx, p)
	if err != nil {
		return err
	}
	if err := w.token.Make(); err != nil {
		return err
	}
	waited, err := w.x.leases.Take(ctx, p.Container, w.entry)
	if err == nil && waited {
		r, err = w.aim(ctx, p)
	}
	if err != nil {
		return err
	}
	if want != "" && want != r.digest() {
		return activities.Errorf(activities.StaleApproval, "the image, or container %s, is not what was approved", p.Container)
	}
	w.rec = replaced{Owned: journal.Own(ctx, w.entry), replacement: r, Want: want, Ignore: p.ignored()}
	point.Reach("container.replace:captured")
	if err := w.token.CheckOpen(); err != nil {
		return err
	}
	_, err = w.token.Create(journal.Record, &w.rec)
	point.Reach("container.replace:recorded")
	return err
}

// run makes the new container, tries the image beside the old one, and lets the two change places.
func (w *swap) run(ctx context.Context) (applied, error) {
	fresh, err := w.make(ctx, newDoc, copyFrom(w.rec.Old, w.rec.Image, w.defaults(ctx)))
	if err != nil {
		return applied{}, err
	}
	failure, err := w.try(ctx)
	if err != nil {
		return applied{}, err
	}
	if err := w.sweep(ctx, w.entry.Token, fresh); err != nil { // what calls have left that were cut short
		return applied{}, err
	}
	if failure != nil {
		return w.finish(applied{Container: fresh, Failure: failure})
	}
	if failure, err = w.change(ctx, fresh); err != nil {
		return applied{}, err
	}
	if failure == nil {
		if failure, err = w.check(ctx, fresh, activities.Live); err != nil {
			return applied{}, err
		}
	}
	after, err := takeManifest(ctx, w.x.engine, fresh, w.rec.Ignore)
	if err != nil {
		return applied{}, err
	}
	if err := after.save(w.token.Dir(), afterFile); err != nil {
		return applied{}, err
	}
	name := nameOf(w.rec.Old)
	return w.finish(applied{Container: fresh, After: after.digest(), Running: true, Failure: failure, Result: activities.Result{
		Summary: fmt.Sprintf("replaced %s: %s is kept, stopped, as %s", name, w.rec.Old.ID[:12], asideName(w.entry.Token)),
		Outputs: map[string]any{"container": fresh, "replaced": w.rec.Old.ID, "image": w.rec.Image},
		After:   after.digest(),
	}})
}

func (w *swap) finish(done applied) (applied, error) {
	if err := w.token.CheckOpen(); err != nil {
		return done, err
	}
	_, err := w.token.Create(journal.Applied, &done)
	point.Reach("container.replace:applied")
	return done, err
}

// check runs the step's checks of a kind in a container. One that does not hold is the step's failure.
func (w *swap) check(ctx context.Context, in string, when activities.When) (*activities.Error, error) {
	err := activities.RunChecks(ctx, w.step.Checks, when, activities.Staged, scene{w.x, in})
	var failed *activities.Error
	if errors.As(err, &failed) && failed.Type.Final() {
		return failed, nil
	}
	return nil, err
}
