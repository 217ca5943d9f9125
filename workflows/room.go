package workflows

import "encoding/json"

// stepBytes and entryBytes are about what a compiled step and an entry take beside their parameters.
const (
	stepBytes  = 400
	entryBytes = 400
)

// room watches the size of what a task would carry over: it must fit into one payload, compressed, at any time.
type room struct {
	measure func() (int, error) // the size of it, compressed

	packed int // what measure has said last
	added  int // bytes that were added since
}

// grow notes that so many bytes more are to be carried over.
func (r *room) grow(bytes int) { r.added += bytes }

// reset starts again from a known size.
func (r *room) reset(packed int) { r.packed, r.added = packed, 0 }

// reserve makes room for a step's entry on a ledger that has so many entries with it. It refuses a step whose entry would make
// the task too large to be carried over, before anything is touched.
func (r *room) reserve(params, entries int) error {
	need, most := params+entryBytes, maxLedger(entries)
	if !r.fits(need, most) {
		size, err := r.measure()
		if err != nil {
			return err
		}
		r.reset(size)
		if !r.fits(need, most) {
			return refused("the ledger of this task has %d bytes compressed; with this step it could be more than the %d that can be carried: split the task",
				size, most)
		}
	}
	r.grow(need)
	return nil
}

// fits says that there is room for so many bytes, whatever they compress to.
func (r *room) fits(bytes, most int) bool { return r.packed+r.added+bytes <= most }

func sizeOf(v any) int {
	raw, _ := json.Marshal(v) // plain data
	return len(raw)
}
