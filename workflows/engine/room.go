package engine

import (
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// stepBytes and entryBytes are the approximate sizes of a compiled step and an entry without their
// parameters.
const (
	stepBytes  = 400
	entryBytes = 400
)

// room watches the size of what a task would carry over: at any time it must fit into one payload,
// compressed.
type room struct {
	measure func() (int, error) // returns the compressed size of the carry, which differs between versions of Go

	packed   int // the latest result of measure
	added    int // bytes added since
	expected int // bytes that running steps may add
}

// expect makes room for bytes that a running step may add, until it has ended.
func (r *room) expect(bytes int) (ended func()) {
	r.expected += bytes
	return func() { r.expected -= bytes }
}

// addBytes records that more bytes are to be carried over.
func (r *room) addBytes(bytes int) { r.added += bytes }

// reset starts from a known size.
func (r *room) reset(packed int) { r.packed, r.added = packed, 0 }

// measured is what a history holds of a measurement.
type measured struct {
	Bytes   int    `json:"bytes,omitempty"`
	Problem string `json:"problem,omitempty"`
}

// measureOnce measures for good: a replay takes the size that the history has, because whether a
// step is refused depends on it.
func (r *room) measureOnce(ctx workflow.Context) (int, error) {
	var m measured
	err := workflow.SideEffect(ctx, func(workflow.Context) any {
		size, err := r.measure()
		if err != nil {
			return measured{Problem: err.Error()}
		}
		return measured{Bytes: size}
	}).Get(&m)
	if err == nil && m.Problem != "" {
		err = protocol.Refusef("the ledger of this task cannot be measured: %s", m.Problem)
	}
	return m.Bytes, err
}

// reserve makes room for a step's entry, with which the ledger has the given number of entries. It
// refuses a step whose entry, with what may have to be known of its result, could make the task too
// large to be carried over, before anything is touched.
func (r *room) reserve(ctx workflow.Context, params, result, entries int) error {
	need, most := params+entryBytes, protocol.MaxLedger(entries)
	if !r.fits(need+result, most) {
		size, err := r.measureOnce(ctx)
		if err != nil {
			return err
		}
		r.reset(size)
		if !r.fits(need+result, most) {
			return protocol.Refusef(
				"the ledger of this task has %s compressed; with this step it could be more than the %d that can be carried: "+
					"split the task",
				activities.CountOf(size, "byte"), most)
		}
	}
	r.addBytes(need)
	return nil
}

// fits reports whether there is room for that many bytes, even if they do not compress.
func (r *room) fits(bytes, most int) bool { return r.packed+r.added+r.expected+bytes <= most }
