package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/mount"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/engine"
	"github.com/seed-62bf7108/unwind/activities/container/volumes"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/internal/filelock"
)

// volume is one that a step keeps a copy of. Its paths are in the manifests of the step beside those of the container, after
// its name and a colon: so approvals cover them, and what others change in them is drift.
type volume struct {
	Name string `json:"name"`
	// At is where the container has it, Root where the engine's host does.
	At   string `json:"at"`
	Root string `json:"root"`
	// Files and Bytes are what a copy of it takes.
	Files int   `json:"files,omitempty"`
	Bytes int64 `json:"bytes,omitempty"`
}

func (v volume) path(at string) string { return v.Name + ":" + at }

// stage is a folder beside the volume, on its filesystem and in nobody's sight, of the token's own.
func (v volume) stage(token string) string {
	return filepath.Join(filepath.Dir(v.Root), "unwind-"+token)
}

// volumeCopies is the folder of a token's copies.
func volumeCopies(t *journal.Token) string { return filepath.Join(t.Dir(), "volumes") }

// noVolumes is the way out of all that keeps volumes from being copied.
const noVolumes = "leave volumes: snapshot out to have the step leave them as they are"

// volumesOf are the volumes that a step keeps a copy of, or why it cannot.
func (x *execAction) volumesOf(ctx context.Context, p params, target container.InspectResponse) (all []volume, err error) {
	if p.Volumes == "" {
		return nil, nil
	}
	for _, m := range target.Mounts {
		if m.Type != mount.TypeVolume || !m.RW || slices.ContainsFunc(all, func(v volume) bool { return v.Name == m.Name }) {
			continue
		}
		if os.Geteuid() != 0 {
			return nil, activities.Errorf(activities.Refused, "volumes: snapshot of volume %s needs a worker that is root on the engine's host; run one there, or %s", m.Name, noVolumes)
		}
		v, err := x.engine.VolumeInspect(ctx, m.Name)
		if err != nil {
			return nil, engine.Explain("looking at volume "+m.Name, err)
		}
		if v.Driver != "local" || len(v.Options) > 0 {
			return nil, activities.Errorf(activities.Refused, "volumes: snapshot knows volumes in folders of the engine alone, and %s is of driver %s with options %v; %s", m.Name, v.Driver, v.Options, noVolumes)
		}
		if err := sameFolder(target.State.Pid, m.Destination, v.Mountpoint); err != nil {
			return nil, activities.Errorf(activities.Refused, "volumes: volume %s is not at %s on this worker's host (%v); run the worker on the engine's host, or %s", m.Name, v.Mountpoint, err, noVolumes)
		}
		all = append(all, volume{Name: m.Name, At: m.Destination, Root: v.Mountpoint})
	}
	who, err := x.writers(ctx, all, target.ID)
	if err == nil && who != "" {
		err = activities.Errorf(activities.Refused, "volumes: %s, so that a copy would not tell its doings from the step's; stop it, or %s", who, noVolumes)
	}
	return all, err
}

