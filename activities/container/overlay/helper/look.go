package helper

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities/container/overlay/stack"
)

// settled looks again where something went while it was looked at.
func settled[T any](look func() (T, error)) (seen T, err error) {
	for range 5 {
		if seen, err = look(); !errors.Is(err, fs.ErrNotExist) {
			return seen, err
		}
	}
	return seen, err
}

func below(at string, roots []string) bool {
	return slices.ContainsFunc(roots, func(root string) bool { return at == root || strings.HasPrefix(at, root+"/") })
}

// changes lists what differs from a checkpoint, without what is below skip: now, or in another checkpoint.
func (o *open) changes(name, in string, skip []string) ([]stack.Change, error) {
	mark, ok := o.Marks[name]
	if !ok {
		return nil, unknown(name)
	}
	newest := o.newest()
	if in != "" {
		if newest, ok = o.Marks[in]; !ok {
			return nil, unknown(in)
		}
	}
	was, now, common := o.history(mark), o.history(newest), 0
	for common < len(was) && common < len(now) && was[common] == now[common] {
		common++
	}
	skips := func(at string) bool { return below(at, skip) }
	holdsSkipped := func(at string) bool {
		return slices.ContainsFunc(skip, func(s string) bool { return path.Dir(s) == at })
	}
	had, err := stack.Changes(o.dir, layersOf(was[common:]), skips)
	if err != nil {
		return nil, err
	}
	has, err := stack.Changes(o.dir, layersOf(now[common:]), skips)
	if err != nil {
		return nil, err
	}
	all := difference(had, has)
	for i, n := range now {
		if i < common || n >= 0 {
			continue
		}
		others, err := o.drift(now[:i], committed(n), skips, holdsSkipped)
		if err != nil {
			return nil, err
		}
		later, err := stack.Changes(o.dir, layersOf(now[i:]), skips)
		if err != nil {
			return nil, err
		}
		all = amend(all, others, later)
	}
	if o.target == nil {
		return all, nil
	}
	return all, o.target.Compare(o.dir, o.chain(mark), all, holdsSkipped)
}

// amend puts what others have changed into a list of changes, but for what was changed later.
func amend(all, others, later []stack.Change) []stack.Change {
	hidden := map[string]bool{}
	for _, c := range later {
		hidden[c.Path] = true
	}
	for _, c := range others {
		if hidden[c.Path] {
			continue
		}
		at, there := slices.BinarySearchFunc(all, c, func(a, b stack.Change) int { return strings.Compare(a.Path, b.Path) })
		if there {
			all[at] = c
		} else {
			all = slices.Insert(all, at, c)
		}
	}
	return all
}

// difference lists what is in has and not in had, and as gone what is in had alone. Both are sorted by path.
func difference(had, has []stack.Change) []stack.Change {
	was, is := map[string]stack.Change{}, map[string]bool{}
	for _, c := range had {
		was[c.Path] = c
	}
	differs := []stack.Change{}
	for _, c := range has {
		is[c.Path] = true
		if was[c.Path] != c {
			differs = append(differs, c)
		}
	}
	for _, c := range had {
		if !is[c.Path] {
			differs = append(differs, stack.Change{Path: c.Path, Kind: stack.KindGone})
		}
	}
	slices.SortStableFunc(differs, func(a, b stack.Change) int { return strings.Compare(a.Path, b.Path) })
	return differs
}

// files lists all that the container shows.
func (o *open) files(skip []string) ([]stack.Shown, error) {
	return list(o.target, o.memory, skip)
}

// filesOf lists all that a container shows of which nothing is kept: there is nobody to wait for, and it gets no folder here.
func (s *stacks) filesOf(r Request) ([]stack.Shown, error) {
	if r.PID == 0 {
		return list(nil, &s.memory, r.Skip)
	}
	t, err := s.target(r.Container, r.PID)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	return settled(func() ([]stack.Shown, error) { return list(t, &s.memory, r.Skip) })
}

func list(t *stack.Target, known *memory, skip []string) ([]stack.Shown, error) {
	if t == nil {
		return nil, failure(Unfit, "the container does not run")
	}
	return t.List(&known.digests, func(at string) bool { return below(at, skip) })
}

func (o *open) beside() ([]stack.Change, error) {
	if o.target == nil {
		return nil, failure(Unfit, "the container does not run")
	}
	return o.target.Beside()
}

func (o *open) read(at string, limit int64) (stack.File, error) {
	if o.target == nil {
		return stack.File{}, failure(Unfit, "the container does not run")
	}
	return o.target.Read(at, limit)
}

// named lists the checkpoints whose names begin so.
func (o *open) named(prefix string) []string {
	var names []string
	for name := range o.Marks {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func unknown(name string) error {
	return failure(Unknown, "there is no checkpoint %s of the container", name)
}
