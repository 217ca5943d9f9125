package host

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/canonical"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// nameTouched names what a step touches, and returns the size of the names. What cannot be named
// now is in the order that the task file gives it.
func (b builtin) nameTouched(ctx context.Context, names canonical.Names,
	s protocol.PreflightStep) (t activities.Touched, size int) {
	ctx, cancel := context.WithTimeout(ctx, stepLook)
	defer cancel()
	t.Step = s.Step.ID
	all, _ := b.registry.Touches(ctx, s.Uses, s.Step)
	for _, touch := range all {
		found := []string{touch.Name}
		if touch.Path != "" {
			var err error
			if found, err = names.Of(touch.Path); err != nil {
				continue // the step itself is refused for it
			}
		}
		to := &t.Changes
		if touch.Reads {
			to = &t.Reads
		}
		for _, name := range found {
			if filepath.IsAbs(name) {
				name = "file:" + name
			}
			if !slices.Contains(*to, name) {
				*to, size = append(*to, name), size+len(name)
			}
		}
	}
	return t, size
}

// nameAdded names what steps touch that are added to a task, if this host runs them, and lists
// those whose hosts are to be asked. It changes nothing, so that it may fail: the steps are then in
// the order that their parameters give them.
func (b builtin) nameAdded(ctx context.Context, compiled *task.Compiled) {
	names, err := canonical.ReadMounts()
	if err != nil {
		return
	}
	enough, bytes := time.Now().Add(addedLook), 0
	for _, s := range compiled.Steps {
		switch {
		case !s.Preflights:
		case s.Place.Queue != task.HostQueue(b.config.Queue, b.config.Host):
			compiled.Unnamed = append(compiled.Unnamed, s.ID)
		case time.Now().Before(enough):
			outlook, err := s.Outlook()
			if err != nil {
				continue
			}
			touched, size := b.nameTouched(ctx, names, protocol.PreflightStep{Uses: s.Uses, Step: outlook})
			if bytes += size; size > 0 && bytes <= maxTouched {
				compiled.Touched = append(compiled.Touched, touched)
			}
		}
	}
}
