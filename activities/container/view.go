package container

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities/container/checkpoint"
	"github.com/seed-62bf7108/unwind/activities/container/manifest"
	"github.com/seed-62bf7108/unwind/activities/container/target"
	"github.com/seed-62bf7108/unwind/activities/container/volumes"
	"github.com/seed-62bf7108/unwind/activities/docker/aside"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// view looks at the container of a step, under whatever id it has now.
func (x *execAction) view(ctx context.Context, t *journal.Token, rec stepRecord) (target.View, error) {
	s, _, err := x.viewBy(ctx, t, rec, func(present container.InspectResponse) (manifest.Manifest, error) {
		return x.backends.Of(rec.Backend).ReadManifest(ctx, filepath.Base(t.Dir()), present.ID, rec.Ignore)
	})
	return s, err
}

// viewBy looks at it with read, which is not asked where it is gone, and returns its inspection
// too.
func (x *execAction) viewBy(ctx context.Context, t *journal.Token, rec stepRecord,
	read func(present container.InspectResponse) (manifest.Manifest, error)) (
	s target.View, present container.InspectResponse, err error,
) {
	s.Name = engine.NameOf(rec.Container)
	done, ended, err := target.ReadCompletion(t)
	if err != nil {
		return s, present, err
	}
	if s.Before, err = manifest.Load(t.Dir(), beforeFile, rec.Before); err != nil {
		return s, present, err
	}
	if ended && done.After != "" {
		if s.After, err = manifest.Load(t.Dir(), target.AfterFile, done.After); err != nil {
			return s, present, err
		}
	}
	stands, present, err := x.findPresent(ctx, rec.Container.ID)
	s.ID = stands.ID
	if engine.IsNotFound(err) || err == nil && aside.Is(present) {
		s.Gone = true
		s.Occupant, err = engine.FindHolder(ctx, x.engine, s.Name)
		return s, present, err
	}
	if err != nil {
		return s, present, err
	}
	s.Stopped = ended && done.IsStoppedSince(present) && !stands.HasFailed(present)
	s.Now, err = read(present)
	if err != nil && s.After == nil { // no drift can be told anyway, and the step itself may have made it unreadable
		s.Now, s.Unread, err = manifest.Manifest{}, true, nil
	}
	if err != nil {
		return s, present, err
	}
	if !present.State.Running {
		s.Now.Adopt(s.After)
	}
	seen, _, err := x.lineage.Seen(s.ID)
	if err != nil {
		return s, present, err
	}
	s.Accept(seen.Started)
	return s, present, volumes.AddTo(ctx, s.Now, rec.Volumes)
}

// compareUncovered lists what no checkpoint covers and is not as it was before the step.
func (x *execAction) compareUncovered(ctx context.Context, rec stepRecord, id string) (differs []string, err error) {
	if rec.Beside == nil {
		return nil, nil
	}
	seen, err := x.backends.Of(rec.Backend).ReadUncovered(ctx, id)
	if err != nil {
		return nil, err
	}
	return rec.diffUncovered(seen), nil
}

// diffUncovered lists what is not as it was before the step; nothing where it could not be read.
func (r stepRecord) diffUncovered(seen checkpoint.Uncovered) (differs []string) {
	now := seen.Digests
	if r.Beside == nil || now == nil {
		return nil
	}
	for at, was := range r.Beside {
		switch is, there := now[at]; {
		case !there:
			differs = append(differs, "- "+at)
		case is != was:
			differs = append(differs, "~ "+at)
		}
	}
	for at := range now {
		if _, there := r.Beside[at]; !there {
			differs = append(differs, "+ "+at)
		}
	}
	slices.Sort(differs)
	return differs
}

// compareRemains lists those that are of the step's making: the engine and others write there too.
func (x *execAction) compareRemains(ctx context.Context, t *journal.Token, rec stepRecord,
	back checkpoint.Restoration) (differs []string, err error) {
	if back.Uncovered != nil {
		differs = rec.diffUncovered(*back.Uncovered)
	} else {
		differs, err = x.compareUncovered(ctx, rec, back.ID)
	}
	if err != nil || len(differs) == 0 {
		return nil, err
	}
	done, ended, err := target.ReadCompletion(t)
	if ended {
		differs = slices.DeleteFunc(differs, func(line string) bool { return !slices.Contains(done.Beside, line) })
	}
	return differs, err
}

// changedNodes are those nodes that the step has changed; where it has not come to its end, it may
// be any.
func changedNodes(t *journal.Token, rec stepRecord) (map[string]string, error) {
	done, ended, err := target.ReadCompletion(t)
	if err != nil || !ended {
		return rec.Nodes, err
	}
	nodes := map[string]string{}
	for _, line := range done.Beside {
		if at := line[len("~ "):]; rec.Nodes[at] != "" {
			nodes[at] = rec.Nodes[at]
		}
	}
	return nodes, nil
}

// withoutNodes leaves out of what a step has changed beside its checkpoint what a rollback makes
// again.
func (r stepRecord) withoutNodes(beside []string) []string {
	return slices.DeleteFunc(slices.Clone(beside), func(line string) bool { return r.Nodes[line[len("~ "):]] != "" })
}
