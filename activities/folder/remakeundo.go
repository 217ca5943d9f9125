package folder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/docker/aside"
	"github.com/seed-62bf7108/unwind/activities/docker/blueprint"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/activities/snapshot"
)

// takeBackRemade removes the container that the step has made, and brings back the one that it has
// set aside.
func (a *restore) takeBackRemade(ctx context.Context, t *journal.Token, e activities.Entry, s *step,
	d activities.Decision) (u activities.Undone, err error) {
	m, err := a.remaking(t, e, s)
	if err == nil {
		err = m.checkNotLost(d.Done)
	}
	if err != nil {
		return u, err
	}
	var mine made
	var whose turn
	if _, err := t.Create(madeDoc, &mine); err != nil {
		return u, err
	}
	if _, err := t.Create(turnDoc, &whose); err != nil { // the last: see checkNotLost
		return u, err
	}
	point.Reach("folder.restore:fenced")
	if !whose.Taken {
		u = activities.Undone{Outcome: activities.Nothing, Observed: "nothing was put back, and no longer can be"}
		if m.Aside != "" { // it was never touched
			return u, nil
		}
		return u, m.removeMade(ctx, mine.ID)
	}
	if u, err = m.checkDrift(ctx, mine.ID, d); err != nil || u.Outcome == activities.Drifted {
		return u, err
	}
	if m.Aside != "" {
		err = m.leaveAside(ctx)
	} else {
		err = m.removeMade(ctx, mine.ID)
	}
	if err != nil {
		return u, err
	}
	point.Reach("folder.restore:made-removed")
	if m.found != nil {
		old := m.setAside()
		err := old.BringBack(ctx, old.RestoreRestarts)
		if errors.Is(err, aside.ErrGone) {
			return u, m.goneForGood()
		}
		if err != nil {
			return u, err
		}
	}
	return m.report(ctx, s.Before)
}

// checkNotLost is DamagedRecord where a document is gone without which it is not known what the step
// has done.
func (m *remaking) checkNotLost(isDone bool) error {
	applied, err := m.token.Has(journal.Applied)
	if err != nil {
		return err
	}
	hasTurn, err := m.token.Has(turnDoc)
	if err != nil {
		return err
	}
	hasMade, err := m.token.Has(madeDoc)
	if err != nil {
		return err
	}
	if (applied || isDone) && !hasTurn || hasTurn && m.kept != nil && !hasMade {
		return m.token.CheckNotLost(true)
	}
	return nil
}

// checkDrift looks at what has the name of the container, until an undo has decided to go back: from
// then on, what is gone that undo may have removed.
func (m *remaking) checkDrift(ctx context.Context, id string, d activities.Decision) (u activities.Undone, err error) {
	isBack, err := m.token.Has(backDoc)
	if err != nil {
		return u, err
	}
	drift, seen, err := m.view(ctx, id, isBack)
	if err != nil {
		return u, err
	}
	if seen != "" && (drift == nil || drift.Digest != d.Force) {
		return activities.Undone{Outcome: activities.Drifted, Observed: seen, Drift: drift}, nil
	}
	var back goingBack
	if m.found != nil { // nothing is taken away for nothing
		if _, err := m.engine.ContainerInspect(ctx, m.found.ID); engine.IsNotFound(err) {
			return u, m.goneForGood()
		} else if err != nil {
			return u, engine.Explain("looking at the container that was set aside", err)
		}
		if back.Left, err = m.setAside().LeftBy(ctx); err != nil {
			return u, err
		}
	}
	m.left = back.Left
	_, err = m.token.Create(backDoc, &back)
	m.left = cmp.Or(m.left, back.Left) // what an earlier undo has found may be another one by now
	return u, err
}

// view looks for what others have done: seen says what, and is empty where they have done nothing.
// Without drift, going back would take away a container that no step has made: that cannot be
// forced.
func (m *remaking) view(ctx context.Context, id string, isBack bool) (drift *activities.Drift, seen string, err error) {
	holder, err := m.holder(ctx)
	if err != nil {
		return nil, "", err
	}
	switch {
	case holder == nil:
		return m.viewAbsence(ctx, id, isBack)
	case m.found != nil && holder.ID == m.found.ID:
		return nil, "", nil
	case holder.ID == id:
		return m.viewMade(ctx, id)
	}
	return nil, fmt.Sprintf("container %s is another one (%s) than the step has left: nothing was touched; give that "+
		"another name (docker rename %[1]s NAME), and it stays as it is", m.name, holder.ID[:12]), nil
}

// holder is the container that has the name; nil: there is none.
func (m *remaking) holder(ctx context.Context) (*container.InspectResponse, error) {
	c, err := m.engine.ContainerInspect(ctx, m.name)
	if engine.IsNotFound(err) {
		return nil, nil //nolint:nilnil // there is none
	}
	return &c, engine.Explain("looking for container "+m.name, err)
}