// sameFolder makes sure that a folder of this host is what a process of the container has at a path, and is no mount of its
// own here: then it can be gone when nobody uses it.
func sameFolder(pid int, at, folder string) error {
	root, err := unix.Open(filepath.Join("/proc", strconv.Itoa(pid), "root"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	inside, err := unix.Openat2(root, at, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
	if err != nil {
		return err
	}
	defer unix.Close(inside)
	var there, here unix.Stat_t
	if err := errors.Join(unix.Fstat(inside, &there), unix.Stat(folder, &here)); err != nil {
		return err
	}
	if there.Dev != here.Dev || there.Ino != here.Ino {
		return errors.New("the container has another folder")
	}
	var mounted, around unix.Statx_t
	if err := errors.Join(unix.Statx(unix.AT_FDCWD, folder, 0, unix.STATX_MNT_ID, &mounted), unix.Statx(unix.AT_FDCWD, filepath.Dir(folder), 0, unix.STATX_MNT_ID, &around)); err != nil {
		return err
	}
	if mounted.Mnt_id != around.Mnt_id {
		return errors.New("something is mounted there")
	}
	return nil
}

// writers says which other container runs that may write to one of the volumes; empty: none does.
func (x *execAction) writers(ctx context.Context, all []volume, but string) (string, error) {
	for _, v := range all {
		users, err := x.engine.ContainerList(ctx, container.ListOptions{Filters: filters.NewArgs(filters.Arg("volume", v.Name))})
		if err != nil {
			return "", engine.Explain("looking for other containers with volume "+v.Name, err)
		}
		for _, c := range users {
			writes := slices.ContainsFunc(c.Mounts, func(m container.MountPoint) bool { return m.Name == v.Name && m.RW })
			if c.ID != but && writes {
				return fmt.Sprintf("container %s runs and may write to volume %s", strings.TrimPrefix(strings.Join(c.Names, " "), "/"), v.Name), nil
			}
		}
	}
	return "", nil
}

// addVolumes adds what volumes hold now to a manifest. One that is gone holds nothing.
func (m manifest) addVolumes(all []volume) error {
	for _, v := range all {
		c, err := volumes.Of(v.Root)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		m.addVolume(v, c)
	}
	return nil
}

// weigh notes what copies of volumes take that hold what the manifest says.
func (m manifest) weigh(all []volume) error {
	for i, v := range all {
		c, err := m.inVolume(v)
		if err != nil {
			return err
		}
		all[i].Files, all[i].Bytes = c.Files(), c.Bytes()
	}
	return nil
}

func (m manifest) addVolume(v volume, c volumes.Content) {
	for at, e := range c {
		n := node{
			Path: v.path(at), Kind: e.Kind, Mode: int64(e.Mode), Owner: fmt.Sprintf("%d:%d", e.UID, e.GID), MTime: e.MTime, Size: e.Size,
			Digest: e.Digest, Link: e.Link, Caps: e.Attributes, File: e.Same,
		}
		if e.Device != 0 {
			n.Device = strconv.FormatUint(e.Device, 16)
		}
		m[n.Path] = n
	}
}

// inVolume is what a manifest says of a volume.
func (m manifest) inVolume(v volume) (volumes.Content, error) {
	c := volumes.Content{}
	for at, n := range m {
		at, in := strings.CutPrefix(at, v.path(""))
		if !in || !strings.HasPrefix(at, "/") {
			continue
		}
		e := volumes.Entry{
			Path: at, Kind: n.Kind, Mode: uint32(n.Mode), MTime: n.MTime, Size: n.Size, Digest: n.Digest, Attributes: n.Caps, Link: n.Link, Same: n.File, //nolint:gosec // it was one
		}
		var err error
		if n.Device != "" {
			e.Device, err = strconv.ParseUint(n.Device, 16, 64)
		}
		if _, scanned := fmt.Sscanf(n.Owner, "%d:%d", &e.UID, &e.GID); err != nil || scanned != nil {
			return nil, activities.Errorf(activities.DamagedRecord, "the manifest of volume %s says of %s what it cannot be", v.Name, at)
		}
		c[at] = e
	}
	return c, nil
}

// files is the manifest without volumes.
func (m manifest) files() manifest {
	return m.where(func(at string) bool { return strings.HasPrefix(at, "/") })
}

// volumes is the manifest of volumes alone.
func (m manifest) volumes() manifest {
	return m.where(func(at string) bool { return !strings.HasPrefix(at, "/") })
}

func (m manifest) where(keep func(at string) bool) manifest {
	some := manifest{}
	for at, n := range m {
		if keep(at) {
			some[at] = n
		}
	}
	return some
}

// keepVolumes copies the volumes of a step whose record is yet to be made, and adds what is in the copies to manifests.
func (a *application) keepVolumes(into ...manifest) error {
	if len(a.rec.Volumes) == 0 {
		return nil
	}
	if err := a.token.Make(); err != nil {
		return err
	}
	if err := os.MkdirAll(volumeCopies(a.token), 0o700); err != nil {
		return err
	}
	for i, v := range a.rec.Volumes {
		c, err := volumes.Copy(v.Root, filepath.Join(volumeCopies(a.token), v.Name))
		if busy := (*volumes.Busy)(nil); errors.As(err, &busy) {
			return activities.Errorf(activities.Refused, "volumes: %v; stop who does, or %s", busy, noVolumes)
		}
		if err != nil {
			return fmt.Errorf("keeping a copy of volume %s: %w", v.Name, err)
		}
		for _, m := range into {
			if m != nil {
				m.addVolume(v, c)
			}
		}
		a.rec.Volumes[i].Files, a.rec.Volumes[i].Bytes = c.Files(), c.Bytes()
	}
	point.Reach("container.exec:volumes-kept")
	return nil
}

// cost says what a copy takes.
func (v volume) cost() string {
	return fmt.Sprintf("a copy of volume %s (at %s) is kept until the step's record is dropped: %d files and folders, %d bytes", v.Name, v.At, v.Files, v.Bytes)
}

// costs says what the copies take that volumes: snapshot asks for.
func (p params) costs(kept []volume) (all []string) {
	if p.Volumes != "" && len(kept) == 0 {
		return []string{"the container has no volume that it may write to: there is nothing to keep a copy of"}
	}
	for _, v := range kept {
		all = append(all, v.cost())
	}
	return all
}

// dropVolumes lets go of all that a token has of volumes.
func dropVolumes(t *journal.Token, rec record) error {
	err := os.RemoveAll(volumeCopies(t))
	for _, v := range rec.Volumes {
		err = errors.Join(err, volumes.Restore{Stage: v.stage(filepath.Base(t.Dir()))}.Clear())
	}
	return err
}

// roll rolls the container back, and with it the volumes that the step keeps copies of: while nothing of what the rollback
// has started runs. Seen is what may be overwritten of them; nil: all.
func (x *execAction) roll(ctx context.Context, t *journal.Token, rec record, to rollback, before, seen manifest) (restored, error) {
	if len(rec.Volumes) == 0 {
		return x.keeper(rec).rollback(ctx, to)
	}
	begun := volumesBegun{Stopped: to.Stopped}
	if _, err := t.Create(volumesDoc(to.Turn)+"-begun", &begun); err != nil {
		return restored{}, err
	}
	to.Stopped = true
	back, err := x.keeper(rec).rollback(ctx, to)
	if err != nil {
		return back, err
	}
	differs, err := x.rollVolumes(ctx, t, rec, to.Turn, back.ID, before, seen)
	if err != nil {
		return back, err
	}
	back.Differs = append(back.Differs, differs...)
	if back.Stopped = begun.Stopped; back.Stopped {
		return back, nil
	}
	return back, x.startAgain(ctx, t, rec, back.ID)
}

// volumesBegun is the document which says how the container is to be when a turn is over: meanwhile it is stopped.
type volumesBegun struct {
	Stopped bool `json:"stopped,omitempty"`
}

// volumesBack is the document which says that a turn has brought the volumes back.
type volumesBack struct {
	Differs []string `json:"differs,omitempty"`
}

func volumesDoc(turn string) string { return "volumes-" + turn }

// rollVolumes brings the volumes of a step back, once for each turn, and says what of them is not as before.
func (x *execAction) rollVolumes(ctx context.Context, t *journal.Token, rec record, turn, standing string, before, seen manifest) ([]string, error) {
	over, err := turnAt(ctx, t)
	if err != nil {
		return nil, err
	}
	defer over()
	var done volumesBack
	found, err := t.Read(volumesDoc(turn), &done)
	if err != nil {
		return nil, err
	}
	if !found {
		if done.Differs, err = x.restoreVolumes(ctx, t, rec, turn, standing, before, seen); err != nil {
			return nil, err
		}
		if _, err := t.Create(volumesDoc(turn), &done); err != nil {
			return nil, err
		}
		point.Reach("container.exec:volumes-restored")
	}
	for _, v := range rec.Volumes { // from here on no other call does more
		if err := (volumes.Restore{Stage: v.stage(filepath.Base(t.Dir()))}).Clear(); err != nil {
			return nil, err
		}
	}
	return done.Differs, nil
}

// startAgain starts a container that a rollback has left stopped for its volumes.
func (x *execAction) startAgain(ctx context.Context, t *journal.Token, rec record, id string) error {
	var undone activities.Undone
	if over, err := t.Read(journal.Outcome, &undone); over || err != nil { // it is others' business now
		return err
	}
	now, err := x.engine.ContainerInspect(ctx, id)
	if engine.IsNotFound(err) || err == nil && now.State.Running {
		return nil
	}
	if err != nil {
		return engine.Explain("looking at the container after the rollback", err)
	}
	if rec.Chosen.Layers {
		return x.choice.layers.start(ctx, now, false)
	}
	return engine.Explain("starting container "+nameOf(now), x.engine.ContainerStart(ctx, id, container.StartOptions{}))
}

// turnPatience is how long a call waits for another that is restoring the same volumes. One that is stopped holds nobody up:
// it is overtaken, and then does no more.
const turnPatience = 5 * time.Second

// turnAt waits for another call's turn to be over.
func turnAt(ctx context.Context, t *journal.Token) (over func(), err error) {
	patient, cancel := context.WithTimeout(ctx, turnPatience)
	defer cancel()
	lock, err := filelock.Acquire(patient, filepath.Join(t.Dir(), "volumes.lock"))
	if errors.Is(err, filelock.ErrHeld) {
		return func() {}, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	return lock.Release, nil
}

// unwritten is an error where another container may be writing to what is brought back.
func (x *execAction) unwritten(ctx context.Context, rec record, standing string) error {
	who, err := x.writers(ctx, rec.Volumes, standing)
	if err == nil && who != "" {
		err = activities.Errorf(activities.ActionFailed, "volumes: %s: stop it, for it may be writing to what is brought back", who)
	}
	return err
}

func (x *execAction) restoreVolumes(ctx context.Context, t *journal.Token, rec record, turn, standing string, before, seen manifest) (differs []string, err error) {
	if err := x.unwritten(ctx, rec, standing); err != nil {
		return nil, err
	}
	for _, v := range rec.Volumes {
		if _, err := os.Lstat(v.Root); errors.Is(err, fs.ErrNotExist) {
			return nil, activities.Errorf(activities.ActionFailed, "volume %s is gone; docker volume create %[1]s makes it anew, and what it held is put into it", v.Name)
		}
		r := volumes.Restore{
			Root: v.Root, Copy: filepath.Join(volumeCopies(t), v.Name), Stage: v.stage(filepath.Base(t.Dir())),
			Over: func() error { return volumesOver(t, turn) },
		}
		if r.Want, err = before.inVolume(v); err != nil {
			return nil, err
		}
		if seen != nil {
			if r.Seen, err = seen.inVolume(v); err != nil {
				return nil, err
			}
		}
		left, err := r.Run()
		if damaged := (*volumes.Damaged)(nil); errors.As(err, &damaged) {
			return nil, activities.Errorf(activities.DamagedRecord, "volume %s: %v", v.Name, damaged)
		}
		if err != nil {
			return nil, fmt.Errorf("volume %s: %w", v.Name, err)
		}
		for _, at := range left {
			differs = append(differs, "~ "+v.path(at))
		}
	}
	return differs, nil
}

// volumesOver is an error where a turn has brought the volumes back already, or may not any more.
func volumesOver(t *journal.Token, turn string) error {
	if turn != undoTurn {
		return t.CheckOpen()
	}
	var done volumesBack
	found, err := t.Read(volumesDoc(turn), &done)
	if found {
		err = activities.Errorf(activities.ActionFailed, "another call has brought the volumes back")
	}
	return err
}

// mayOverwrite is what the step has left in volumes, which its undo may overwrite without being told to, or what a person has
// decided to overwrite; nil where the step has not come to its end: then nobody can tell its doings from others'.
func (x *execAction) mayOverwrite(t *journal.Token, rec record, d activities.Decision) (manifest, error) {
	done, ended, err := readApplied(t)
	if err != nil || !ended || done.After == "" || len(rec.Volumes) == 0 {
		return nil, err
	}
	after, err := loadManifest(t.Dir(), afterFile, done.After)
	if err != nil || d.Force == "" {
		return after, err
	}
	now := manifest{}
	if err := now.addVolumes(rec.Volumes); err != nil {
		return nil, err
	}
	if d.Force == volumeDrift(now) {
		return now, nil
	}
	return after, nil
}

func volumeDrift(now manifest) activities.Digest {
	return activities.DigestOf([]byte("volumes"), []byte(now.volumes().digest()))
}

// driftOfVolumes is what somebody has changed in volumes since the undo began, whose container is rolled back already.
func (x *execAction) driftOfVolumes(t *journal.Token, rec record, before manifest) (activities.Undone, error) {
	after, err := x.mayOverwrite(t, rec, activities.Decision{})
	if err != nil {
		return activities.Undone{}, err
	}
	now := manifest{}
	if err := now.addVolumes(rec.Volumes); err != nil {
		return activities.Undone{}, err
	}
	backAlready := now.volumes()
	for at, n := range before.volumes() {
		if backAlready[at] == n {
			delete(backAlready, at)
			delete(after, at)
		}
	}
	lines := after.volumes().diff(backAlready)
	return activities.Undone{
		Outcome:  activities.Drifted,
		Observed: fmt.Sprintf("%d paths in volumes of %s are neither as the step left them nor as before it", len(lines), nameOf(rec.Container)),
		Drift:    &activities.Drift{Digest: volumeDrift(now), Diff: strings.Join(lines, "\n") + "\n"},
	}, nil
}

// without is a container without the volumes that a copy is kept of.
func without(c container.InspectResponse, kept []volume) container.InspectResponse {
	c.Mounts = slices.DeleteFunc(slices.Clone(c.Mounts), func(m container.MountPoint) bool {
		return slices.ContainsFunc(kept, func(v volume) bool { return v.Name == m.Name })
	})
	return c
}

// fromCopies says of an undo which volumes it brings back.
func fromCopies(kept []volume) string {
	if len(kept) == 0 {
		return ""
	}
	var names []string
	for _, v := range kept {
		names = append(names, v.Name)
	}
	return " What differs in volumes " + strings.Join(names, ", ") + " is put back from copies."
}
