package stack

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// digest is that of a file's content.
func digest(it filetree.Node) (string, error) {
	if it.Stat.Size < mostRead {
		return it.Digest()
	}
	f, err := it.OpenContent()
	if err != nil {
		return "", err
	}
	defer f.Close()
	return digestOfData(f, it.Stat.Size)
}

// mostRead is the size from which on a file's digest is that of its data.
const mostRead = 64 << 20

// digestOfData covers the blocks of a file that are not all zero, and where they are: holes are not read, and it does not
// matter which zeros are holes.
func digestOfData(f *os.File, size int64) (string, error) {
	const block = 64 << 10
	sum, data, zero := sha256.New(), make([]byte, block), make([]byte, block)
	for at := int64(0); at < size; {
		next, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // nothing but a hole
			break
		}
		if err != nil {
			return "", err
		}
		at = next / block * block
		n, err := f.ReadAt(data, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
		if n == 0 { // it has become shorter
			break
		}
		if !bytes.Equal(data[:n], zero[:n]) {
			fmt.Fprintf(sum, "%d:", at)
			sum.Write(data[:n])
		}
		at += block
	}
	fmt.Fprintf(sum, "%d", size)
	return "data:" + hex.EncodeToString(sum.Sum(nil)), nil
}
