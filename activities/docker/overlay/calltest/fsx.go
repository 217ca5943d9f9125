package calltest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"

	"golang.org/x/sys/unix"
)

const mostBytes = 256 << 10

// randomly is a file under random calls, and what it must hold.
type randomly struct {
	*rand.Rand

	file *os.File // nil: the calls are only taken down
	want []byte
}

// actRandomly makes the calls of a seed from one number to another, after what other processes have
// made of those before, and compares what the file holds after each.
func actRandomly(at string, seed uint64, from, to int) error {
	r := randomly{Rand: rand.New(rand.NewPCG(seed, 0))} //nolint:gosec // not a secret
	for range from {
		if err := r.next(); err != nil {
			return err
		}
	}
	var err error
	if r.file, err = os.OpenFile(at, os.O_RDWR|os.O_CREATE, 0o640); err != nil {
		return err
	}
	for n := from; n < to; n++ {
		if err := r.next(); err != nil {
			return fmt.Errorf("call %d: %w", n, err)
		}
		if n%7 == 0 {
			if err = r.file.Close(); err != nil {
				return err
			}
			if r.file, err = os.OpenFile(at, os.O_RDWR, 0); err != nil {
				return err
			}
		}
		holds, err := os.ReadFile(at)
		if err != nil {
			return err
		}
		if !bytes.Equal(holds, r.want) {
			return fmt.Errorf("after call %d the file does not hold what was written", n)
		}
	}
	fmt.Printf("%d bytes %x\n", len(r.want), sha256.Sum256(r.want))
	return r.file.Close()
}

// next makes one call.
func (r *randomly) next() error {
	at, n := r.IntN(mostBytes), 1+r.IntN(8<<10)
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(r.Uint32()) //nolint:gosec // its lowest bits
	}
	switch kind := r.IntN(7); kind {
	case 0, 1:
		return r.write(at, data)
	case 2:
		return r.truncate(at)
	case 3:
		return r.writeMapped(data)
	case 4:
		return r.clear(at, n)
	case 5:
		return r.copyRange(at, n)
	default:
		return r.write(len(r.want), data[:n/8])
	}
}

func (r *randomly) resize(n int) {
	r.want = append(r.want, make([]byte, max(0, n-len(r.want)))...)[:n]
}

func (r *randomly) write(at int, data []byte) error {
	r.resize(max(len(r.want), at+len(data)))
	copy(r.want[at:], data)
	if r.file == nil {
		return nil
	}
	_, err := r.file.WriteAt(data, int64(at))
	return err
}

func (r *randomly) truncate(to int) error {
	r.resize(to)
	if r.file == nil {
		return nil
	}
	return r.file.Truncate(int64(to))
}

// writeMapped writes what the file has already through shared memory.
func (r *randomly) writeMapped(data []byte) error {
	n := min(len(data), len(r.want))
	if n == 0 {
		return nil
	}
	copy(r.want, data[:n])
	if r.file == nil {
		return nil
	}
	mapped, err := unix.Mmap(int(r.file.Fd()), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	copy(mapped, data)
	return unix.Munmap(mapped)
}

// clear punches a hole, or writes what it would hold where the filesystem has none.
func (r *randomly) clear(at, n int) error {
	at = min(at, len(r.want))
	n = min(n, len(r.want)-at)
	clear(r.want[at : at+n])
	if r.file == nil || n == 0 {
		return nil
	}
	err := unix.Fallocate(int(r.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(at), int64(n))
	if errors.Is(err, unix.EOPNOTSUPP) {
		_, err = r.file.WriteAt(make([]byte, n), int64(at))
	}
	return err
}

// copyRange copies the first bytes of the file to another place in it.
func (r *randomly) copyRange(at, n int) error {
	n = min(n, len(r.want), at)
	if n == 0 {
		return nil
	}
	r.resize(max(len(r.want), at+n))
	copy(r.want[at:], r.want[:n])
	for from, to := int64(0), int64(at); r.file != nil && n > 0; {
		done, err := unix.CopyFileRange(int(r.file.Fd()), &from, int(r.file.Fd()), &to, n, 0)
		if err != nil || done == 0 {
			return fmt.Errorf("copying %d bytes: %d: %w", n, done, err)
		}
		n -= done
	}
	return nil
}
