package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
)

// chunkSize is the size of the pieces in which content is kept: a file of more bytes is a list of
// chunks. What changes in a large file costs a chunk for each place.
const chunkSize = 256 << 10

// sum names a chunk; the zero one stands for a chunk of zeros in a list, which is not kept.
type sum [sha256.Size]byte

func (s sum) String() string { return hex.EncodeToString(s[:]) }

// putChunk keeps a chunk.
type putChunk func(name sum, data []byte) error

// isList says that a file of this size is kept as the list of its chunks' names, a chunk itself.
func isList(size int64) bool { return size > chunkSize }

var buffers = sync.Pool{New: func() any { return new([chunkSize]byte) }}

var zeros [chunkSize]byte

// digestContent is the name of the chunk that holds a file's content, or the list of its chunks, in
// hex. It gives each to put, where that is set.
func digestContent(f *os.File, size int64, put putChunk) (string, error) {
	keep := func(data []byte) (sum, error) {
		name := sum(sha256.Sum256(data))
		if put == nil {
			return name, nil
		}
		return name, put(name, data)
	}
	buffer, _ := buffers.Get().(*[chunkSize]byte)
	defer buffers.Put(buffer)
	if !isList(size) {
		n, err := io.ReadFull(f, buffer[:])
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
			return "", err
		}
		if int64(n) != size {
			return "", errChanging
		}
		name, err := keep(buffer[:n])
		return name.String(), err
	}
	var list bytes.Buffer
	for at := int64(0); at < size; at += chunkSize {
		chunk := buffer[:min(chunkSize, size-at)]
		hole, err := isHole(f, at, int64(len(chunk)))
		if err != nil {
			return "", err
		}
		if !hole {
			if n, err := f.ReadAt(chunk, at); n < len(chunk) && errors.Is(err, io.EOF) {
				return "", errChanging
			} else if n < len(chunk) {
				return "", err
			}
			hole = bytes.Equal(chunk, zeros[:len(chunk)])
		}
		var name sum
		if !hole {
			if name, err = keep(chunk); err != nil {
				return "", err
			}
		}
		list.Write(name[:])
	}
	name, err := keep(list.Bytes())
	return name.String(), err
}

// isHole says that nothing is written at a part of a file.
func isHole(f *os.File, at, size int64) (bool, error) {
	data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) { // nothing until the end
		return true, nil
	}
	if errors.Is(err, unix.EINVAL) { // the filesystem does not tell
		return false, nil
	}
	return err == nil && data >= at+size, err
}

// getChunk returns a chunk.
type getChunk func(name sum) ([]byte, error)

// eachChunk calls do for the chunks of a file in order, with where each begins, without those that
// are zeros only. It returns the names of all that it has read.
func eachChunk(e Entry, get getChunk, do func(at int64, data []byte) error) error {
	name, err := nameOf(e)
	if err != nil {
		return err
	}
	data, err := get(name)
	if err != nil {
		return err
	}
	if !isList(e.Size) {
		if int64(len(data)) != e.Size {
			return badLength("chunk", e, data)
		}
		return do(0, data)
	}
	names, err := splitList(e, data)
	if err != nil {
		return err
	}
	for i, name := range names {
		if name == (sum{}) {
			continue
		}
		at := int64(i) * chunkSize
		if data, err = get(name); err != nil {
			return err
		}
		if int64(len(data)) != min(chunkSize, e.Size-at) {
			return badLength("chunk", e, data)
		}
		if err := do(at, data); err != nil {
			return err
		}
	}
	return nil
}

func nameOf(e Entry) (name sum, err error) {
	raw, err := hex.DecodeString(e.Digest)
	if err != nil || len(raw) != len(name) {
		return name, &DamageError{fmt.Sprintf("the content of %s has the name %q", e.Path, e.Digest)}
	}
	return sum(raw), nil
}

// splitList is the list that a chunk of a large file holds.
func splitList(e Entry, data []byte) (names []sum, err error) {
	if int64(len(data)) != (e.Size+chunkSize-1)/chunkSize*sha256.Size {
		return nil, badLength("list of chunks", e, data)
	}
	for ; len(data) > 0; data = data[sha256.Size:] {
		names = append(names, sum(data[:sha256.Size]))
	}
	return names, nil
}

func badLength(what string, of Entry, data []byte) error {
	return &DamageError{fmt.Sprintf("the %s of %s, a file of %s, has %s", what, of.Path,
		activities.CountOf(of.Size, "byte"), activities.CountOf(len(data), "byte"))}
}
