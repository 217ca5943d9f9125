package environment

import (
	"slices"
	"time"
)

// TakenBack is a rollback that has taken back what a task had changed.
type TakenBack struct {
	Environment string `json:"environment"`
	// Checkpoint is the one that it went back to, Safety the one that has what the task had changed.
	Checkpoint string    `json:"checkpoint"`
	Safety     string    `json:"safety"`
	Parts      []string  `json:"parts"`
	At         time.Time `json:"at"`
}

// TakenBack tells by which rollbacks what tasks had changed is taken back now: the tasks by their
// ids. Going forward again ends that. It is known as long as the safety checkpoint is there.
func (v View) TakenBack() map[string][]TakenBack {
	found := map[string][]TakenBack{}
	for _, c := range v.Checkpoints {
		for _, t := range c.Past {
			for _, part := range t.Names() {
				if by := takenBackBy(v.Checkpoints, t.Task, part, time.Time{}); by == c.ID {
					found[t.Task] = addPart(found[t.Task], c, part)
				}
			}
		}
	}
	return found
}

// takenBackBy is the safety checkpoint of the rollback by which a part did not have, before a time,
// what a task had changed; empty: it had it. The zero time is now. What a rollback has put back is as
// it was when the checkpoint was taken that it went back to.
func takenBackBy(all []Checkpoint, task, part string, before time.Time) (safety string) {
	for _, c := range all { // the newest first
		if !slices.Contains(c.PutBack, part) || !before.IsZero() && !c.Created.Before(before) {
			continue
		}
		hasIt := func(t TaskWrote) bool { return t.Task == task && slices.Contains(t.Names(), part) }
		if slices.ContainsFunc(c.Past, hasIt) {
			return c.ID
		}
		to := slices.IndexFunc(all, func(each Checkpoint) bool { return each.ID == c.RolledBackTo })
		if to < 0 {
			return ""
		}
		return takenBackBy(all, task, part, all[to].Created)
	}
	return ""
}

func addPart(all []TakenBack, c Checkpoint, part string) []TakenBack {
	i := slices.IndexFunc(all, func(t TakenBack) bool { return t.Safety == c.ID })
	if i < 0 {
		return append(all, TakenBack{Environment: c.Environment, Checkpoint: c.RolledBackTo, Safety: c.ID,
			Parts: []string{part}, At: c.Created})
	}
	all[i].Parts = append(all[i].Parts, part)
	return all
}
