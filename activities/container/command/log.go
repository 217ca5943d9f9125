package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/seed-62bf7108/unwind/activities"
)

// Limits on what is kept of a command's output.
const (
	maxLogHead = 32 << 20 // bytes of the log from its beginning
	maxLogTail = 1 << 20  // bytes of its end, where there was more
	maxFirst   = 64 << 10 // bytes of each stream that the result itself holds
	maxWatched = 4 << 10  // bytes of its end that are looked at while the command runs
)

// Log keeps the beginning and the end of what is written to it: a log that is too long loses its
// middle.
type Log struct {
	mu   sync.Mutex
	head io.Writer
	room int
	tail []byte
	lost int64
}

// NewLog makes a log that is written to f.
func NewLog(f io.Writer) *Log { return &Log{head: f, room: maxLogHead} }

func (l *Log) Write(p []byte) (int, error) {
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

func (l *Log) drop(n int) {
	l.lost += int64(n)
	l.tail = append(l.tail[:0], l.tail[n:]...)
}

// Finish writes the end after the beginning.
func (l *Log) Finish() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cut := len(l.tail) - maxLogTail; cut > 0 {
		l.drop(cut)
	}
	if l.lost > 0 {
		if _, err := fmt.Fprintf(l.head, "\n[unwind: left out here: %s]\n", activities.CountOf(l.lost, "byte")); err != nil {
			return err
		}
	}
	_, err := l.head.Write(l.tail)
	return err
}

// FirstBytes keeps the beginning of what is written to it.
type FirstBytes struct {
	Bytes []byte
	// More says that there was more.
	More bool
}

func (b *FirstBytes) Write(p []byte) (int, error) {
	n := min(len(p), maxFirst-len(b.Bytes))
	b.Bytes = append(b.Bytes, p[:n]...)
	b.More = b.More || n < len(p)
	return len(p), nil
}

// LastBytes keeps the end of what is written to it, for people who watch.
type LastBytes struct {
	mu sync.Mutex
	b  []byte
}

func (l *LastBytes) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b = append(l.b, p[max(0, len(p)-maxWatched):]...)
	if cut := len(l.b) - maxWatched; cut > 0 {
		l.b = append(l.b[:0], l.b[cut:]...)
	}
	return len(p), nil
}

func (l *LastBytes) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.b)
}

// ReadTail reads the last bytes of a log.
func ReadTail(name string) (string, error) { return readEnd(name, maxLogTail) }

// Watch has the last lines of a log shown while its command runs, until stop is called.
func Watch(ctx context.Context, name string) (stop func()) {
	return activities.ShowProgress(ctx, func() []string {
		text, _ := readEnd(name, maxWatched) // it may not be there yet
		return activities.LastLines(text)
	})
}

// readEnd reads at most that many bytes at the end of a file.
func readEnd(name string, most int64) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	b := make([]byte, min(info.Size(), most))
	n, err := f.ReadAt(b, info.Size()-int64(len(b)))
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return string(b[:n]), nil
}
