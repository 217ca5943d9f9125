package crash

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"

	world "github.com/seed-62bf7108/unwind/activities/container"

	"github.com/seed-62bf7108/unwind/examples/found"
	"github.com/seed-62bf7108/unwind/worker/host"
)

// inContainer are commands in a container of their own. Each of them adds its name to a tally, so
// that it shows how often it was applied.
type inContainer struct {
	Host int
	// Commands is how many there are, Slow how long each takes, in milliseconds.
	Commands int
	Slow     []int
	// Reads adds one that only reads.
	Reads bool
	// Volume gives the container a volume, of which each command keeps a copy; it takes root.
	Volume bool

	n      int
	on     string
	box    string // the container's name
	mark   string // the label of it and of all that is made from it
	within bool   // its host takes checkpoints as layers
	volume string // where the volume is; empty for none
	before found.Snapshot
}

func drawContainer(r *rand.Rand, hosts int) *inContainer {
	p := &inContainer{Host: r.IntN(hosts), Commands: 1 + r.IntN(2), Reads: r.IntN(4) == 0, Volume: r.IntN(4) == 0}
	for range p.Commands {
		p.Slow = append(p.Slow, r.IntN(3)*400)
	}
	return p
}

// markLabel is the label of every container here, and of every image that is made from one.
const markLabel = "unwind.crash"

const (
	tally    = "/srv/tally"
	volumeAt = "/data"
)

func (p *inContainer) name(n int) { p.n = n }

func (p *inContainer) id(i int) string { return fmt.Sprintf("exec-%d-%d", p.n, i) }

func (p *inContainer) actions() []string { return []string{"container.exec"} }

func (p *inContainer) firstStep() string { return p.id(0) }

func (p *inContainer) host() (int, bool) { return p.Host, true }

func (p *inContainer) setUp(ctx context.Context, r *run, task string) error {
	p.on = r.fleet.members[p.Host].Host
	// The folder's name is in it: what a run that was cut off has left on the engine has another name.
	p.box = fmt.Sprintf("%s-%s-%d", filepath.Base(r.dir), task, p.n)
	p.mark = p.box
	settings := &container.HostConfig{NetworkMode: network.NetworkNone}
	if p.Volume = p.Volume && os.Geteuid() == 0; p.Volume {
		v, err := r.engine.VolumeCreate(ctx, volume.CreateOptions{Name: p.box, Labels: map[string]string{markLabel: p.mark}})
		if err != nil {
			return err
		}
		p.volume = v.Mountpoint
		settings.Mounts = []mount.Mount{{Type: mount.TypeVolume, Source: p.box, Target: volumeAt}}
		if err := os.WriteFile(filepath.Join(p.volume, "tally"), []byte("before\n"), 0o604); err != nil {
			return err
		}
	}
	made, err := r.engine.ContainerCreate(ctx,
		&container.Config{Image: r.image, Labels: map[string]string{markLabel: p.mark}}, settings, nil, nil, p.box)
	if err != nil {
		return err
	}
	// A tar and not an exec: nothing must have run in it.
	if err := r.engine.CopyToContainer(ctx, made.ID, "/srv", furniture(), container.CopyToContainerOptions{}); err != nil {
		return err
	}
	if err := r.engine.ContainerStart(ctx, made.ID, container.StartOptions{}); err != nil {
		return err
	}
	p.within = host.SettingsOf[*world.Settings](r.fleet.members[p.Host].Config).Layers == world.LayersRequire
	p.before, err = p.takeSnapshot(ctx)
	return err
}

// takeSnapshot looks at the container: from within where something may lie over it that its engine
// does not see. Its volume is looked at where it is.
func (p *inContainer) takeSnapshot(ctx context.Context) (s found.Snapshot, err error) {
	if p.within {
		s, err = found.Within(ctx, p.box)
	} else {
		s, err = found.Container(ctx, p.box)
	}
	if err != nil || p.volume == "" {
		return s, err
	}
	maps.DeleteFunc(s,
		func(at string, _ found.Facts) bool { return at == volumeAt || strings.HasPrefix(at, volumeAt+"/") })
	held, err := found.Files("volume/", p.volume)
	maps.Copy(s, held)
	return s, err
}

