package task

import (
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
)

// FollowTouched adds needs between steps that touch the same thing, whatever their parameters call
// it, as the steps' hosts have named it: the later one in file order needs the earlier one, unless
// both only read. The steps keep the names.
func (c *Compiled) FollowTouched(touched []activities.Touched) {
	if len(touched) == 0 {
		return
	}
	index := make(map[string]int, len(c.Steps)) // only looked up
	for i, s := range c.Steps {
		index[s.ID] = i
	}
	of := make([]activities.Touched, len(c.Steps))
	for _, t := range touched {
		if i, known := index[t.Step]; known {
			of[i] = t
		}
	}
	places := map[string]*claim{} // by queue; only looked up
	ahead := make([]bitset, len(c.Steps))
	for i := range c.Steps {
		s := &c.Steps[i]
		s.nameTouched(of[i])
		tree := places[s.Place.Queue]
		if tree == nil {
			tree = &claim{last: -1}
			places[s.Place.Queue] = tree
		}
		var follows, needs []int
		var others []string // steps that are not of this document
		for _, name := range of[i].Reads {
			follows = append(follows, tree.enter(i, levels(name), true)...)
		}
		for _, name := range of[i].Changes {
			follows = append(follows, tree.enter(i, levels(name), false)...)
		}
		for _, need := range s.Needs {
			if j, known := index[need]; known {
				needs = append(needs, j)
			} else {
				others = append(others, need)
			}
		}
		dropImplied(i, needs, ahead)
		follows = slices.DeleteFunc(follows, func(j int) bool { return j == i || ahead[i].has(j) })
		if len(follows) == 0 {
			continue
		}
		s.Needs = others
		for _, j := range dropImplied(i, append(needs, follows...), ahead) {
			s.Needs = append(s.Needs, c.Steps[j].ID)
		}
	}
}

// nameTouched keeps the names that the step's host has given what it touches, without those that
// its keys have too.
func (s *Step) nameTouched(t activities.Touched) {
	isKey := func(name string) bool { return slices.Contains(s.Keys, name) }
	s.Changes, s.Reads = slices.DeleteFunc(slices.Clone(t.Changes), isKey), slices.DeleteFunc(slices.Clone(t.Reads), isKey)
}

// TakeNames gives the step what its host has named when it was about to run. Where that is nothing,
// it may touch anything.
func (s *Step) TakeNames(t activities.Touched) {
	s.Keys = t.Keys
	s.nameTouched(t)
}

// levels splits a name into those of the folders that it is in, and its own.
func levels(name string) []string { return strings.Split(strings.TrimSuffix(name, "/"), "/") }