// viewAbsence is view where no container has the name.
func (m *remaking) viewAbsence(ctx context.Context, id string, isBack bool) (*activities.Drift, string, error) {
	if m.kept == nil || isBack {
		return nil, "", nil
	}
	c, err := m.engine.ContainerInspect(ctx, id)
	switch {
	case engine.IsNotFound(err):
		return &activities.Drift{Digest: activities.DigestOf([]byte("gone")), Diff: "- container " + m.name + "\n"},
			"container " + m.name + " was removed", nil
	case err != nil:
		return nil, "", engine.Explain("looking at the container that was made again", err)
	case strings.HasPrefix(engine.NameOf(c), m.namePrefix()), engine.NameOf(c) == m.Aside: // it has not got its name yet
		return nil, "", nil
	}
	return nil, fmt.Sprintf("container %s was renamed to %s: give it its name back (docker rename %[2]s %[1]s)", m.name,
		engine.NameOf(c)), nil
}

// viewMade is view where the container that the step has made has its name.
func (m *remaking) viewMade(ctx context.Context, id string) (*activities.Drift, string, error) {
	at, err := m.locateMade(ctx, id)
	if err != nil {
		return nil, "", activities.Errorf(activities.ActionFailed, "%v", err)
	}
	defer at.close()
	now, err := m.store.Scan(ctx, at.root(), snapshot.Look{})
	if err != nil {
		return nil, "", explain(err)
	}
	differs, err := blueprint.Differs(m.Kept, at.said)
	if err != nil {
		return nil, "", err
	}
	changed := m.holds.Differs(now)
	if len(differs)+len(changed) == 0 {
		return nil, "", nil
	}
	how, err := blueprint.Digest(at.said)
	first := append(differs, changed...)[0]
	return &activities.Drift{
		Digest: activities.DigestOf([]byte(how), []byte(now.Digest())),
		Diff:   describeSettings(differs) + at.lines(changed, m.holds, now),
	}, "container " + m.name + " is not as the step left it: " + first, err
}

// removeMade removes the container that the step has made, unless another step has set it aside.
func (m *remaking) removeMade(ctx context.Context, id string) error {
	if id != "" {
		c, err := m.engine.ContainerInspect(ctx, id)
		switch {
		case engine.IsNotFound(err) || err == nil && aside.Is(c):
		case err != nil:
			return engine.Explain("looking at the container that was made again", err)
		default:
			if err := m.remove(ctx, id); err != nil {
				return err
			}
		}
	}
	return m.sweep(ctx, "")
}

func (m *remaking) goneForGood() error {
	return activities.Errorf(activities.DamagedRecord,
		"the container %s that was set aside has been removed by somebody: there is nothing to bring back, and what has its "+
			"name was not touched; a checkpoint of it makes it again, or resolve with accept to keep the other one",
		m.found.ID[:12])
}

// report says what is seen after an undo.
func (m *remaking) report(ctx context.Context, before activities.Digest) (u activities.Undone, err error) {
	holder, err := m.holder(ctx)
	if err != nil {
		return u, err
	}
	if m.found == nil {
		if holder != nil {
			return u, fmt.Errorf("container %s has been made by someone else meanwhile", m.name)
		}
		return activities.Undone{Outcome: activities.Restored,
			Observed: "there is no container " + m.name + ", as before"}, nil
	}
	if holder == nil || holder.ID != m.found.ID {
		return u, fmt.Errorf("container %s has not got its name %s again", m.found.ID[:12], m.name)
	}
	at, err := m.locateFiles(ctx, *holder)
	if err != nil {
		return u, err
	}
	defer at.close()
	now, err := m.store.Scan(ctx, at.root(), snapshot.Look{})
	if err != nil {
		return u, explain(err)
	}
	u = activities.Undone{Outcome: activities.Restored,
		Observed: fmt.Sprintf("container %s has its name %s again, and is as before", m.found.ID[:12], m.name)}
	if now.Digest() != before {
		u.Outcome = activities.Residue
		u.Losses = []string{"its files are not as they were when it was set aside, and are left so"}
	}
	return u, nil
}

// observe says how the container is.
func (m *remaking) observe(ctx context.Context) (o activities.Observation, err error) {
	var mine made
	if _, err := m.token.Read(madeDoc, &mine); err != nil {
		return o, err
	}
	holder, err := m.holder(ctx)
	if err != nil {
		return o, err
	}
	switch {
	case m.found == nil && holder == nil, m.found != nil && holder != nil && holder.ID == m.found.ID:
		o.State = activities.AsBefore
	case m.kept == nil && holder == nil:
		o.State = activities.AsLeft
	default:
		drift, seen, err := m.view(ctx, mine.ID, false)
		if err != nil {
			return o, err
		}
		o = activities.Observation{State: activities.AsLeft, Drift: drift, Detail: seen}
		if seen != "" || holder == nil {
			o.State = activities.Elsewise
		}
	}
	return o, nil
}
