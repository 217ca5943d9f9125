package container

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// Limits on what is kept of a command's output.
const (
	maxLogHead = 32 << 20 // bytes of the log from its beginning
	maxLogTail = 1 << 20  // bytes of its end, where there was more
	maxStdout  = 64 << 10 // bytes of standard output that the result itself holds
)

// logWriter keeps the beginning and the end of what is written to it: a log that is too long loses its middle.
type logWriter struct {
	mu   sync.Mutex
	head io.Writer
	room int
	tail []byte
	lost int64
}

func newLog(f io.Writer) *logWriter { return &logWriter{head: f, room: maxLogHead} }

func (l *logWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(p), l.room)
	if _, err := l.head.Write(p[:n]); err != nil {
		return 0, err
	}
	l.room -= n
	l.tail = append(l.tail, p[n:]...)
	if cut := len(l.tail) - maxLogTail; cut > maxLogTail { // cut seldom: each cut moves all that stays
		l.drop(cut)
	}
	return len(p), nil
}

func (l *logWriter) drop(n int) {
	l.lost += int64(n)
	l.tail = append(l.tail[:0], l.tail[n:]...)
}

// finish writes the end after the beginning.
func (l *logWriter) finish() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cut := len(l.tail) - maxLogTail; cut > 0 {
		l.drop(cut)
	}
	if l.lost > 0 {
		if _, err := fmt.Fprintf(l.head, "\n[unwind: %d bytes are left out here]\n", l.lost); err != nil {
			return err
		}
	}
	_, err := l.head.Write(l.tail)
	return err
}

// firstBytes keeps the beginning of what is written to it.
type firstBytes struct {
	kept []byte
	more bool
}

func (b *firstBytes) Write(p []byte) (int, error) {
	n := min(len(p), maxStdout-len(b.kept))
	b.kept = append(b.kept, p[:n]...)
	b.more = b.more || n < len(p)
	return len(p), nil
}

// endOf reads the last bytes of a log.
func endOf(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	b := make([]byte, min(info.Size(), maxLogTail))
	n, err := f.ReadAt(b, info.Size()-int64(len(b)))
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return string(b[:n]), nil
}
