package helper

import (
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities/docker/overlay/layer"
)

// checkpointSize is what a checkpoint takes on the disk in bytes, with those beside it whose names
// begin with kept: the last layer written before it, and all that only they have. A layer that
// several checkpoints begin with counts for each.
func (o *lockedBook) checkpointSize(name, kept string) (sum int64, err error) {
	mark := o.Marks[name]
	counts := map[int]bool{mark: mark != 0}
	below := o.chain(mark)
	for other, n := range o.Marks {
		if kept == "" || !strings.HasPrefix(other, kept) {
			continue
		}
		for _, number := range o.chain(n) {
			counts[number] = counts[number] || !slices.Contains(below, number)
		}
	}
	for number, counted := range counts {
		if !counted {
			continue
		}
		size, err := layer.Size(o.dir, number)
		if err != nil {
			return 0, err
		}
		sum += size
	}
	return sum, nil
}
