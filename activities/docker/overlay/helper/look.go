package helper

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities/docker/overlay/layer"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/stack"
)

// retryVanished tries again if a file vanished while it was read.
func retryVanished[T any](look func() (T, error)) (seen T, err error) {
	for range 5 {
		if seen, err = look(); !errors.Is(err, fs.ErrNotExist) {
			return seen, err
		}
	}
	return seen, err
}

func isBelow(at string, roots []string) bool {
	return slices.ContainsFunc(roots, func(root string) bool { return at == root || strings.HasPrefix(at, root+"/") })
}

// listChanges lists what differs from a checkpoint, except below skip: now, or in another
// checkpoint.
func (o *lockedBook) listChanges(name, in string, skip []string) ([]layer.Change, error) {
	mark, ok := o.Marks[name]
	if !ok {
		return nil, unknownCheckpoint(name)
	}
	newest := o.newestLayer()
	if in != "" {
		if newest, ok = o.Marks[in]; !ok {
			return nil, unknownCheckpoint(in)
		}
	}
	was, now, common := o.history(mark), o.history(newest), 0
	for common < len(was) && common < len(now) && was[common] == now[common] {
		common++
	}
	skips := func(at string) bool { return isBelow(at, skip) }
	holdsSkipped := func(at string) bool {
		return slices.ContainsFunc(skip, func(s string) bool { return path.Dir(s) == at })
	}
	had, err := layer.Changes(o.dir, layersOf(was[common:]), skips)
	if err != nil {
		return nil, err
	}
	has, err := layer.Changes(o.dir, layersOf(now[common:]), skips)
	if err != nil {
		return nil, err
	}
	all := diffChanges(had, has)
	for i, n := range now {
		if i < common || n >= 0 {
			continue
		}
		others, err := o.drift(now[:i], commitMarker(n), skips, holdsSkipped)
		if err != nil {
			return nil, err
		}
		later, err := layer.Changes(o.dir, layersOf(now[i:]), skips)
		if err != nil {
			return nil, err
		}
		all = addDrift(all, others, later)
	}
	if o.target == nil {
		return all, nil
	}
	if err := o.target.Base().Compare(o.dir, o.chain(mark), all, holdsSkipped); err != nil || in != "" {
		return all, err
	}
	return o.addForeign(all, name, skips)
}

// foreignAbove lists the paths that mounted layers above a checkpoint's change, and that somebody
// else has changed in the container's own root.
func (o *lockedBook) foreignAbove(mark int, deep bool, skips func(string) bool) ([]string, error) {
	if o.target == nil {
		return nil, nil
	}
	below := o.chain(mark)
	above := slices.DeleteFunc(o.chain(o.newestLayer()), func(n int) bool { return slices.Contains(below, n) })
	return o.root().Foreign(o.dir, above, deep, skips)
}

// addForeign adds to what differs from a checkpoint what somebody else has in the container's own
// root where the step has written, or had.
func (o *lockedBook) addForeign(all []layer.Change, name string, skips func(string) bool) ([]layer.Change, error) {
	paths, err := o.foreignAbove(o.Marks[name], false, skips)
	if err != nil {
		return nil, err
	}
	if o.Over[name] {
		paths = slices.Concat(paths, o.Others[name])
	}
	var foreign []layer.Change
	for _, at := range paths {
		is, err := o.target.Base().DescribePath(at)
		if err != nil {
			return nil, err
		}
		is.Over = is.Kind != layer.KindGone
		foreign = append(foreign, is)
	}
	return addDrift(all, foreign, nil), nil
}

// addDrift adds what others have changed to a list of changes, unless it was changed again later.
func addDrift(all, others, later []layer.Change) []layer.Change {
	hidden := map[string]bool{}
	for _, c := range later {
		hidden[c.Path] = true
	}
	for _, c := range others {
		if hidden[c.Path] {
			continue
		}
		at, there := slices.BinarySearchFunc(all, c, func(a, b layer.Change) int { return strings.Compare(a.Path, b.Path) })
		if there {
			all[at] = c
		} else {
			all = slices.Insert(all, at, c)
		}
	}
	return all
}

// diffChanges lists what is in has and not in had, and as gone what is only in had. Both are sorted
// by path.
func diffChanges(had, has []layer.Change) []layer.Change {
	was, is := map[string]layer.Change{}, map[string]bool{}
	for _, c := range had {
		was[c.Path] = c
	}
	differs := []layer.Change{}
	for _, c := range has {
		is[c.Path] = true
		if was[c.Path] != c {
			differs = append(differs, c)
		}
	}
	for _, c := range had {
		if !is[c.Path] {
			differs = append(differs, layer.Change{Path: c.Path, Kind: layer.KindGone})
		}
	}
	slices.SortStableFunc(differs, func(a, b layer.Change) int { return strings.Compare(a.Path, b.Path) })
	return differs
}

// listFiles lists all that the container shows.
func (o *lockedBook) listFiles(skip []string) ([]stack.RootEntry, error) {
	return listRoot(o.target, o.memory, skip)
}

// answerUnlocked answers a request about a container of which nothing is kept: no lock to wait for,
// and no folder is made.
func (s *stacks) answerUnlocked(ctx context.Context, r Request) (a Answer, err error) {
	o := &lockedBook{memory: &s.memory}
	if r.PID != 0 {
		if o.target, a.Born, err = s.openTarget(r.Container, process{r.PID, r.Born}); err != nil {
			return a, err
		}
		defer o.target.Close()
	}
	err = o.execute(ctx, r, &a)
	return a, err
}

func listRoot(t *stack.Target, known *bookCache, skip []string) ([]stack.RootEntry, error) {
	if t == nil {
		return nil, newFailure(Unfit, "the container is not running")
	}
	return t.ListRoot(&known.digests, func(at string) bool { return isBelow(at, skip) })
}

func (o *lockedBook) engineFiles() ([]layer.Change, error) {
	if o.target == nil {
		return nil, newFailure(Unfit, "the container is not running")
	}
	return o.target.EngineFiles()
}

func (o *lockedBook) recreateNodes(nodes []layer.Change) error {
	if o.target == nil { // its next start makes them
		return nil
	}
	return o.target.RecreateNodes(nodes)
}

func (o *lockedBook) readFile(at string, limit int64) (stack.File, error) {
	if o.target == nil {
		return stack.File{}, newFailure(Unfit, "the container is not running")
	}
	return o.target.ReadFile(at, limit)
}

// checkpointsNamed lists the checkpoints whose names have the prefix.
func (o *lockedBook) checkpointsNamed(prefix string) []string {
	var names []string
	for name := range o.Marks {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func unknownCheckpoint(name string) error {
	return newFailure(Unknown, "there is no checkpoint %s of the container", name)
}
