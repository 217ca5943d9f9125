package filetree

import "sync/atomic"

// tallyEvery is how many bytes of a file are copied before they are counted.
const tallyEvery = 16 << 20

// Tally counts what has been copied; it may be read meanwhile. A nil one counts nothing.
type Tally struct{ nodes, bytes atomic.Int64 }

// Nodes is how many files, folders and others are copied, each with all that is in it.
func (t *Tally) Nodes() int64 { return t.nodes.Load() }

// Bytes is how many bytes of files are copied, without holes.
func (t *Tally) Bytes() int64 { return t.bytes.Load() }

// AddNode counts one more.
func (t *Tally) AddNode() {
	if t != nil {
		t.nodes.Add(1)
	}
}

// AddBytes counts more bytes.
func (t *Tally) AddBytes(n int64) {
	if t != nil {
		t.bytes.Add(n)
	}
}
