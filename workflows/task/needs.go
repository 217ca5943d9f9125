package task

import "slices"

// orderSteps fills in Needs: those that are written (all steps above if none are), the steps whose
// outputs a step refers to, and those above that touch the same resource; without those that others
// of them imply.
func (c *compiler) orderSteps(steps []Step) {
	places := map[string]*claims{}
	ahead := make([]bitset, len(steps)) // all that must be done before each step
	needed := make([]bool, len(steps))  // by a later step
	var loose []int                     // the last step that follows all before it, and all since
	for i := range steps {
		written := c.doc.file.Steps[i]
		t := c.touches[i]
		if places[t.place] == nil {
			places[t.place] = newClaims()
		}
		needs := places[t.place].claimStep(i, t)
		if !written.Needs.written {
			needs = slices.DeleteFunc(loose, func(j int) bool { return needed[j] }) // together they follow all that is before
			loose = nil
		} else {
			needs = append(slices.Clone(needs), c.refs[i]...)
			for _, n := range written.Needs.ids {
				if _, isEarlier := c.doc.earlier[n.text]; isEarlier {
					c.before[i] = append(c.before[i], n.text)
				} else {
					needs = append(needs, c.byID[n.text])
				}
			}
		}
		direct := dropImplied(i, needs, ahead)
		if c.doc.earlier != nil { // they come first
			slices.Sort(c.before[i])
			steps[i].Needs = slices.Compact(c.before[i])
			steps[i].Follows = !written.Needs.written &&
				!slices.ContainsFunc(steps[:i], func(s Step) bool { return s.Follows && ahead[i].has(c.byID[s.ID]) })
		}
		for _, j := range direct {
			steps[i].Needs = append(steps[i].Needs, steps[j].ID)
			needed[j] = true
		}
		loose = append(loose, i)
	}
}

// dropImplied returns the needs of step i, in file order, without those that others of them need.
// It notes in ahead all steps that must be done before i.
func dropImplied(i int, needs []int, ahead []bitset) []int {
	slices.Sort(needs)
	needs = slices.Compact(needs)
	ahead[i] = make(bitset, i/64+1)
	var direct []int
	for _, j := range slices.Backward(needs) { // a later step may need an earlier one, never the other way round
		if !ahead[i].has(j) {
			direct = append(direct, j)
			ahead[i].join(ahead[j])
			ahead[i].setBit(j)
		}
	}
	slices.Reverse(direct)
	return direct
}

// bitset is a set of step indices.
type bitset []uint64

func (b bitset) has(i int) bool { return i/64 < len(b) && b[i/64]&(1<<(i%64)) != 0 }
func (b bitset) setBit(i int)   { b[i/64] |= 1 << (i % 64) }

func (b bitset) join(other bitset) {
	for k, word := range other {
		b[k] |= word
	}
}
