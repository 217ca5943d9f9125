package helper

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/seed-62bf7108/unwind/activities/container/overlay/stack"
)

// boot tells one start of this host from another.
var boot = sync.OnceValue(func() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
})

// miss finds the layers whose folders a loss of power has taken. A page is on the disk at once, a new folder seconds later:
// so they are the newest ones, and what was written in them has gone with them. One that is missing below another was removed
// by somebody.
func (o *open) miss() error {
	if o.Boot == boot() {
		return nil
	}
	for _, n := range slices.Backward(slices.Sorted(maps.Keys(o.used()))) {
		_, err := os.Lstat(stack.Content(o.dir, n))
		if err == nil || slices.ContainsFunc(o.Merged, func(m merged) bool { return m.As == n }) {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		o.Bare = append(o.Bare, n)
	}
	o.Boot = boot()
	return nil
}

// clothe makes bare layers what they would be had they been made over a running container: empty, with the attributes of
// what they cover.
func (o *open) clothe() error {
	if len(o.Bare) == 0 {
		return nil
	}
	if err := o.write(o.dir, false); err != nil { // from now on none of them is missing
		return err
	}
	used := o.used()
	for _, n := range slices.Sorted(slices.Values(o.Bare)) {
		if !used[n] {
			continue
		}
		if err := stack.MakeLayer(o.dir, n); err != nil {
			return err
		}
		if err := o.target.Dress(o.view(o.Below[n], n)); err != nil {
			return err
		}
	}
	o.Bare = nil
	return nil
}
