package qcow2

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// Difference is what differs between two views of one image.
type Difference struct {
	// Spans are the places of the disk that differ, in their order.
	Spans []Span
	// Bytes are those of the spans.
	Bytes int64
	// Was and Is are the sizes of the disk.
	Was, Is int64
	// Digest covers the spans, and what the second view has there.
	Digest string
}

// Span is a place of a disk.
type Span struct{ From, Length int64 }

func (s Span) String() string { return fmt.Sprintf("bytes %d to %d", s.From, s.From+s.Length-1) }

// IsNone says that nothing differs.
func (d Difference) IsNone() bool { return len(d.Spans) == 0 && d.Was == d.Is }

// Differs compares two views of one image, cluster by cluster. What is the same in both maps is not
// read. A cluster that was written with what it had is the same, unless it is compressed, or is in
// the image below: then it counts as another.
func (v View) Differs(is View) (d Difference, err error) {
	d.Was, d.Is = v.Size, is.Size
	h := sha256.New()
	fmt.Fprintln(h, is.Size)
	i := v.image
	for n := range max(len(v.l1), len(is.l1)) {
		if v.table(n) == is.table(n) {
			continue
		}
		before, err := v.entries(n)
		if err != nil {
			return d, err
		}
		after, err := is.entries(n)
		if err != nil {
			return d, err
		}
		for c := range before {
			same, err := i.same(before[c], after[c])
			if err != nil {
				return d, err
			}
			from := (int64(n)*i.perTable() + int64(c)) * i.ClusterSize
			if same || from >= max(v.Size, is.Size) {
				continue
			}
			d.add(Span{from, min(i.ClusterSize, max(v.Size, is.Size)-from)})
			h.Write(binary.BigEndian.AppendUint64(nil, uint64(from))) //nolint:gosec // not negative
			if err := i.hash(h.Write, after[c]); err != nil {
				return d, err
			}
		}
	}
	d.Digest = hex.EncodeToString(h.Sum(nil))
	return d, nil
}

// hash writes what a cluster is and has into a digest.
func (i *Image) hash(write func([]byte) (int, error), c cluster) error {
	kind := c.entry
	if c.isStored() && !c.isCompressed() {
		kind = c.entry & bitZero // and not where it is
	}
	_, _ = write(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, kind), c.parts))
	if !c.isStored() {
		return nil
	}
	b, err := i.content(c)
	_, _ = write(b) // a digest takes all
	return err
}

func (d *Difference) add(s Span) {
	d.Bytes += s.Length
	if n := len(d.Spans); n > 0 && d.Spans[n-1].From+d.Spans[n-1].Length == s.From {
		d.Spans[n-1].Length += s.Length
		return
	}
	d.Spans = append(d.Spans, s)
}
