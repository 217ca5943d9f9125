package host

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// spent is what this host has seen of standing approvals: a note for each that was used or revoked. Their
// keeper is a workflow, which somebody can end: one that is given again does not count anew here.
type spent struct {
	notes[activities.GivenAllowance]

	mu *sync.Mutex // held while a note is replaced
}

// spentWindow is longer than any standing approval counts from when its note was written last.
const spentWindow = activities.MaxAllowanceTime + 24*time.Hour

func spentOf(c Config) spent {
	return spent{mu: &sync.Mutex{}, notes: notes[activities.GivenAllowance]{filepath.Join(c.State, "allowances"),
		spentWindow, time.Now, "how often a standing approval was used"}}
}

// add notes what is known of an allowance, durably, and returns it with what was noted before. The caller
// has verified its id.
func (s spent) add(g activities.GivenAllowance) (activities.GivenAllowance, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own, err := s.read(g.ID)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return g, err
	}
	isNew := g.Revoked != nil && own.Revoked == nil
	all := slices.Clone(own.Used)
	for _, u := range g.Used {
		if len(all) < activities.MaxAllowanceUses && !slices.ContainsFunc(all, u.IsSame) {
			all, isNew = append(all, u), true
		}
	}
	if g.Used = all; own.Revoked != nil {
		g.Revoked = own.Revoked
	}
	if !isNew {
		return g, nil
	}
	return g, errors.Join(s.prepare(), s.replace(g.ID, g))
}