// furniture is what is in the container before the task.
func furniture() io.Reader {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range []struct{ name, content string }{{"tally", "before\n"}, {"doomed-0", "x\n"}, {"doomed-1", "x\n"},
		{"kept", "y\n"}} {
		_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: 0o604, Size: int64(len(f.content))})
		_, _ = w.Write([]byte(f.content)) // a buffer takes all
	}
	_ = w.Close()
	return &b
}

func (p *inContainer) steps() (all []map[string]any) {
	step := func(i int, command string) map[string]any {
		with := map[string]any{"container": p.box, "command": command}
		if p.volume != "" {
			with["volumes"] = "snapshot"
		}
		return map[string]any{"id": p.id(i), "uses": "container.exec", "on": p.on, "with": with}
	}
	for i := range p.Commands {
		command := fmt.Sprintf("sleep 0.%03d; echo %s >>%s; rm /srv/doomed-%d; mkdir /srv/new-%d; echo 1 >/srv/new-%d/file",
			p.Slow[i], p.id(i), tally, i, i, i)
		if p.volume != "" {
			command += fmt.Sprintf("; echo %s >>%s/tally; mkdir %s/new-%d", p.id(i), volumeAt, volumeAt, i)
		}
		all = append(all, step(i, command))
	}
	if p.Reads {
		all = append(all, step(p.Commands, "cat "+tally))
	}
	return all
}

func (p *inContainer) tallied() string {
	lines := []string{"before\n"}
	for i := range p.Commands {
		lines = append(lines, p.id(i)+"\n")
	}
	return strings.Join(lines, "")
}

func (p *inContainer) wants() []found.Want {
	all := []found.Want{{Change: "~ " + tally, Facts: holds(p.tallied())}}
	for i := range p.Commands {
		all = append(all, found.Want{Change: fmt.Sprintf("- /srv/doomed-%d", i)},
			found.Want{Change: fmt.Sprintf("+ /srv/new-%d", i)},
			found.Want{Change: fmt.Sprintf("+ /srv/new-%d/file", i), Facts: holds("1\n")})
		if p.volume != "" {
			all = append(all, found.Want{Change: fmt.Sprintf("+ volume/new-%d", i)})
		}
	}
	if p.volume != "" {
		all = append(all, found.Want{Change: "~ volume/tally", Facts: holds(p.tallied())})
	}
	return all
}

// rerun are the losses of a command that has run again: the note of its step says that the
// container was rolled back before it did. Layers lose none of that.
func (p *inContainer) rerun(e taskEnd) []string {
	for i := range p.Commands {
		noted := func(what string) bool {
			return slices.ContainsFunc(e.notes(p.id(i)), func(n string) bool { return strings.Contains(n, what) })
		}
		if noted("the container was rolled back") && (!p.within || noted("by docker commit, not by a layer")) {
			return []string{"it has another id", "its image is named by id", "times below a second"}
		}
	}
	return nil
}

func (p *inContainer) judgePart(ctx context.Context, r *run, e taskEnd) (v verdict, err error) {
	if err := p.settle(ctx, r); err != nil {
		return v, err
	}
	now, err := p.takeSnapshot(ctx)
	if cerrdefs.IsNotFound(err) {
		return verdict{Lost: []string{p.box + ": the container is gone"}}, nil
	}
	if err != nil {
		return v, err
	}
	said, err := p.readFile(ctx, r, tally)
	if err != nil {
		return v, err
	}
	doubled := false
	for i := range p.Commands {
		if n := strings.Count(said, p.id(i)+"\n"); n > 1 {
			doubled = true
			v.Doubled = append(v.Doubled, fmt.Sprintf("%s: the command of %s shows %d times", p.box, p.id(i), n))
		}
	}
	for _, wrong := range differences(found.ContainerWorld, p.before, now, p.wants(), e, p.rerun(e)...) {
		if !doubled {
			v.Lost = append(v.Lost, p.box+": "+wrong)
		}
	}
	if v.Orphaned, err = p.leftOver(ctx, r, e); err != nil || p.volume == "" {
		return v, err
	}
	beside, err := os.ReadDir(filepath.Dir(p.volume))
	for _, b := range beside {
		if b.Name() != filepath.Base(p.volume) {
			v.Orphaned = append(v.Orphaned, b.Name()+" beside the volume of "+p.box)
		}
	}
	return v, err
}

