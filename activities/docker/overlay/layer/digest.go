package layer

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

// digestContent hashes a file's content.
func digestContent(it filetree.Node) (string, error) {
	if it.Stat.Size < dataDigestFrom {
		return it.Digest()
	}
	f, err := it.OpenContent()
	if err != nil {
		return "", err
	}
	defer f.Close()
	return digestData(f, it.Stat.Size)
}

// dataDigestFrom is the size from which only a file's data is hashed, not its holes.
const dataDigestFrom = 64 << 20

// digestData hashes the nonzero blocks of a file with their offsets: holes are not read, and equal
// blocks of zeros.
func digestData(f *os.File, size int64) (string, error) {
	const block = 64 << 10
	sum, data, zero := sha256.New(), make([]byte, block), make([]byte, block)
	for at := int64(0); at < size; {
		next, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // only a hole
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
		if n == 0 { // truncated meanwhile
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