// settle waits, for a while, until the engine has done with the container what it was asked for by
// who is dead by now: it is paused while it is committed.
func (p *inContainer) settle(ctx context.Context, r *run) error {
	limit := time.Now().Add(stopLimit)
	for {
		c, err := r.engine.ContainerInspect(ctx, p.box)
		if cerrdefs.IsNotFound(err) {
			return nil
		}
		if err != nil || !c.State.Paused || time.Now().After(limit) {
			return err
		}
		pause(ctx, again)
	}
}

// leftOver are the containers beside the one, and the images that neither it stands on nor a later
// rollback needs.
func (p *inContainer) leftOver(ctx context.Context, r *run, e taskEnd) (left []string, err error) {
	all, images, err := p.listMade(ctx, r)
	if err != nil {
		return nil, err
	}
	needed := map[string]bool{}
	parents := map[string]string{}
	for _, i := range images {
		parents[i.ID] = i.ParentID
	}
	stand := func(id string) {
		for ; id != ""; id = parents[id] {
			needed[id] = true
		}
	}
	for _, c := range all {
		if slices.Contains(c.Names, "/"+p.box) {
			stand(c.ImageID)
		} else {
			left = append(left, fmt.Sprintf("container %s beside %s", strings.Join(c.Names, " "), p.box))
		}
	}
	for _, i := range images {
		if slices.ContainsFunc(i.RepoTags, func(t string) bool { return p.keeps(e, t) }) {
			stand(i.ID)
		}
	}
	for _, i := range images {
		if !needed[i.ID] {
			left = append(left, fmt.Sprintf("image %s %v of %s", i.ID, i.RepoTags, p.box))
		}
	}
	return left, nil
}

// keeps says that a rollback, or a redo, needs the image of this name yet, or that it is one that
// an undo has said it looks for again: an engine may have come late to the request of a worker that
// was killed.
func (p *inContainer) keeps(e taskEnd, name string) bool {
	for i := range p.Commands {
		if e.committed() && strings.HasPrefix(name, "unwind/checkpoint:"+e.token(p.id(i))) {
			return true
		}
		for _, token := range e.tokens(p.id(i)) {
			if e.looksAgain() && strings.HasPrefix(name, "unwind/checkpoint:"+token) {
				return true
			}
			if len(e.Earlier) > 0 && strings.HasPrefix(name, "unwind/kept:"+token) {
				return true
			}
		}
	}
	return false
}

// listMade are the containers and images with the part's mark.
func (p *inContainer) listMade(ctx context.Context, r *run) ([]container.Summary, []image.Summary, error) {
	mark := filters.NewArgs(filters.Arg("label", markLabel+"="+p.mark))
	all, err := r.engine.ContainerList(ctx, container.ListOptions{All: true, Filters: mark})
	if err != nil {
		return nil, nil, err
	}
	images, err := r.engine.ImageList(ctx, image.ListOptions{All: true, Filters: mark})
	return all, images, err
}

func (p *inContainer) clear(ctx context.Context, r *run) error {
	all, images, err := p.listMade(ctx, r)
	for _, c := range all {
		if gone := r.engine.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true}); !cerrdefs.IsNotFound(gone) {
			err = errors.Join(err, gone)
		}
	}
	if p.volume != "" {
		if gone := r.engine.VolumeRemove(ctx, p.box, true); !cerrdefs.IsNotFound(gone) {
			err = errors.Join(err, gone)
		}
	}
	// Those that others stand on go with the last of them.
	for range images {
		for _, i := range images {
			_, _ = r.engine.ImageRemove(ctx, i.ID, image.RemoveOptions{Force: true})
		}
		if _, images, err = p.listMade(ctx, r); err != nil || len(images) == 0 {
			return err
		}
	}
	return err
}

// readFile reads a file in the container.
func (p *inContainer) readFile(ctx context.Context, r *run, path string) (string, error) {
	if p.within {
		return found.ReadWithin(ctx, p.box, path)
	}
	stream, _, err := r.engine.CopyFromContainer(ctx, p.box, path)
	if cerrdefs.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer stream.Close()
	t := tar.NewReader(stream)
	if _, err := t.Next(); err != nil {
		return "", err
	}
	raw, err := io.ReadAll(t)
	return string(raw), err
}

func (p *inContainer) String() string {
	return fmt.Sprintf("exec-%d on host %d: %d commands of %v ms, reads %v, within %v, volume %v", p.n, p.Host, p.Commands,
		p.Slow, p.Reads, p.within, p.Volume)
}
